"""Messages: which rank sends first, when data arrives, and which arrays must not be overwritten."""

from collections.abc import Iterator, Sequence
from math import ceil, log2
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import bounded, busiest_bytes, busiest_messages, carried, elapsed, exchanged, ones, right
from simdist.puzzles.trial import SECOND
from simdist.puzzles.verdict import Finding

__all__: list[str] = []

RANKS = (2, 3, 4, 5, 8)


@judges(
    1,
    "pass it on",
    """
Every rank sends its array to the next rank of a ring, and rank p-1 sends to rank 0: afterwards `x` on rank r holds what
rank r-1 had. A send waits until its receiver is ready. Finish in the time of one message, without a deadlock.

```python
def shift(x, comm):                      # x: an array, the same length everywhere; change it in place
    comm.send(x, dst=(comm.rank + 1) % comm.size)
    comm.recv(x, src=(comm.rank - 1) % comm.size)
```
""",
    "As it stands, all ranks send and none receives. Let the check run it, and read who waits for whom.",
    "If even ranks send first and odd ranks receive first, there is no deadlock, but it takes the time of two or three "
    "messages. Which call of the communicator sends and receives at the same time?",
    "comm.sendrecv(x, dst, y, src), with a second array for the incoming data.",
)
def _shift(answer: Any) -> Iterator[Finding]:
    n = SECOND // 8

    def case(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
        return [np.full(n, r) for r in range(p)], [np.full(n, (r - 1) % p) for r in range(p)]

    runs = exchanged(answer, RANKS, case, why="it should be the previous rank's")
    yield from right(runs, "what each rank holds")
    yield bounded(runs, "time", elapsed, lambda p: 1.001, "s", "which rank waits for which before its message starts?")
    yield carried(runs, lambda p: 8 * n)


@judges(
    2,
    "broadcast in few steps",
    """
Rank 0 has an array that all others need: a *broadcast*. It can send to only one rank at a time, so if it sends to all
others itself, as below, that takes the time of p-1 messages. Finish in the time of ceil(lg p) messages, where lg is the
logarithm to base 2.

```python
def tell(x, comm):                       # in place; x is right on rank 0 only
    if comm.rank == 0:
        for other in range(1, comm.size):
            comm.send(x, dst=other)
    else:
        comm.recv(x, src=0)
```
""",
    "A rank that has the array can send it on. How many have it after one message, after two, after three?",
    "In round k, the ranks below 2**k have it, and rank r sends it to rank r + 2**k, if there is one.",
)
def _tell(answer: Any) -> Iterator[Finding]:
    n = SECOND // 8
    runs = exchanged(answer, RANKS, lambda p: ([np.full(n, 7 if r == 0 else 0) for r in range(p)], [np.full(n, 7)] * p))
    yield from right(runs, "what each rank holds")
    why = "which ranks have it already, but are idle?"
    yield bounded(runs, "time", elapsed, lambda p: 1.001 * ceil(log2(p)), "s", why)
    yield carried(runs, lambda p: 8 * n, first=1)


@judges(
    3,
    "which chunk?",
    """
This ring all-reduce has one mistake. Find it by its steps: `collective_steps(watched("all_reduce", broken, 4))` draws
them, after `from simdist.collectives.watch import watched` and `from simdist.plots import collective_steps`.

```python
import numpy as np
from simdist.arrays import partition

def broken(x, comm):                     # in place: the sum over all ranks
    p, r = comm.size, comm.rank
    after, before = (r + 1) % p, (r - 1) % p
    chunk = partition(len(x), p)
    incoming = np.empty_like(x)
    for k in range(1, p):
        give, take = chunk[(r - k) % p], chunk[(r - k - 1) % p]
        comm.sendrecv(x[give], after, incoming[take], before)
        x[take] += incoming[take]
    for k in range(p - 1):
        give, take = chunk[(r - k - 1) % p], chunk[(r - k - 2) % p]
        comm.sendrecv(x[give], after, x[take], before)
```
""",
    "The first loop is right. After it, rank r holds one complete chunk. Which one?",
    "It holds chunk r. Which chunk does the second loop send first?",
)
def _chunk(answer: Any) -> Iterator[Finding]:
    n = 23
    runs = exchanged(
        answer, RANKS, lambda p: ([np.full(n, 10**r) for r in range(p)], [np.full(n, ones(p))] * p), sums=True
    )
    yield from right(runs, "the sum")
    yield bounded(runs, "messages that a rank sends", busiest_messages, lambda p: 2 * (p - 1))
    why = "a message of the ring is one chunk"
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 2 * (p - 1) * 8 * ceil(n / p), why=why)
    yield carried(runs, lambda p: 8 * n)


@judges(
    4,
    "find the missing wait",
    """
Each rank sends three rows to the next rank, and prepares a row while the previous one is in flight. But the rows arrive
wrong. Fix this. A rank must still prepare the next row (`comm.compute`) while one is in flight, so that all three take
at most 4.2 s instead of 6.

```python
import numpy as np

def rows(x, comm):                       # returns a new array of three rows: those of the previous rank
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    y, row, requests = np.empty_like(x), np.empty_like(x[0]), []
    for i in range(3):
        comm.compute(seconds=1.0)        # preparing takes a second, and so does sending
        row[:] = x[i]
        requests += [comm.isend(row, after), comm.irecv(y[i], before)]
    for request in requests:
        request.wait()
    return y
```
""",
    "`isend` returns at once. What does its docstring say you must not do with the array, and until when?",
    "`row` is overwritten while it may still be on its way. Wait in the right place, or use more than one array.",
)
def _wait(answer: Any) -> Iterator[Finding]:
    n = SECOND // 8

    def case(p: int) -> tuple[Sequence[Array], Sequence[Array]]:
        rows = [np.repeat([[10 * r], [10 * r + 1], [10 * r + 2]], n, axis=1) for r in range(p)]
        return rows, [rows[r - 1] for r in range(p)]

    why = "the tens say whose row it is, the units which: was a row overwritten before it was sent?"
    runs = exchanged(answer, (2, 3, 4), case, returns=True, why=why)
    yield from right(runs, "the rows")
    yield bounded(runs, "time", elapsed, lambda p: 4.2, "s", "is a row prepared only after the previous one arrives?")
    worked = min(rank.computing_s for run in runs.values() for rank in run.trace.statistics())
    yield Finding(worked > 2.999, "seconds spent preparing", f"{worked:g}", "3, one for each row")
    yield carried(runs, lambda p: 3 * 8 * n)
