"""Replicas: layers cut into stages, each on one worker, or on several that take mini-batches in turn (PipeDream).

    layers    3   3   3   3   1   1        5 workers:   3 3 3 3 on four of them,  1 1 on one: a mini-batch every 3

    T(i, j, m)   of a stage of the layers from i to j on m workers: the more of computing and of summing gradients, by m
    A(j, n)      of the best pipeline of the first j layers on n workers: what its slowest part takes

    A(j, n) = T(0, j, n), or the least over i and m of max(A(i, n-m), what passes from layer i-1 to i, T(i, j, m))

Layers with few weights and much to compute are best replicated; those with many weights, such as the last of VGG, are
best on one worker, where no gradients are summed.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise, product
from typing import NamedTuple

from simdist.errors import ArgumentError, as_declared, require_least, require_more, require_whole

__all__ = ["Replicated", "pipedream_stages"]

_Stages = tuple[tuple[int, int], ...]  # of each where it ends, and its workers


class Replicated(NamedTuple):
    """Stages, and the workers of each.

    Attributes:
        stages: the layers of each.
        replicas: how many workers have each.
        seconds: between two mini-batches, once the pipeline is full.
        in_flight: the mini-batches that fill it: workers by replicas of the first stage, rounded up (NOAM).
    """

    stages: tuple[slice, ...]
    replicas: tuple[int, ...]
    seconds: float
    in_flight: int


@as_declared
def pipedream_stages(
    times_s: Sequence[float],
    output_bytes: Sequence[float],
    weight_bytes: Sequence[float],
    workers: int,
    bytes_per_s: float,
) -> Replicated:
    """The stages and replicas with which PipeDream trains fastest on all of these workers, over links of one bandwidth.

        T(i, j, m) = 1/m max(Σ times_s, 4 (m-1)/m Σ weight_bytes / B)       messages pass while workers compute
        between them 2 output_bytes / B                                     activations, and their gradients

    VGG-16, measured on V100s by its authors, takes 7-1 of 8 workers and 15-1 of 16 over 10 Gbit/s.

    Args:
        times_s: of each layer, forward and backward, for one mini-batch.
        output_bytes, weight_bytes: of each layer; of the outputs those of a mini-batch.
        workers, bytes_per_s: their number, and B, of a worker's link.

    Raises:
        ArgumentError: there is no layer or worker, the three differ in length, or a number is outside its limits.

    Cost: for n layers on m workers, time in n² m².

    Source: Harlap et al. 2018, arXiv 1806.03377, section 3.2; several levels of links, Narayanan et al. 2019, SOSP.
    """
    require_whole("workers", workers, 1)
    require_more("bytes_per_s", bytes_per_s, 0)
    layers = _num_layers(times_s, output_bytes, weight_bytes)
    times, weights = [0.0, *accumulate(times_s)], [0.0, *accumulate(weight_bytes)]
    sending_s = [2 * sent / bytes_per_s for sent in output_bytes]

    def stage_s(i: int, j: int, m: int) -> float:
        summing_s = 4 * (m - 1) / m * (weights[j] - weights[i]) / bytes_per_s
        return max(times[j] - times[i], summing_s) / m

    seconds, stages = _best(layers, workers, stage_s, sending_s)
    ends, replicas = zip(*stages, strict=True)
    slices = tuple(slice(*pair) for pair in pairwise((0, *ends)))
    return Replicated(slices, replicas, seconds, -(-workers // replicas[0]))


def _best(
    layers: int, workers: int, stage_s: Callable[[int, int, int], float], sending_s: Sequence[float]
) -> tuple[float, _Stages]:
    """A(layers, workers), and the stages of that pipeline."""
    best: dict[tuple[int, int], tuple[float, _Stages]] = {}
    for n, j in product(range(1, workers + 1), range(1, layers + 1)):
        least: float = stage_s(0, j, n)
        cut: _Stages = ((j, n),)
        for i, m in product(range(1, j), range(1, n)):
            before, stages = best[i, n - m]
            slowest = max(before, sending_s[i - 1], stage_s(i, j, m))
            if slowest < least * (1 - 1e-12):  # not for what rounding alone makes less
                least, cut = slowest, (*stages, (j, m))
        best[j, n] = least, cut
    return best[layers, workers]


def _num_layers(*figures: Sequence[float]) -> int:
    """How many layers there are, by all of these."""
    counts = [len(each) for each in figures]
    if not counts[0] or len(set(counts)) > 1:
        told = f"times of {counts[0]} layers, outputs of {counts[1]}, weights of {counts[2]}"
        raise ArgumentError(f"{told}; needs as many of each, at least 1")
    for value in chain(*figures):
        require_least("what a layer has", value, 0)
    return counts[0]
