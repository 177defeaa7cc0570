"""Attention: the computation between the query-key-value projection and the output projection."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

from simdist.arrays import Array
from simdist.errors import require_share
from simdist.nn import functional as f
from simdist.nn.layers.layer import Weightless
from simdist.nn.noise import Noise

__all__ = ["Attention"]


class _Context(NamedTuple):
    qkv: Array
    y: Array
    saved: Any  # the probabilities, or with flash lse
    keep: Any  # dropout's mask


@dataclass(eq=False)
class Attention(Weightless):
    """Causal self-attention of some heads: queries, keys and values, (n, t, heads * e + groups * (e + w)), to
    (n, t, heads * w); see `simdist.nn.functional.groups`.

    It has no weights, but keeps up to t * t probabilities per head, which selective recomputation recomputes. With
    flash it keeps one number per query and head instead, and has the same masks.

    Args:
        name: unique in its model; dropout's masks depend on it.
        heads: the number of heads in its input.
        dropout: the share of the probabilities that is dropped.
        first_head: the number of the model's heads before these.
        groups: of heads that share keys and values; if not given, one per head.
        flash: whether to use `flash_attention` instead of `attention`.
        value_width: w, the features of a value; if not given, those of a query and of a key.
    """

    name: str
    heads: int
    dropout: float = 0.0
    first_head: int = 0
    groups: int | None = None
    flash: bool = False
    _: KW_ONLY
    value_width: int | None = None

    def __post_init__(self) -> None:
        require_share("dropout", self.dropout)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Context]:
        """The context is the input, the output, and what backward needs of the probabilities and masks."""
        keep = None
        if noise is not None and self.dropout:
            own = replace(noise, first_head=noise.first_head + self.first_head)
            mask = own.tiles if self.flash else own.scores
            keep = mask(self.name, x, self.heads, self.dropout)
        attend = f.flash_attention if self.flash else f.attention
        y, saved = attend(x, self.heads, keep, self.dropout, self.groups, self.value_width)
        return y, _Context(x, y, saved, keep)

    def backward_input(self, context: _Context, dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        qkv, y, saved, keep = context
        attend_backward = f.flash_attention_backward if self.flash else f.attention_backward
        return attend_backward(qkv, y, saved, dy, keep, self.dropout, groups=self.groups or self.heads), None
