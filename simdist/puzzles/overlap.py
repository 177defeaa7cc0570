"""Overlap: gradients are sent in buckets while the backward pass goes on."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from simdist.puzzles.puzzle import judges
from simdist.puzzles.trial import Failed, call
from simdist.puzzles.verdict import Finding, at_most
from simdist.words import counted

__all__: list[str] = []

_PROFILES: dict[str, tuple[list[float], list[float], float, float]] = {
    "24 equal layers": ([1.0] * 24, [8.0] * 24, 0.6, 0.1),
    "large layers last": ([0.5] * 12 + [2.0] * 4, [1.0] * 12 + [20.0] * 4, 1.0, 0.1),
    "a slow network": ([1.0] * 16, [8.0] * 16, 3.0, 0.2),
}
"""name -> seconds of each layer's backward, megabytes of its gradient, alpha, beta per megabyte."""


@judges(
    17,
    "buckets",
    """
Backward computes the layers' gradients one after another: layer 0 first, which takes `seconds[0]`, and so on. A
*bucket* of neighbouring layers is all-reduced as soon as all its gradients are ready and the previous bucket is done;
that takes `alpha + beta * megabytes`. Choose the buckets so that the last one finishes within 2% of the best possible
time.

```python
def buckets(seconds, megabytes, alpha, beta):    # returns a list of lists: [[0, 1, 2], [3, 4], …]
    return [[i] for i in range(len(seconds))]
```
""",
    "Small buckets pay alpha too often; a large one is ready too late. What should the last bucket be like?",
    "What is the least time to finish layers 0 to i, if the last bucket is j to i? It depends only on the least "
    "times for fewer layers.",
    "best[i] = min over j of max(best[j], ready[i]) + alpha + beta * sum(megabytes[j:i]): a table of L numbers.",
)
def _buckets(answer: Any) -> Iterator[Finding]:
    for name, (seconds, megabytes, alpha, beta) in _PROFILES.items():
        found = call(answer, list(seconds), list(megabytes), alpha, beta)
        cuts = _cuts(found, len(seconds))
        ready = [sum(seconds[: i + 1]) for i in range(len(seconds))]

        def through(
            since: float, first: int, end: int, ready: Any = ready, of: Any = (megabytes, alpha, beta)
        ) -> float:
            sizes, alpha, beta = of
            return float(max(since, ready[end - 1]) + alpha + beta * sum(sizes[first:end]))

        taken = 0.0
        for first, end in pairwise(cuts):
            taken = through(taken, first, end)
        best = [0.0]
        for end in range(1, len(seconds) + 1):
            best.append(min(through(best[first], first, end) for first in range(end)))
        whole = through(0.0, 0, len(seconds))
        told = f"{counted(len(cuts) - 1, 'bucket')}; a single one for all layers takes {whole:.4g} s"
        yield at_most(f"{name}, time", taken, 1.02 * best[-1], "s", told)


def _cuts(found: Any, layers: int) -> Sequence[int]:
    """Where each bucket begins, and where the last ends."""
    try:
        buckets = [[int(i) for i in bucket] for bucket in found]
    except TypeError:
        raise Failed(Finding(False, "the buckets", repr(found)[:80], "a list of lists of layers")) from None
    lengths = list(map(len, buckets))
    if [i for bucket in buckets for i in bucket] != list(range(layers)) or 0 in lengths:
        raise Failed(Finding(False, "the buckets", str(buckets)[:80], f"layers 0 to {layers - 1}, once each, in order"))
    return [0, *(sum(lengths[: i + 1]) for i in range(len(lengths)))]
