"""Shape: the sizes of a GPT."""

from dataclasses import dataclass

from simdist.errors import ArgumentError, unknown_name

__all__ = ["RECOMPUTATIONS", "Shape"]

RECOMPUTATIONS = ("none", "selective", "full")


@dataclass(frozen=True)
class Shape:
    """How large a GPT is, and how it is trained.

    Args:
        layers: how many blocks of attention and perceptron.
        width: numbers that stand for a token; a multiple of heads.
        heads: of the attention in each block.
        context: the most tokens it sees.
        vocabulary: how many different tokens there are; 256 for bytes.
        dropout: the share of the embeddings, the attention probabilities and each block's two outputs
            that is dropped in training.
        tied: whether logits come from the embedding's own table.
        recompute: which activations are made again in backward instead of kept: none of them; selective,
            what attention makes of its queries, keys and values; full, all but each block's input.
        experts: how many perceptrons there are in each block, of which a token goes to some; 0 for one that all
            go to. This and what follows is as of `Experts`.
        top_k: to how many a token goes.
        capacity_factor: how many slots they have, as a multiple of what is enough where all is even.
        alpha: the weight of the auxiliary loss, which asks for that.
        group: tokens that share slots, a divisor of the context; all of a text, if not given.

    Raises:
        ArgumentError: a size lies outside its limits.
        UnknownNameError: there is no such recomputation.
    """

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int = 256
    dropout: float = 0.0
    tied: bool = True
    recompute: str = "none"
    experts: int = 0
    top_k: int = 1
    capacity_factor: float = 1.25
    alpha: float = 0.01
    group: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("layers", 0), ("width", 1), ("heads", 1), ("context", 1), ("vocabulary", 1)):
            if getattr(self, name) < least:
                raise ArgumentError(f"{name} is {getattr(self, name)}; needs at least {least}")
        if self.width % self.heads:
            raise ArgumentError(f"width is {self.width} and heads is {self.heads}; needs a multiple of the heads")
        if self.experts < 0 or (self.experts and not 1 <= self.top_k <= self.experts):
            raise ArgumentError(f"top_k is {self.top_k} and experts is {self.experts}; needs 1 to as many as experts")
        if self.group is not None and (self.group < 1 or self.context % self.group):
            raise ArgumentError(f"group is {self.group} and context is {self.context}; needs a divisor of the context")
        if self.recompute not in RECOMPUTATIONS:
            raise unknown_name("recomputation", self.recompute, RECOMPUTATIONS)
