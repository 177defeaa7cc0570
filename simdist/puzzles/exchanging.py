"""Exchanging: each rank has a different block for each other rank."""

from collections.abc import Iterator, Sequence
from math import ceil, log2
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import bounded, busiest_bytes, busiest_messages, carried, exchanged, right
from simdist.puzzles.verdict import Finding

__all__: list[str] = []

RANKS = (1, 2, 3, 4, 5, 8)
_BLOCK = 3


def _matrix(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
    """A square matrix by rows, and its transpose by rows."""
    whole = np.arange((_BLOCK * p) ** 2).reshape(_BLOCK * p, _BLOCK * p)
    rows = [np.ascontiguousarray(m) for m in np.split(whole, p)]
    return rows, [np.ascontiguousarray(m) for m in np.split(whole.T, p)]


def _parcels(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
    """An all-to-all: p blocks on each rank."""
    whole = np.arange(p * p * _BLOCK).reshape(p, p, _BLOCK)
    return list(whole), list(whole.transpose(1, 0, 2))


@judges(
    12,
    "transpose a matrix",
    """
The rows of a square matrix are spread over the ranks, equally many on each. Transpose the matrix: rank r must end with
its share of the rows of the transpose. Send each rank only what it needs: p-1 messages, each with 1/p of your numbers.

```python
def transpose(rows, comm):               # rows: shape (n / p, n); returns the same shape
    ...
```
""",
    "Rank r needs the columns r n/p to (r+1) n/p of your rows.",
    "A message must be a contiguous array: np.ascontiguousarray(block.T). In step k, send to rank r + k and receive "
    "from rank r - k.",
)
def _transpose(answer: Any) -> Iterator[Finding]:
    why = "the matrix is 0, 1, 2, … row by row: is a block in another's place, or not transposed itself?"
    runs = exchanged(answer, RANKS, _matrix, returns=True, why=why)
    yield from right(runs, "the transpose")
    yield bounded(runs, "messages of a rank", busiest_messages, lambda p: p - 1)
    why = "a block that stays on its rank needs no message"
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 8 * _BLOCK**2 * (p - 1), why=why)
    yield carried(runs, lambda p: 8 * _BLOCK**2 * (p - 1))


@judges(
    13,
    "all-to-all in few messages",
    """
An *all-to-all*: on rank r, `x[j]` is the block for rank j. The blocks are small, but each message is expensive: on any
number of ranks, let each rank send and receive at most ceil(lg p) messages. A block may travel via other ranks.

```python
def deliver(x, comm):                    # x: shape (p, b); returns y of that shape: y[i] came from rank i
    ...
```
""",
    "A block has to travel j - r places round the ring. Write this number in binary.",
    "In round k, take all blocks that you hold whose distance has bit k set, and send them in one message to the rank "
    "2**k places on.",
    "Begin with the blocks in the order of their distance: np.roll(x, -r, axis=0). At the end, the block at place d "
    "has come from rank r - d.",
)
def _deliver(answer: Any) -> Iterator[Finding]:
    why = "the blocks of rank 0 are 0, 1, 2, …, those of rank 1 go on from there: is one in another's place?"
    runs = exchanged(answer, RANKS, _parcels, returns=True, why=why)
    yield from right(runs, "the blocks")
    why = "a message may hold several blocks"
    yield bounded(runs, "messages of a rank", busiest_messages, lambda p: ceil(log2(p)), why=why)
    yield carried(runs, lambda p: 8 * _BLOCK * (p - 1))
