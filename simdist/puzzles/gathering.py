"""Gathering: from a chunk on each rank to all chunks on all of them."""

from collections.abc import Iterator, Sequence
from math import ceil, log2
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import bounded, busiest_bytes, busiest_messages, carried, elapsed, exchanged, right
from simdist.puzzles.trial import SECOND
from simdist.puzzles.verdict import Finding

__all__: list[str] = []

RANKS = (2, 3, 4, 5, 7, 8)
_ITEMS = 40
_ORDER = "the chunk of rank r begins with 1000 r: is one missing, or in another's place?"


def _chunks(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
    """The case of an all-gather: each rank has a chunk."""
    given = [np.arange(_ITEMS) + 1000 * r for r in range(p)]
    return given, [np.concatenate(given)] * p


@judges(
    5,
    "all-gather between neighbours",
    """
An *all-gather*: each rank has a chunk, and every rank must end with all chunks, in the order of the ranks. A rank may
send p-1 messages and receive p-1, all of them to and from its two neighbours on the ring.

```python
def gather_all(chunk, comm):             # returns a new array: the chunks of ranks 0, 1, … one after the other
    ...
```
""",
    "The chunk that you have just received is one that your next neighbour does not have yet.",
    "In step k send the chunk of rank r - k to the next rank, and receive that of rank r - k - 1 (all modulo p).",
)
def _ring(answer: Any) -> Iterator[Finding]:
    runs = exchanged(answer, RANKS, _chunks, returns=True, why=_ORDER)
    yield from right(runs, "the chunks")
    yield bounded(runs, "messages of a rank", busiest_messages, lambda p: p - 1)
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 8 * _ITEMS * (p - 1))
    far = {
        p: [(s.rank, s.peer) for s in run.trace.sends() if (s.rank - s.peer) % p not in (1, p - 1)]
        for p, run in runs.items()
    }
    strangers = next(iter(pairs[0] for pairs in far.values() if pairs), None)
    found = "neighbours" if strangers is None else f"rank {strangers[0]} to rank {strangers[1]}"
    yield Finding(strangers is None, "messages go to", found, "the two neighbours on the ring")
    yield carried(runs, lambda p: 8 * _ITEMS * (p - 1))


@judges(
    6,
    "all-gather in a few messages",
    """
An all-gather again, but now any two ranks may exchange messages. For any p, each rank may send and receive ceil(lg p)
messages, and no more bytes than round the ring.

```python
def gather_all(chunk, comm):             # returns a new array: the chunks of ranks 0, 1, … one after the other
    ...
```
""",
    "Send all chunks that you have, not one at a time. How many do you have after k messages?",
    "Collect the chunks in the order r, r+1, r+2, … modulo p: after k messages you have the first 2**k. Which rank has "
    "your next 2**k chunks as its first ones?",
    "In round k send your first min(2**k, p - 2**k) chunks to rank r - 2**k, and receive as many from r + 2**k. At "
    "the end rotate the array so that chunk 0 comes first (np.roll). This is Bruck's algorithm.",
)
def _bruck(answer: Any) -> Iterator[Finding]:
    runs = exchanged(answer, RANKS, _chunks, returns=True, why=_ORDER)
    yield from right(runs, "the chunks")
    why = "a message may hold several chunks"
    yield bounded(runs, "messages of a rank", busiest_messages, lambda p: ceil(log2(p)), why=why)
    why = "in the last round the receiver lacks only some of your chunks"
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 8 * _ITEMS * (p - 1), why=why)
    yield carried(runs, lambda p: 8 * _ITEMS * (p - 1))


@judges(
    7,
    "a long broadcast, in pieces",
    """
Rank 0 broadcasts a long array to all 8 ranks. Sent whole, it takes one second from rank to rank, so a tree takes 3 s.
Finish within 1.9 s.

```python
def tell(x, comm):                       # in place; x is right on rank 0 only
    ...
```
""",
    "A rank that waits for the end of the array before it passes on the beginning wastes its outgoing port.",
    "Either cut the array into pieces that follow each other down a chain of ranks (how many pieces?), or give each "
    "rank an eighth of it and then all-gather the eighths.",
    "A chain of p ranks and m pieces takes (p - 2 + m) / m seconds. With isend, one piece can go out while the next "
    "comes in.",
)
def _long(answer: Any) -> Iterator[Finding]:
    n = SECOND // 8
    told = np.arange(n)
    runs = exchanged(answer, (8,), lambda p: ([told * (r == 0) for r in range(p)], [told] * p))
    yield from right(runs, "what each rank holds")
    yield bounded(runs, "time", elapsed, lambda p: 1.9, "s", "does a rank pass a piece on while the next comes in?")
    yield carried(runs, lambda p: 8 * n, first=1)
