"""Training: gradients of parts of a batch, their mean, their norm, and weights that must be the same everywhere."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from simdist.arrays import Array, partition
from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import bounded, busiest_bytes, carried, compare, most_collectives, on_ranks
from simdist.puzzles.trial import trial
from simdist.puzzles.verdict import Finding

__all__: list[str] = []

RANKS = (1, 2, 3, 4)


@judges(
    14,
    "the mean of means",
    """
Each rank knows the *mean* gradient over its own examples, and how many examples it has. These numbers differ between
ranks; a rank may have no examples, and its gradient is then all zeros. Return the mean over the examples of all ranks.
Use a single collective.

```python
from simdist.collectives import all_reduce

def mean_gradient(gradient, examples, comm):     # gradient: shape (n,), float64
    all_reduce(gradient, comm)
    return gradient / comm.size
```
""",
    "The mean of means is the overall mean only if every rank has equally many examples.",
    "Add up the sums over all ranks, and also the numbers of examples. Can one array hold both?",
)
def _mean(answer: Any) -> Iterator[Finding]:
    runs = {}
    for p in RANKS:
        sizes = [(3 * r) % 7 if r else 5 for r in range(p)]
        rows = np.random.default_rng(p).normal(size=(sum(sizes), 6))
        parts = np.split(rows, np.cumsum(sizes)[:-1])

        def program(comm: Any, parts: Any = parts) -> Any:
            own = parts[comm.rank]
            return answer(own.mean(axis=0) if len(own) else np.zeros(6), len(own), comm)

        runs[p] = trial(program, p)
        for rank, found in enumerate(runs[p].results):
            why = f"the ranks have {sizes} examples"
            compare(f"the mean on rank {rank} of {p}", found, rows.mean(axis=0), why)
    yield Finding(True, "the mean", "right", on_ranks(RANKS))
    why = "one array can carry both sums"
    yield bounded(runs, "collectives", most_collectives, lambda p: 1, why=why)
    yield carried(runs, lambda p: 8 * 6 * (p > 1))


@judges(
    15,
    "clip a sharded gradient",
    """
A gradient is sharded: each rank has a part of it, and no rank has the whole. Scale it so that the norm of the *whole*
gradient is at most `limit`; if it already is, leave the gradient unchanged. To send the gradient itself would cost far
too much: no rank may send more than 64 bytes.

```python
import numpy as np

def clip(shard, limit, comm):            # returns the scaled shard
    return shard * min(1, limit / np.linalg.norm(shard))
```
""",
    "The square of a norm is a sum of squares, and ranks can add up partial sums.",
    "all_reduce an array of one number: the sum of this shard's squares.",
)
def _clip(answer: Any) -> Iterator[Finding]:
    whole = np.random.default_rng(0).normal(size=1000)
    for limit in (1.0, 100.0):
        runs = {}
        norm = float(np.linalg.norm(whole))
        wanted = whole * min(1, limit / norm)
        for p in RANKS:
            chunks = list(partition(len(whole), p))

            def program(comm: Any, chunks: Any = chunks, limit: float = limit) -> Any:
                return answer(whole[chunks[comm.rank]].copy(), limit, comm)

            runs[p] = trial(program, p)
            for rank, found in enumerate(runs[p].results):
                why = f"the whole has the norm {norm:.3g}: "
                why += f"scale each shard by {limit / norm:.3g}" if norm > limit else "leave it"
                compare(f"the shard of rank {rank} of {p}, limit {limit:g}", found, wanted[chunks[rank]], why)
        yield Finding(True, f"the shards, limit {limit:g}", "right", on_ranks(RANKS))
        yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: 64)
        yield carried(runs, lambda p: 8 * (p > 1))


@judges(
    16,
    "find the missing sync",
    """
This is data parallel training with momentum, but two things are wrong: the ranks' weights differ from each other, and
from those of one rank that trains alone. Fix both. All ranks must begin with rank 0's weights.

```python
import numpy as np
from simdist.collectives import all_reduce, broadcast

def train(w, gradient, comm):            # w: initialized by each rank itself; gradient(w, step): of this
    velocity = np.zeros_like(w)          # rank's part of the loss; the whole loss is the sum of the parts
    for step in range(5):
        velocity = 0.9 * velocity + gradient(w, step)
        all_reduce(velocity, comm)
        w -= 0.01 * velocity
    return w
```
""",
    "Do two ranks have the same weights before the first step? Nothing has been sent yet.",
    "After the all-reduce the velocity is already the sum over all ranks. What does the next all-reduce do to it?",
    "Broadcast w from rank 0 first; all_reduce the gradient, not the velocity.",
)
def _sync(answer: Any) -> Iterator[Finding]:
    width, steps = 5, 5
    for p in RANKS:
        random = np.random.default_rng(p)
        first, a, b = random.normal(size=(p, width)), random.normal(size=(12, width)), random.normal(size=12)

        def program(comm: Any, first: Any = first, a: Any = a, b: Any = b) -> Any:
            own = partition(len(a), comm.size)[comm.rank]

            def gradient(at: Array, step: int) -> Array:
                return a[own].T @ (a[own] @ at - b[own])

            return answer(first[comm.rank].copy(), gradient, comm)

        results = trial(program, p).results
        w, velocity = first[0].copy(), np.zeros(width)
        for _ in range(steps):
            velocity = 0.9 * velocity + a.T @ (a @ w - b)
            w -= 0.01 * velocity
        for r in range(1, p):
            why = "do both begin with the same weights, and add the same to them?"
            compare(f"the weights of rank {r} of {p}, beside rank 0's", results[r], results[0], why)
        why = "sum the ranks' gradients once per step, and nothing else; do not divide the sum"
        compare(f"the weights of rank 0 of {p}, beside those of one rank alone", results[0], w, why)
    yield Finding(True, "the weights", "those of one rank alone", on_ranks(RANKS))
