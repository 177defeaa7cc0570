"""Overlap: gradients are sent in buckets while the backward pass goes on."""

import copy
import reprlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from simdist.puzzles.puzzle import judges
from simdist.puzzles.trial import Failed, call
from simdist.puzzles.verdict import Finding, at_most
from simdist.words import counted

__all__: list[str] = []


class _Profile(NamedTuple):
    """Seconds of each layer's backward, megabytes of its gradient, and alpha and beta, per megabyte, of the network."""

    seconds: list[float]
    megabytes: list[float]
    alpha: float
    beta: float

    def end_s(self, since_s: float, first: int, end: int) -> float:
        """When the bucket of layers first … end-1 is done, if the one before it is at since_s."""
        begin_s = max(since_s, sum(self.seconds[:end]))
        return begin_s + self.alpha + self.beta * sum(self.megabytes[first:end])


_PROFILES = {
    "24 equal layers": _Profile([1.0] * 24, [8.0] * 24, 0.6, 0.1),
    "large layers last": _Profile([0.5] * 12 + [2.0] * 4, [1.0] * 12 + [20.0] * 4, 1.0, 0.1),
    "a slow network": _Profile([1.0] * 16, [8.0] * 16, 3.0, 0.2),
}


@judges(
    17,
    "buckets",
    """
Backward computes the gradients of one layer after another. They are numbered in this order: layer 0 comes first and
takes `seconds[0]`. A *bucket* of neighbouring layers is all-reduced as soon as all its gradients are ready and the
previous bucket is done. That takes `alpha + beta * megabytes`, with the megabytes of the whole bucket. Choose the
buckets so that the last one is done within 2% of the best possible time.

```python
def buckets(seconds, megabytes, alpha, beta):    # returns a list of lists: [[0, 1, 2], [3, 4], …]
    return [[i] for i in range(len(seconds))]
```
""",
    "With small buckets you pay alpha too often; a large one is ready too late. What should the last bucket be like?",
    "Suppose that you know the least time for every smaller number of layers. What is the least time for i layers, if "
    "the last bucket begins with layer j?",
    "For the first i layers, best[i] = min over j of max(best[j], ready[i]) + alpha + beta * sum(megabytes[j:i]).",
)
def _buckets(answer: Any) -> Iterator[Finding]:
    for name, profile in _PROFILES.items():
        layers = len(profile.seconds)
        cuts = _cuts(call(answer, *copy.deepcopy(profile)), layers)
        taken = 0.0
        for first, end in pairwise(cuts):
            taken = profile.end_s(taken, first, end)
        best = [0.0]
        for end in range(1, layers + 1):
            best.append(min(profile.end_s(best[first], first, end) for first in range(end)))
        whole = profile.end_s(0.0, 0, layers)
        told = f"{counted(len(cuts) - 1, 'bucket')}; a single one for all layers takes {whole:.4g} s"
        yield at_most(f"{name}, time", taken, 1.02 * best[-1], "s", told)


def _cuts(found: Any, layers: int) -> Sequence[int]:
    """Where each bucket begins, and where the last ends."""
    try:
        buckets = [[int(i) for i in bucket] for bucket in found]
    except TypeError:
        raise Failed("the buckets", reprlib.repr(found), "a list of lists of layers") from None
    lengths = list(map(len, buckets))
    if [i for bucket in buckets for i in bucket] != list(range(layers)) or 0 in lengths:
        raise Failed("the buckets", str(buckets)[:80], f"layers 0 to {layers - 1}, once each, in order")
    return [0, *(sum(lengths[: i + 1]) for i in range(len(lengths)))]
