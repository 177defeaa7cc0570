"""Flash: causal attention a tile of queries and keys at a time, which never holds all scores, and keeps none.

    n, h, t    samples, heads, tokens           e, w    features of a query and of a key; of a value
    lse        log Σ exp s of each query, (n, h, t): all that is kept of the scores

             queries
        keys  0   1   2   3
           0  /   #   #   #        for each block of keys: first the queries of the same tokens, on the diagonal,
           1      /   #   #        where a mask hides later keys, then all later queries
           2          /   #
           3              /        the state between blocks is a running softmax: see `blockwise`

`heads` writes t * t probabilities per head, and keeps them for backward. Here a tile's scores exist only in the cache,
and backward recomputes them: one more product, for memory that grows only with t. In memory it accesses only its
inputs and outputs.

Source: Dao, Fu, Ermon, Rudra, Ré 2022, FlashAttention, arXiv 2205.14135, algorithms 2 and 4, theorem 1; Dao 2023,
FlashAttention-2, arXiv 2307.08691, section 3.1 (lse alone kept).
"""

from collections.abc import Iterator
from math import ceil

import numpy as np

from simdist.arrays import Array, in_one_pass
from simdist.arrays.by_shape import by_shape
from simdist.arrays.fused import fused
from simdist.errors import as_declared, require_least, require_more
from simdist.nn.functional.blockwise import Keep, attend, attend_backward, finish, initial_state, sums_of
from simdist.nn.functional.groups import join, split_heads, split_shared
from simdist.nn.functional.heads import TILE, num_pairs

__all__ = ["attention_accesses", "flash_attention", "flash_attention_backward", "num_flash_pairs"]

_KEYS = 8 * TILE  # in a block at least
_BLOCKS = 16  # at most


def num_flash_pairs(tokens: int) -> int:
    """The number of scores that are computed for a head: half of tokens², and half of the diagonal's tiles."""
    return num_pairs(tokens, TILE)


@as_declared
def attention_accesses(
    tokens: int, features: int, on_chip_elements: float | None = None, *, backward: bool = False
) -> int:
    """The elements that a head's attention reads and writes in memory, without a mask and without dropout.

                    forward                     backward
        standard    4N² + 4Nd                   7N² + 8Nd                   scores and probabilities pass through memory
        flash       3Nd + 2N + T (3Nd + 4N)     7Nd + T (5Nd + 2N)          T = ⌈N/B⌉, B = ⌈M/(4d)⌉

    FlashAttention reads keys and values once, in T blocks of B that fit on the chip, and for each of them all queries,
    outputs and statistics: about 12 N²d²/M. The standard algorithm accesses M/(3d²) times as much.

        attention_accesses(1024, 64) / attention_accesses(1024, 64, 2**16)        # 4.4

    Args:
        tokens, features: N and d.
        on_chip_elements: M, that fit on the chip; None for the standard algorithm.

    Raises:
        ArgumentError: features is less than 1, or on_chip_elements not above 0.

    Source: Dao, Fu, Ermon, Rudra, Ré 2022, arXiv 2205.14135, algorithms 0, 1, 3 and 4, theorems 2 and 5.
    """
    require_least("features", features, 1)
    vector = tokens * features
    if on_chip_elements is None:
        return 7 * tokens**2 + 8 * vector if backward else 4 * tokens**2 + 4 * vector
    require_more("on_chip_elements", on_chip_elements, 0)
    blocks = -(-tokens // ceil(on_chip_elements / (4 * features)))
    if backward:
        return 7 * vector + blocks * (5 * vector + 2 * tokens)
    return 3 * vector + 2 * tokens + blocks * (3 * vector + 4 * tokens)


@fused("attention")
@by_shape
def flash_attention(
    qkv: Array,
    heads: int,
    keep: Keep | None = None,
    share: float = 0.0,
    groups: int | None = None,
    value_width: int | None = None,
) -> tuple[Array, Array]:
    """Returns y = softmax(q kᵀ / √e + mask) v for each head, and lse.

    Args:
        qkv, heads, share, groups, value_width: as for `attention`.
        keep: which probabilities dropout keeps, a tile at a time.

    Cost: a product of 2 n h e `num_flash_pairs(t)` operations, and one of 2 n h w as often; qkv is read, y and lse are
    written.
    """
    q, k, v = split_shared(qkv, heads, groups or heads, value_width)
    state = initial_state(q, v.shape[-1])
    with in_one_pass(qkv.nbytes + state.y.size * qkv.itemsize + state.top.nbytes):
        for queries, keys in _block_pairs(qkv.shape[1]):
            block = q[:, :, queries], k[:, :, keys], v[:, :, keys]
            attend(*block, state.of(queries), queries == keys, _of_block(keep, queries, keys), share)
        return finish(state, qkv)


@fused("attention")
@by_shape
def flash_attention_backward(
    qkv: Array, y: Array, lse: Array, dy: Array, keep: Keep | None = None, share: float = 0.0, *, groups: int
) -> Array:
    """Returns dqkv; qkv, y, lse, keep, share and groups, without a default, are as for `flash_attention`.

    Cost: three products of 2 n h e `num_flash_pairs(t)` operations each, and two of 2 n h w as often; qkv, y, dy and
    lse are read, dqkv is written.
    """
    heads, dqkv = lse.shape[1], np.empty_like(qkv)
    q, k, v = split_shared(qkv, heads, groups, y.shape[-1] // heads)
    dys = split_heads(dy, heads)
    dq, dk, dv = (np.zeros_like(x, dtype=lse.dtype) for x in (q, k, v))
    with in_one_pass(2 * qkv.nbytes + 2 * y.nbytes + lse.nbytes):
        sums = sums_of(y, dy, heads)
        for queries, keys in _block_pairs(qkv.shape[1]):
            of_queries = tuple(x[:, :, queries] for x in (q, dq, dys, sums, lse))
            of_keys = tuple(x[:, :, keys] for x in (k, dk, v, dv))
            attend_backward(of_queries, of_keys, queries == keys, _of_block(keep, queries, keys), share)
        join(dqkv, dq, dk, dv)
    return dqkv


def _block_pairs(t: int) -> Iterator[tuple[slice, slice]]:
    """Queries and a block of keys that they see: first those of the same tokens (causal), then all later ones."""
    size = max(_KEYS, -(-t // (_BLOCKS * TILE)) * TILE)
    for start in range(0, t, size):
        own = slice(start, min(start + size, t))
        yield own, own
        if own.stop < t:
            yield slice(own.stop, t), own


def _of_block(keep: Keep | None, queries: slice, keys: slice) -> Keep | None:
    """The masks of these probabilities, from those of the whole text."""
    if keep is None:
        return None
    return lambda samples, k, q: keep(samples, _after(k, keys.start), _after(q, queries.start))


def _after(run: slice, start: int) -> slice:
    return slice(start + run.start, start + run.stop)
