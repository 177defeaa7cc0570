"""Memory: keep a share of the optimizer state, some of the activations, a part of a layer."""

import reprlib
from collections.abc import Iterator
from math import ceil, isqrt
from typing import Any

import numpy as np

from simdist.puzzles.puzzle import judges
from simdist.puzzles.runs import bounded, busiest_bytes, compare, on_ranks, pair
from simdist.puzzles.trial import Failed, call, trial
from simdist.puzzles.verdict import Finding, at_most

__all__: list[str] = []

RANKS = (1, 2, 3, 4)


@judges(
    18,
    "shard the optimizer state",
    """
Training with momentum keeps a velocity for each of n weights. Below, every rank keeps the same n velocities. Keep at
most n/p of them (rounded up) on a rank, and send no more than plain data parallelism does: 2n(p-1)/p numbers in each
step. This is ZeRO's first stage.

```python
import numpy as np
from simdist.arrays import partition
from simdist.collectives import all_gather, all_reduce, reduce_scatter

def train(w, gradients, comm):           # gradients: this rank's, one per step, to be summed over the ranks
    velocity = np.zeros_like(w)
    for g in gradients:
        all_reduce(g, comm)
        velocity = 0.9 * velocity + g
        w -= 0.1 * velocity
    return w, velocity                   # all weights, and the part of the velocity that this rank has kept
```
""",
    "To update chunk r of the weights, rank r needs only chunk r of the summed gradient.",
    "An all-reduce is a reduce-scatter followed by an all-gather. What can you do between the two?",
    "g_r = reduce_scatter(g, comm); update v_r and w[chunk r]; w = all_gather(w[chunk r], comm).",
)
def _state(answer: Any) -> Iterator[Finding]:
    n, steps = 50, 3
    runs = {}
    for p in RANKS:
        random = np.random.default_rng(p)
        first, gradients = random.normal(size=n), random.normal(size=(p, steps, n))
        w, velocity = first.copy(), np.zeros(n)
        for g in gradients.sum(axis=0):
            velocity = 0.9 * velocity + g
            w -= 0.1 * velocity

        def program(comm: Any, first: Any = first, gradients: Any = gradients) -> Any:
            return answer(first.copy(), [g.copy() for g in gradients[comm.rank]], comm)

        runs[p] = trial(program, p)
        kept = []
        for rank, found in enumerate(runs[p].results):
            weights, part = pair(found, "weights and velocity")
            why = "each weight changes by the sum of all ranks' gradients, and each rank needs all weights"
            compare(f"the weights of rank {rank} of {p}", weights, w, why)
            kept.append(np.size(part))
        yield at_most(f"numbers of optimizer state on a rank, of {p}", max(kept), ceil(n / p))
        if sum(kept) < n:
            yield Finding(False, f"numbers of optimizer state on all {p}", f"{sum(kept)}", f"{n}, one for each weight")
    yield Finding(True, "the weights", "right", on_ranks(RANKS))
    whole = any(s.name.partition(" ")[0] == "all_reduce" for run in runs.values() for s in run.trace)
    why = "after an all_reduce no bytes are left for an all-gather of weights: each rank must update all of them itself"
    yield Finding(not whole, "gradients summed by", "all_reduce" if whole else "chunks", "each rank's own chunk", why)
    chunk = {p: 8 * ceil(n / p) for p in RANKS}
    yield bounded(runs, "bytes that a rank sends", busiest_bytes, lambda p: steps * 2 * chunk[p] * (p - 1))


@judges(
    19,
    "which activations to keep",
    """
A network has L layers, and backward needs the input of each. Forward keeps the inputs of only some layers, including
layer 0. Each of these layers begins a segment, which ends before the next one. Backward goes through the segments from
the last to the first: it recomputes the segment's other inputs, uses all of them, and frees them. Choose which inputs
to keep, so that at most 2 sqrt(L) - 1 are held at once.

```python
def keep(layers):                        # returns the layers whose inputs are kept, such as [0, 4, 8]
    return list(range(layers))
```
""",
    "With k segments of L/k layers, you hold k kept inputs and L/k - 1 recomputed ones when backward begins.",
    "k = sqrt(L). (With segments of different lengths you can do even better: while the first is recomputed, nothing "
    "else is held. For 36 layers the least is 8.)",
)
def _keep(answer: Any) -> Iterator[Finding]:
    for layers in (4, 16, 36, 100):
        found = call(answer, layers)
        try:
            kept = sorted({int(i) for i in found})
        except TypeError:
            raise Failed("the layers", reprlib.repr(found), "a list of layers") from None
        if not kept or kept[0] != 0 or kept[-1] >= layers:
            wanted = f"layers from 0 to {layers - 1}, 0 among them"
            raise Failed("the layers", str(kept)[:60], wanted)
        ends = [*kept[1:], layers]
        held = max(i + end - start for i, (start, end) in enumerate(zip(kept, ends, strict=True)))
        yield at_most(f"inputs held at once, of {layers} layers", held, 2 * isqrt(layers) - 1)


@judges(
    20,
    "split a layer p ways",
    """
A transformer's MLP computes y = relu(x A) B. Give each rank r a part of A and a part of B, so that the products
relu(x A_r) B_r of all ranks *sum* to y. Every rank has all of x, so one all-reduce is then all the communication. No
number of A or B may be on two ranks, and each rank gets 1/p of them, as nearly as whole columns and rows allow.

```python
def cut(A, B, p, r):                     # returns A_r, B_r
    return A, B
```
""",
    "relu of a sum is not the sum of relus: each rank must have whole columns of x A.",
    "Columns of A, and the matching rows of B.",
)
def _cut(answer: Any) -> Iterator[Finding]:
    random = np.random.default_rng(0)
    x, a, b = random.normal(size=(3, 8)), random.normal(size=(8, 24)), random.normal(size=(24, 8))
    for p in (1, 2, 3, 4, 5):  # 5 does not divide the columns
        parts = [call(answer, a.copy(), b.copy(), p, r) for r in range(p)]
        try:
            y = sum(np.maximum(x @ a_r, 0) @ b_r for a_r, b_r in parts)
            numbers = max(np.size(a_r) + np.size(b_r) for a_r, b_r in parts)
        except (TypeError, ValueError) as error:
            why = "x has a column for each row of A, and relu(x A_r) must have one for each row of B_r"
            raise Failed(f"relu(x A_r) B_r for p = {p}", str(error), "parts that fit", why) from None
        good = bool(np.allclose(y, np.maximum(x @ a, 0) @ b))
        off = "equal to y" if good else f"off by {np.abs(y - np.maximum(x @ a, 0) @ b).max():.3g}"
        why = f"is each of the {a.shape[1]} columns of A, and its row of B, on one rank?"
        yield Finding(good, f"the sum over all parts, p = {p}", off, "" if good else "y", why)
        yield at_most(f"numbers on a rank, p = {p}", numbers, ceil(a.shape[1] / p) * (len(a) + len(b[0])))
