"""Exchanging: each rank has something else for each other one."""

from collections.abc import Iterator, Sequence
from math import ceil, log2
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.exchange import bounded, busiest_bytes, busiest_messages, carried, exchanged, right
from simdist.puzzles.puzzle import judges
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
    """An all-to-all: p parcels on each rank."""
    whole = np.arange(p * p * _BLOCK).reshape(p, p, _BLOCK)
    return list(whole), list(whole.transpose(1, 0, 2))


@judges(
    12,
    "turn a matrix",
    """
A square matrix is spread over the ranks by rows, as many on each. Transpose it: rank r is to end with its share of the
rows of the transpose. Send each rank what it needs, and nothing else: p-1 messages of a p-th of your rows.

```python
def transpose(rows, comm):               # rows: shape (n / p, n); returns the same shape
    ...
```
""",
    "Your columns r n/p to (r+1) n/p are what rank r needs of your rows.",
    "Messages must be contiguous: np.ascontiguousarray(block.T). In step k send to rank r + k, receive from rank r - "
    "k.",
)
def _transpose(answer: Any) -> Iterator[Finding]:
    runs = exchanged(answer, RANKS, _matrix, returns=True)
    yield from right(runs, "the transpose")
    yield bounded(runs, "messages of a rank", busiest_messages, lambda p: p - 1)
    why = "a block that stays on its rank needs no message"
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 8 * _BLOCK**2 * (p - 1), why=why)
    yield carried(runs, lambda p: 8 * _BLOCK**2 * (p - 1))


@judges(
    13,
    "parcels for everybody, in few messages",
    """
An *all-to-all*: `x[j]` is rank r's parcel for rank j. Parcels are small and messages dear: let each rank send and
receive no more than ceil(lg p) messages, on any number of ranks. A parcel may travel by way of others.

```python
def deliver(x, comm):                    # x: shape (p, b); returns y of that shape: y[i] came from rank i
    ...
```
""",
    "A parcel has to travel j - r places round the ring. Write this number in binary.",
    "In round k every rank sends on, 2**k places, all parcels that it holds whose distance has bit k set, in one "
    "message.",
    "Begin with parcels ordered by distance: np.roll(x, -r, axis=0). After all rounds the parcel at place d has come "
    "from rank r - d.",
)
def _deliver(answer: Any) -> Iterator[Finding]:
    runs = exchanged(answer, RANKS, _parcels, returns=True)
    yield from right(runs, "the parcels")
    yield bounded(runs, "messages of a rank", busiest_messages, lambda p: ceil(log2(p)))
    yield carried(runs, lambda p: 8 * _BLOCK * (p - 1))
