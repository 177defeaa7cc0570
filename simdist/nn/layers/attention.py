"""Attention: what lies between the projection to queries, keys and values and the projection of what they give."""

from dataclasses import replace
from typing import NamedTuple

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.functional.blockwise import Keep
from simdist.nn.layers.activation import dropped_share
from simdist.nn.layers.layer import Weightless
from simdist.nn.noise import Noise

__all__ = ["Attention", "FlashAttention"]


class _Context(NamedTuple):
    qkv: Array
    y: Array
    p: tuple[Array, ...]
    keep: Array | None


class Attention(Weightless):
    """Causal self-attention of some heads on (n, t, (heads + 2 groups) * d) queries, keys and values.

    It has no weights, but holds up to t * t probabilities a head: what selective recomputation makes anew.

    Args:
        name: unique in its model; dropout's masks hang on it.
        heads: how many there are in its input.
        dropout: the share of the probabilities that is dropped.
        first_head: how many heads of the model come before these.
        groups: of heads that share keys and values; as many as heads, if not given.
    """

    def __init__(
        self, name: str, heads: int, dropout: float = 0.0, first_head: int = 0, groups: int | None = None
    ) -> None:
        self.name = name
        self.heads = heads
        self.dropout = dropped_share(dropout)
        self.first_head = first_head
        self.groups = groups

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Context]:
        """The context is all that took part."""
        keep = None
        if noise is not None and self.dropout:
            noise = replace(noise, first_head=noise.first_head + self.first_head)
            keep = noise.scores(self.name, x, self.heads, self.dropout)
        y, p = f.attention(x, self.heads, keep, self.dropout, self.groups)
        return y, _Context(x, y, p, keep)

    def backward_input(self, context: _Context, dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        qkv, y, p, keep = context
        return f.attention_backward(qkv, y, p, dy, keep, self.dropout), None


class _Seen(NamedTuple):
    qkv: Array
    y: Array
    lse: Array
    keep: Keep | None


class FlashAttention(Weightless):
    """The same as `Attention`, with the same masks of dropout, a tile of queries and keys at a time.

    Beside its input and its output it keeps one number a query and head: nothing that grows with t * t, and nothing
    for selective recomputation to make again.

    Args:
        name, heads, dropout, first_head, groups: as of `Attention`.

    Cost: seven products of queries and keys, where `Attention` has six; see `flash_attention`.
    """

    def __init__(
        self, name: str, heads: int, dropout: float = 0.0, first_head: int = 0, groups: int | None = None
    ) -> None:
        self.name = name
        self.heads = heads
        self.dropout = dropped_share(dropout)
        self.first_head = first_head
        self.groups = groups

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Seen]:
        """The context is x, the output, the logarithm of each query's sum, and what draws the masks."""
        keep = None
        if noise is not None and self.dropout:
            noise = replace(noise, first_head=noise.first_head + self.first_head)
            keep = noise.tiles(self.name, x, self.heads, self.dropout)
        y, lse = f.flash_attention(x, self.heads, keep, self.dropout, self.groups)
        return y, _Seen(x, y, lse, keep)

    def backward_input(self, context: _Seen, dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        qkv, y, lse, keep = context
        return f.flash_attention_backward(qkv, y, lse, dy, keep, self.dropout), None
