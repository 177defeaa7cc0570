"""Asynchrony: which worker may continue, and which weights are averaged."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.puzzles.puzzle import judges
from simdist.puzzles.trial import Failed, call
from simdist.puzzles.verdict import Finding, at_most

__all__: list[str] = []


@judges(
    21,
    "who may continue",
    """
In training with *bounded staleness*, each worker counts the steps that it has finished; this number is its *clock*. A
worker may begin a step if the slowest worker is at most s steps behind it. With s = 0 all run in lockstep, as in
synchronous training. Which workers may begin?

```python
def may_begin(worker, clocks, s):        # clocks: of all workers, before this step
    return True
```
""",
    "With s = 0, a worker that has finished three steps waits until all others have finished three, too.",
    "Only the slowest matters: how far ahead of it is this worker now?",
)
def _may_begin(answer: Any) -> Iterator[Finding]:
    for s in (0, 1, 3):
        for clocks in product(range(s + 3), repeat=3):
            if max(clocks) - min(clocks) > s + 1:
                continue
            for worker, clock in enumerate(clocks):
                right = clock - min(clocks) <= s
                found = call(answer, worker, list(clocks), s)
                if bool(found) != right:
                    why = f"it would end its step {clock + 1 - min(clocks)} ahead of the slowest"
                    if right:
                        why = "it would wait needlessly"
                    what = f"worker {worker} of clocks {list(clocks)}, s = {s}, may begin"
                    raise Failed(what, str(found), str(right), why)
        yield Finding(True, f"all clocks of three workers, s = {s}", "right", "")


_GRAPHS = {
    "a ring of 8": [[(i - 1) % 8, (i + 1) % 8] for i in range(8)],
    "a line of 5": [[j for j in (i - 1, i + 1) if 0 <= j < 5] for i in range(5)],
    "a star of 6": [[1, 2, 3, 4, 5], [0], [0], [0], [0], [0]],
    "a lollipop": [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2, 4], [3, 5], [4]],
}


@judges(
    22,
    "weights for gossip",
    """
In each round, each worker averages its weights with those of its neighbours on a graph: x_i becomes the sum over j of
W[i, j] x_j. All workers are to converge to the mean of their initial weights. For this, W must be symmetric, without
negative entries, and zero where there is no edge, and each of its rows must sum to 1. Find such a W for any connected
graph. It must also reduce the disagreement fast enough: the verdict says what share of it a round may leave.

```python
import numpy as np

def mixing(neighbours):                  # neighbours[i]: a list of those of worker i; returns W, shape (n, n)
    n = len(neighbours)
    W = np.zeros((n, n))
    for i, others in enumerate(neighbours):
        for j in [i, *others]:
            W[i, j] = 1 / (1 + len(others))
    return W
```
""",
    "As it stands, the rows of W sum to 1. Is W symmetric where two neighbours have different numbers of neighbours?",
    "W[i, j] = 1 / (1 + max(degree i, degree j)) for an edge; the rest of each row goes on the diagonal "
    "(Metropolis-Hastings).",
)
def _mixing(answer: Any) -> Iterator[Finding]:
    for name, neighbours in _GRAPHS.items():
        n = len(neighbours)
        w = np.asarray(call(answer, [list(others) for others in neighbours]), dtype=float)
        if w.shape != (n, n):
            raise Failed(name, f"shape {w.shape}", f"shape {(n, n)}")
        edge = np.eye(n, dtype=bool)
        for i, others in enumerate(neighbours):
            edge[i, others] = True
        for good, what in (
            (bool(np.allclose(w, w.T)), "symmetric"),
            (bool(np.allclose(w.sum(axis=1), 1)), "rows that sum to 1"),
            (bool((w >= -1e-12).all()), "no negative entries"),
            (not (np.abs(w[~edge]) > 1e-12).any(), "zero where there is no edge"),
        ):
            if not good:
                with np.printoptions(precision=2):
                    raise Failed(name, f"W =\n{w}", what)
        limit = 1 - 0.9 * (1 - _slem(_reference(neighbours)))
        why = "does a worker give its neighbours enough weight, and leave some to itself?"
        yield at_most(f"{name}: share of the disagreement left after a round", _slem(w), limit, why=why)


def _slem(w: Array) -> float:
    """The second largest absolute value of an eigenvalue; the largest is 1."""
    return float(np.sort(np.abs(np.linalg.eigvalsh(w)))[-2])


def _reference(neighbours: list[list[int]]) -> Array:
    """The same weight on all edges, the largest that is safe anywhere."""
    n, most = len(neighbours), max(map(len, neighbours))
    w = np.zeros((n, n))
    for i, others in enumerate(neighbours):
        w[i, others] = 1 / (1 + most)
        w[i, i] = 1 - len(others) / (1 + most)
    return w
