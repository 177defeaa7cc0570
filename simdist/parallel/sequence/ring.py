"""Ring: attention in which the keys and values of all ranks go round a ring, one block at a time.

    p   ranks      N   tokens of all texts      h   width

Queries stay on their rank, where a running softmax sums up their results over the blocks, which come by in turn: see
`simdist.parallel.sequence.rotation`. A rank passes on a block that none of its queries may see without computing. In
backward the blocks go round again, followed by the derivatives with respect to them, which end on the owner of the
block.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array
from simdist.collectives import Cost
from simdist.collectives.buffers import describe
from simdist.comm import Communicator
from simdist.errors import as_declared, require_least, require_more, require_share
from simdist.nn import Noise
from simdist.nn.functional import blockwise
from simdist.nn.functional.groups import join, split_heads, split_shared
from simdist.nn.layers import Weightless
from simdist.parallel.sequence.rotation import rotation, summed_rotation
from simdist.parallel.sequence.split import Split

__all__ = ["RINGS", "RingAttention", "ring_attention_block", "ring_attention_bytes", "ring_attention_cost"]

RINGS = ("ring attention", "ring attention backward")
"""The names of the spans around the two passes; their bytes are those of this rank's keys and values."""


class _Context(NamedTuple):
    qkv: Array
    y: Array
    lse: Array
    noise: Noise | None


class _BlockPair(NamedTuple):
    """A run of this rank's queries and a run of keys that they see: their places in the blocks, and in the text."""

    queries: slice
    keys: slice
    first_query: int
    first_key: int

    @property
    def causal(self) -> bool:
        """Whether they are the same tokens, so that a causal mask applies."""
        return self.first_query == self.first_key


@dataclass(eq=False)
class RingAttention(Weightless):
    """Causal self-attention on the queries, keys and values of this rank's tokens, of shapes as of `Attention`.

    The result is that of `Attention` on the whole texts, with the same dropout masks. A rank holds at most two blocks
    of keys, and the scores of a tile of queries with one block. From forward to backward it keeps its queries, keys
    and values, its output, and one number for each query and head, so selective recomputation has nothing to save.

    Args:
        name, heads, dropout, first_head: as of `Attention`.
        split: which rank has which tokens. With `Zigzag` all have equal work; with `Even` on 4 ranks, 1 : 3 : 5 : 7.
        groups: of heads that share keys and values; one per head, if not given. Shared keys and values are sent once,
            so h below is then their part of the width.
        value_width: the features of a value; if not given, those of a key. 2h below is the width of keys and values.

    Cost per rank: forward, p-1 messages of 2Nh/p items; backward, the same again, and p-1 messages of as many
    derivatives, in the working dtype: 6Nh(p-1)/p items in all (`ring_attention_cost`). Seven matrix products, where
    `Attention` has six.

    Raises:
        ArgumentError: the tokens do not divide evenly.
        CollectiveMismatch: on all ranks, if their inputs differ in shape or dtype.

    Source: Liu, Zaharia, Abbeel 2023, arXiv 2310.01889; for the balance see `Zigzag`.
    """

    name: str
    heads: int
    split: Split
    dropout: float = 0.0
    first_head: int = 0
    groups: int | None = None
    _: KW_ONLY
    value_width: int | None = None

    def __post_init__(self) -> None:
        require_share("dropout", self.dropout)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Context]:
        """The context holds x, the output, the logarithm of each query's sum, and the noise."""
        q, k, v = split_shared(x, self.heads, self.groups or self.heads, self.value_width)
        state = blockwise.initial_state(q, v.shape[-1])
        with self._checked_ring(RINGS[0], x, k.nbytes + v.nbytes) as comm:
            for owner, kv in rotation(_joined(k, v), comm):
                ks, vs = _parted(kv, k, v)
                for pair in self._block_pairs(owner, x.shape[1]):
                    queries, keys = pair.queries, pair.keys
                    block = q[:, :, queries], ks[:, :, keys], vs[:, :, keys]
                    keep = self._keep(x, noise, pair)
                    with comm.span("forward attention", detail=f"block {owner}"):
                        blockwise.attend(*block, state.of(queries), pair.causal, keep, self.dropout)
        y, lse = blockwise.finish(state, x)
        return y, _Context(x, y, lse, noise)

    def backward_input(self, context: _Context, dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        qkv, y, lse, noise = context
        q, k, v = split_shared(qkv, self.heads, self.groups or self.heads, self.value_width)
        dys = split_heads(dy, self.heads)
        dq, sums = np.zeros_like(q, dtype=lse.dtype), blockwise.sums_of(y, dy, self.heads)
        own_dkv = np.zeros_like(q, shape=(k.size + v.size,), dtype=lse.dtype)
        with self._checked_ring(RINGS[1], qkv, k.nbytes + v.nbytes) as comm:
            for owner, kv, dkv in summed_rotation(_joined(k, v), comm, own_dkv):
                (ks, vs), (dks, dvs) = _parted(kv, k, v), _parted(dkv, k, v)
                for pair in self._block_pairs(owner, qkv.shape[1]):
                    queries, keys = pair.queries, pair.keys
                    of_queries = tuple(each[:, :, queries] for each in (q, dq, dys, sums, lse))
                    of_keys = tuple(each[:, :, keys] for each in (ks, dks, vs, dvs))
                    with comm.span("backward attention", detail=f"block {owner}"):
                        keep = self._keep(qkv, noise, pair)
                        blockwise.attend_backward(of_queries, of_keys, pair.causal, keep, self.dropout)
        dqkv = np.empty_like(qkv)
        join(dqkv, dq, *_parted(own_dkv, k, v))
        return dqkv, None

    @contextmanager
    def _checked_ring(self, what: str, x: Array, num_bytes: int) -> Iterator[Communicator]:
        """The communicator for the ring of keys and values, after checking that the inputs of all ranks agree."""
        comm = self.split.comm.shadow
        with comm.span(what, num_bytes):
            comm.agree(f"{what} of {describe(x)}")
            self.split.runs_of(x.shape[1] * comm.size)  # raises, if it must, before anything is sent
            yield comm

    def _block_pairs(self, owner: int, t: int) -> Iterator[_BlockPair]:
        """The pairs of this rank's runs of queries and the owner's runs of keys that they see."""
        count = t * self.split.comm.size
        for queries, query_tokens in self.split.runs_of(count):
            for keys, key_tokens in self.split.runs_of(count, owner):
                if key_tokens.start <= query_tokens.start:
                    yield _BlockPair(queries, keys, query_tokens.start, key_tokens.start)

    def _keep(self, x: Array, noise: Noise | None, pair: _BlockPair) -> blockwise.Keep | None:
        """The part of the whole text's dropout mask for this pair."""
        if noise is None or not self.dropout:
            return None
        there = replace(
            noise,
            first_head=noise.first_head + self.first_head,
            first_token=noise.first_token + pair.first_query,
            first_key=noise.first_key + pair.first_key,
        )
        return there.tiles(self.name, x, self.heads, self.dropout)


def _joined(k: Array, v: Array) -> Array:
    """Keys and values as one message, a vector of all keys and then all values: their widths may differ."""
    kv = np.empty_like(k, shape=(k.size + v.size,))
    ks, vs = _parted(kv, k, v)
    ks[...], vs[...] = k, v
    return kv


def _parted(kv: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """The views into such a vector, of the shapes of k and v."""
    return kv[: k.size].reshape(k.shape), kv[k.size :].reshape(v.shape)


@as_declared
def ring_attention_cost(ranks: int, num_bytes: int, itemsize: int, *, backward: bool) -> Cost:
    """The cost of one pass, per rank.

    Args:
        ranks: p.
        num_bytes: of a rank's keys and values: 2Nh/p items.
        itemsize: of an item; derivatives have at least 4 bytes.
        backward: whether it is the backward pass, which also sends and sums derivatives.

    Raises:
        ArgumentError: there are no ranks, or an item has no bytes.
    """
    require_least("ranks", ranks, 1)
    require_least("itemsize", itemsize, 1)
    last, sum_bytes = ranks - 1, _sum_bytes(num_bytes, itemsize)
    if not backward:
        return Cost(last, last, last * num_bytes)
    return Cost(ranks if last else 0, 2 * last, last * (num_bytes + sum_bytes), last * sum_bytes)


@as_declared
def ring_attention_bytes(ranks: int, num_bytes: int, itemsize: int) -> int:
    """The most bytes of blocks that a rank holds at once, in backward: two blocks of keys and values; and of
    derivatives its own block, one arriving, one in work and one leaving. Arguments as of `ring_attention_cost`.

    In forward, with its queries and its output, these are the 6bch of the paper's table 1 for blocks of c tokens: one
    block of queries, two each of keys and of values, and one of outputs.
    """
    blocks, sums = (1, 2) if ranks == 1 else (2, min(ranks + 1, 4))
    return blocks * num_bytes + sums * _sum_bytes(num_bytes, itemsize)


def _sum_bytes(num_bytes: int, itemsize: int) -> int:
    """The bytes of the derivatives by a block of this many, in the working dtype."""
    return num_bytes // itemsize * max(itemsize, 4)


@as_declared
def ring_attention_block(flops_per_s: float, bytes_per_s: float, itemsize: int = 2) -> float:
    """The least tokens per rank for which the next block arrives during the work on a block without mask: F / B, if
    an item has 2 bytes.

    For c tokens of d features the work is 4 d c² operations, while 2 c d items arrive. Where a mask hides half of a
    block, twice as many tokens are needed: in causal attention for each rank's own block, and with `Zigzag` for every
    block. Backward has more work per byte, but waits at the end for the last derivatives. The paper's least text of
    six such blocks per device counts the memory it keeps: queries, keys and values in use and in transit, and outputs.

    Args:
        flops_per_s, bytes_per_s: F, of a device; B, of the link to it.

    Raises:
        ArgumentError: the link sends nothing.

    Source: Liu, Zaharia, Abbeel 2023, arXiv 2310.01889, section 3 and table 2.
    """
    require_more("bytes_per_s", bytes_per_s, 0)
    return itemsize / 2 * flops_per_s / bytes_per_s
