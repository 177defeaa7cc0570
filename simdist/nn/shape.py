"""Shape: the sizes of a GPT."""

from dataclasses import dataclass, fields, replace
from itertools import groupby
from numbers import Integral

from simdist.errors import ArgumentError, require_known, require_least, require_more, require_share, require_whole
from simdist.nn.functional.rotary import ROPE_BASE

__all__ = ["BLOCKS", "RECOMPUTATIONS", "Shape"]

BLOCKS = ("gpt2", "llama")
RECOMPUTATIONS = ("none", "selective", "full")

_MULTIPLE = 256  # the default size inside a Llama MLP is a multiple of this
_LEAST = dict.fromkeys(("layers", "experts", "top_k", "shared_experts", "dense_layers"), 0)
"""The least that a whole number may be; others 1."""


@dataclass(frozen=True)
class Shape:
    """How large a GPT is, and how it is trained.

        block     norm         MLP           positions                          biases
        gpt2      LayerNorm    GELU          learned embeddings                 everywhere
        llama     RMSNorm      SwiGLU        rotations of queries, keys (RoPE)  none, or by qkv_bias

    Args:
        layers: how many blocks of attention and MLP.
        width: size of a token's vector; a multiple of heads, unless head_width is given.
        heads: of the attention in each block.
        context: the maximum number of tokens it sees.
        vocabulary: how many different tokens there are; 256 for bytes.
        dropout: the share of the embeddings, the attention probabilities and each block's two outputs
            that is dropped in training.
        tied: whether logits come from the embedding's own table.
        recompute: which activations are recomputed in backward instead of kept: none; selective, what
            attention computes from its queries, keys and values; full, all but each block's input.
        flash: whether attention works tile by tile (FlashAttention): it keeps no probabilities, and selective
            recomputation does not change it. Ring attention always works like this.
        block: what blocks are made of, see above.
        kv_heads: the number of key/value heads, a divisor of heads, shared by groups of heads; None for as many.
        head_width: size of a head's query, key and value; if None, width / heads. With a latent vector, see
            rope_width.
        kv_latent_width: size of the latent vector that all keys and values of a token are maps of (multi-head latent
            attention, MLA); None for keys and values that are maps of the token's vector itself.
        query_latent_width: the same for its queries; None for none.
        rope_width: with a latent vector, features of each query and key besides those of the head_width, which alone
            are rotated; those of the keys are the same in all heads. If None, half as many, as in DeepSeek's models.
        qkv_bias: whether queries, keys and values have biases in Llama blocks too, as in Qwen2.
        qk_norm: whether each head's query and key are normalized, as in Qwen3: see `QKNorm`.
        rope_base: of RoPE's angles, in Llama blocks: 10,000 in the paper, 500,000 in Llama 3, a million in Qwen3.
        ffn_width: size inside each MLP; if None, 4 times the width, and in Llama blocks 8/3 of it, rounded up to a
            multiple of 256.
        experts: the number of expert MLPs in each block; 0 for one MLP for all tokens. For this and the following
            see `Experts`.
        top_k: the number of experts per token.
        shared_experts: the number of further experts that all tokens go to, as one MLP of their size together.
        dense_layers: how many blocks come first that have one MLP for all tokens instead of experts.
        expert_every: n, if of the blocks after these every n-th has experts, and the others one MLP for all tokens: 2
            in GShard, Switch and DeepSpeed-MoE.
        dense_ffn_width: the size inside that MLP; if None, that of an expert.
        capacity_factor: the experts' slots, as a multiple of what even loads need.
        alpha: the weight of the auxiliary load-balancing loss.
        group: tokens that share slots, a divisor of the context; all of a text if not given.

    Raises:
        ArgumentError: a size is outside its limits.
        UnknownNameError: there is no such recomputation, or no such block.

    Source: Llama blocks, Touvron et al. 2023, arXiv 2302.13971, section 2.2; shared keys and values, Ainslie et al.
    2023, arXiv 2305.13245; shared experts, Dai et al. 2024, arXiv 2401.06066, section 3.2; latent attention,
    DeepSeek-AI 2024, arXiv 2405.04434, section 2.1.
    """

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int = 256
    dropout: float = 0.0
    tied: bool = True
    recompute: str = "none"
    flash: bool = False
    block: str = "gpt2"
    kv_heads: int | None = None
    head_width: int | None = None
    kv_latent_width: int | None = None
    query_latent_width: int | None = None
    rope_width: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_base: float = ROPE_BASE
    ffn_width: int | None = None
    experts: int = 0
    top_k: int = 1
    shared_experts: int = 0
    dense_layers: int = 0
    expert_every: int = 1
    dense_ffn_width: int | None = None
    capacity_factor: float = 1.25
    alpha: float = 0.01
    group: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is int or (each.type == int | None and value is not None):
                require_whole(each.name, value, _LEAST.get(each.name, 1))
            if isinstance(value, Integral) and not isinstance(value, bool):  # NumPy's overflow in large models
                object.__setattr__(self, each.name, int(value))
        require_share("dropout", self.dropout)
        if self.head_width is None and self.width % self.heads:
            raise ArgumentError(f"width is {self.width} and heads is {self.heads}; needs a multiple of the heads")
        self._check_experts()
        if self.group is not None and self.context % self.group:
            raise ArgumentError(f"group is {self.group} and context is {self.context}; needs a divisor of the context")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ArgumentError(f"kv_heads is {self.kv_heads} and heads is {self.heads}; needs a divisor of the heads")
        require_more("rope_base", self.rope_base, 1)
        require_known("recomputation", self.recompute, RECOMPUTATIONS)
        require_known("block", self.block, BLOCKS)
        self._check_latent()
        if self.is_llama and (self.rotary_features % 2 or not self.rotary_features):
            told = f"width is {self.width} and heads is {self.heads}"
            told = told if self.head_width is None else f"head_width is {self.head_width}"
            told = told if self.rope_width is None else f"rope_width is {self.rope_width}"
            raise ArgumentError(
                f"{told}; blocks of llama rotate pairs of features, and here {self.rotary_features} of a head: "
                "needs an even number"
            )

    def _check_experts(self) -> None:
        """Raise ArgumentError unless the experts, and the blocks without them, are possible."""
        require_more("capacity_factor", self.capacity_factor, 0)
        require_least("alpha", self.alpha, 0)
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise ArgumentError(f"top_k is {self.top_k} and experts is {self.experts}; needs 1 <= top_k <= experts")
        for name, without in (("shared_experts", 0), ("expert_every", 1)):
            if (value := getattr(self, name)) != without and not self.experts:
                raise ArgumentError(f"{name} is {value} and experts is 0; needs {without} without experts")
        if self.dense_layers > (self.layers if self.experts else 0):
            have = f"dense_layers is {self.dense_layers}, layers {self.layers} and experts {self.experts}"
            raise ArgumentError(f"{have}; needs at most the layers, and 0 without experts")
        if self.dense_ffn_width is not None and not self.dense_layers and self.expert_every == 1:
            raise ArgumentError(
                f"dense_ffn_width is {self.dense_ffn_width}, dense_layers 0 and expert_every 1; needs blocks without "
                "experts"
            )
        if self.experts and 0 < self.layers < self.dense_layers + self.expert_every:
            have = f"experts is {self.experts}, layers {self.layers}, dense_layers {self.dense_layers}"
            raise ArgumentError(
                f"{have} and expert_every {self.expert_every}: no block has experts; "
                f"needs at least {self.dense_layers + self.expert_every} layers"
            )

    def _check_latent(self) -> None:
        """Raise ArgumentError unless other settings go with latent attention, or with its absence."""
        if self.kv_latent_width is None:
            for name in ("query_latent_width", "rope_width"):
                if getattr(self, name) is not None:
                    raise ArgumentError(f"{name} is {getattr(self, name)}, and there is no kv_latent_width; needs both")
            return
        others = {"kv_heads": self.num_kv_heads != self.heads, "qkv_bias": self.qkv_bias, "qk_norm": self.qk_norm}
        latent = f"kv_latent_width is {self.kv_latent_width}"
        for name, wrong in others.items():
            if wrong:
                raise ArgumentError(f"{name} is {getattr(self, name)} and {latent}; takes one of them")
        if not self.is_llama:
            raise ArgumentError(f"block is {self.block} and {latent}; needs blocks of llama")

    def __repr__(self) -> str:
        told = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return f"Shape({', '.join(f'{name}={value!r}' for name, value, default in told if value != default)})"

    def kinds(self) -> list[tuple["Shape", int]]:
        """The blocks in order: runs of one kind, each as a shape with such blocks only, and how many they are."""
        if not self.layers or (not self.dense_layers and self.expert_every == 1):
            return [(self, self.layers)]
        alike = replace(self, dense_layers=0, expert_every=1, dense_ffn_width=None)
        dense = replace(alike, experts=0, shared_experts=0, ffn_width=self.dense_ffn_width or self.ffn_width)
        after = range(1 - self.dense_layers, self.layers - self.dense_layers + 1)  # the first block after these is 1
        expert = (i > 0 and i % self.expert_every == 0 for i in after)
        return [(alike if has else dense, len(list(run))) for has, run in groupby(expert)]

    @property
    def is_llama(self) -> bool:
        """Whether it has Llama blocks."""
        return self.block == "llama"

    @property
    def num_kv_heads(self) -> int:
        """The number of key/value heads."""
        return self.kv_heads or self.heads

    @property
    def value_features(self) -> int:
        """The size of a head's value."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def rotary_features(self) -> int:
        """The number of features of a head's query and key that RoPE rotates, in Llama blocks."""
        if self.kv_latent_width is None:
            return self.value_features
        return self.value_features // 2 if self.rope_width is None else self.rope_width

    @property
    def head_features(self) -> int:
        """The size of a head's query or key: that of its value, except in latent attention."""
        return self.value_features + (0 if self.kv_latent_width is None else self.rotary_features)

    @property
    def attention_width(self) -> int:
        """The size of attention's output for a token: the width, in most models."""
        return self.value_features * self.heads

    @property
    def query_width(self) -> int:
        """The size of all queries of a token: that of attention's output, except in latent attention."""
        return self.head_features * self.heads

    @property
    def key_value_width(self) -> int:
        """The size of all keys and all values of a token."""
        return (self.head_features + self.value_features) * self.num_kv_heads

    @property
    def ffn_features(self) -> int:
        """The size inside an MLP."""
        if self.ffn_width is not None:
            return self.ffn_width
        return -(-8 * self.width // (3 * _MULTIPLE)) * _MULTIPLE if self.is_llama else 4 * self.width

    @property
    def shared_features(self) -> int:
        """The size inside the MLP that tokens go to besides their own experts; 0 where there is none."""
        return self.shared_experts * self.ffn_features

    @property
    def in_papers(self) -> bool:
        """Whether the papers' formulas on GPTs apply, those of 12 h² weights per block."""
        of_papers = (
            self.key_value_width == 2 * self.attention_width == 2 * self.width and self.ffn_features == 4 * self.width
        )
        return of_papers and not (self.is_llama or self.experts or self.qk_norm)
