"""Reducing: sums over all ranks, for long arrays, for short ones, and between nodes."""

from collections.abc import Iterator, Sequence
from math import log2
from typing import Any

import numpy as np

from simdist.arrays import Array, partition
from simdist.cluster import Link
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import (
    bounded,
    busiest_bytes,
    busiest_messages,
    carried,
    elapsed,
    exchanged,
    ones,
    right,
)
from simdist.puzzles.trial import PLAIN, SECOND, STEPS
from simdist.puzzles.verdict import Finding

__all__: list[str] = []

RANKS = (1, 2, 3, 4, 5, 8)
_ITEMS = 840  # whole chunks for all of RANKS
_UNEVEN = 23  # whole chunks only on one rank
_PLACED = "all items of this sum differ: is a chunk in another's place, or are items left out, as with n // p?"


def _powers(items: int) -> Any:
    """The case of an all-reduce: rank r contributes 10**r."""

    def case(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
        return [np.full(items, 10**r) for r in range(p)], [np.full(items, ones(p))] * p

    return case


def _places(items: int) -> Any:
    """The case of an all-reduce whose sum differs in every item, so that a wrong place shows."""

    def case(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
        given = [np.arange(items) + r for r in range(p)]
        return given, [sum(given)] * p

    return case


@judges(
    8,
    "every rank sums a part",
    """
A *reduce-scatter*: each rank has an array of n items, and rank r must end with chunk r of the sum of all arrays. No
rank may send more than n(p-1)/p items.

```python
from simdist.arrays import partition

def sum_a_part(x, comm):                 # returns a new array: partition(len(x), p)[r] of the sum
    ...
```
""",
    "Each rank sends every other rank that rank's chunk, and keeps its own.",
    "In step k send rank r + k its chunk of your x, and receive your chunk of its x from rank r - k. Each message "
    "has n/p items.",
)
def _reduce_scatter(answer: Any) -> Iterator[Finding]:
    def case(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
        given = [10**r * (1 + np.arange(_ITEMS) % 3) for r in range(p)]
        return given, [sum(given)[chunk] for chunk in partition(_ITEMS, p)]

    def uneven(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
        given, sums = _places(_UNEVEN)(p)
        return given, [sums[0][chunk] for chunk in partition(_UNEVEN, p)]

    why = "item i is (1 + i % 3) times 10**r on rank r: is it from another chunk, or is a rank's digit wrong?"
    runs = exchanged(answer, RANKS, case, returns=True, why=why)
    exchanged(answer, RANKS, uneven, returns=True, why=_PLACED, of=f", of {_UNEVEN} items")
    yield from right(runs, "the sums")
    why = "a rank needs only its own chunk of another's array"
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 8 * _ITEMS * (p - 1) / p, why=why)
    yield carried(runs, lambda p: 8 * _ITEMS * (p - 1) / p)


@judges(
    9,
    "beat the star",
    """
An *all-reduce*: all ranks must end with the sum of their arrays. If one rank adds them all up and sends the sum to each
of the others, it sends (p-1)n items. Let no rank send more than 2n(p-1)/p items. On 8 ranks, take at most 1.76 times as
long as one rank needs to send n items.

```python
def sum_all(x, comm):                    # in place
    ...
```
""",
    "Let each rank sum a part, as in the previous puzzle; then bring all parts to all ranks.",
    "Do a reduce-scatter, then an all-gather. In each, a rank sends n(p-1)/p items, in p-1 steps of n/p.",
)
def _all_reduce(answer: Any) -> Iterator[Finding]:
    n = 8 * _ITEMS
    runs = exchanged(answer, RANKS, _powers(_ITEMS), sums=True)
    exchanged(answer, RANKS, _places(_UNEVEN), why=_PLACED, of=f", of {_UNEVEN} items")
    yield from right(runs, "the sum")
    why = "does a rank send whole arrays?"
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 2 * n * (p - 1) / p, why=why)
    longest = {8: exchanged(answer, (8,), _powers(SECOND // 8), sums=True)[8]}
    why = "which ranks wait, and for whom? Messages to one rank queue at its port while others idle"
    yield bounded(longest, "time for 1 MiB", elapsed, lambda p: 1.76, "s", why)
    yield carried(runs, lambda p: n * (p > 1))


@judges(
    10,
    "a short sum",
    """
An all-reduce of only a few items: bytes hardly matter, but each message takes a second. On p = 2**k ranks, finish in k
seconds, and let each rank send and receive k messages.

```python
def sum_all(x, comm):                    # in place; comm.size is a power of two
    ...
```
""",
    "A tree to rank 0 and back takes 2k seconds, and half of the ranks are idle in all but 2. What if pairs exchange?",
    "In round k exchange all of x with rank r ^ 2**k, and add. Then x holds the sum over 2**(k+1) ranks.",
)
def _short(answer: Any) -> Iterator[Finding]:
    runs = exchanged(answer, (1, 2, 4, 8, 16), _powers(5), sums=True, cluster=STEPS)
    yield from right(runs, "the sum")
    yield bounded(runs, "time", elapsed, lambda p: 1.001 * log2(p), "s", "which ranks idle while others exchange?")
    yield bounded(runs, "messages of a rank", busiest_messages, log2)
    yield carried(runs, lambda p: 40 * (p > 1))


_PER_NODE = 4
_TWO_NODES = PLAIN.with_(name="two nodes", inside=Link(1e-9, 16 * SECOND), devices_per_node=_PER_NODE)


@judges(
    11,
    "a slow link between two nodes",
    """
An all-reduce of n bytes on eight ranks: ranks 0 to 3 are on one node, and 4 to 7 on another (`comm.nodes` says which
rank is where). All ranks of a node share one network card, which takes a second to send n bytes to the other node;
inside a node a message takes a sixteenth of that. Let only n bytes cross in each direction, and finish in 1.2 s.

```python
def sum_all(x, comm):                    # in place, on these 8 ranks
    ...
```
""",
    "Before anything crosses, sum inside each node.",
    "If a single rank of each node sends across, it has to collect all n bytes first and to spread them afterwards. It "
    "is faster if each of the four ranks has a quarter of its node's sum, and sends that across.",
    "Reduce-scatter inside each node; exchange quarters with the rank of the other node that has the same quarter, and "
    "add; all-gather inside.",
)
def _nodes(answer: Any) -> Iterator[Finding]:
    n = SECOND
    runs = exchanged(answer, (2 * _PER_NODE,), _powers(n // 8), sums=True, cluster=_TWO_NODES)
    exchanged(answer, (2 * _PER_NODE,), _places(6 * _PER_NODE), cluster=_TWO_NODES, why=_PLACED)
    yield from right(runs, "the sum")

    def crossed(run: Any) -> int:
        return int(sum(s.bytes for s in run.trace.sends() if s.rank // _PER_NODE != s.peer // _PER_NODE))

    yield bounded(runs, "bytes that cross", crossed, lambda p: 2 * n, why="sum inside the node before anything crosses")
    yield bounded(runs, "time", elapsed, lambda p: 1.2, "s", "while some ranks send across, are the others idle?")
    yield carried(runs, lambda p: n)
