"""Replicas: layers cut into stages, each on one worker, or on several that take mini-batches in turn (PipeDream).

    layers    3   3   3   3   1   1        5 workers:   3 3 3 3 on four of them,  1 1 on one: a mini-batch every 3

    T(i, j, m)   of a stage of the layers from i to j on m workers: the more of computing and of summing gradients, by m
    A(j, n)      of the best pipeline of the first j layers on n workers: what its slowest part takes

    A(j, n) = T(0, j, n), or the least over i and m of max(A(i, n-m), what passes from layer i-1 to i, T(i, j, m))

Layers with few weights and much to compute are best replicated; those with many weights, such as the last of VGG, are
best on one worker, where no gradients are summed.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simdist.errors import ArgumentError, as_declared, require_least, require_more, require_whole

__all__ = ["Replicated", "pipedream_stages"]

_Last = dict[tuple[int, int], tuple[int, int]]


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
    times, weights = (np.append(0.0, np.cumsum(each, dtype=np.float64)) for each in (times_s, weight_bytes))
    sending_s, m = 2 * np.array(output_bytes, np.float64) / bytes_per_s, np.arange(1, workers + 1)
    best, last = np.empty((layers + 1, workers + 1)), _Last()
    for j in range(1, layers + 1):
        summing_s = 4 * (m - 1) / m * (weights[j] - weights[:j, None]) / bytes_per_s
        stage_s = np.maximum(times[j] - times[:j, None], summing_s) / m  # T of all i and m
        best[j, 1:] = stage_s[0]
        if j > 1:
            _cut(j, best, last, np.maximum(stage_s[1:], sending_s[: j - 1, None]))
    stages, replicas = _stages(last, layers, workers)
    return Replicated(stages, replicas, float(best[layers, workers]), -(-workers // replicas[0]))


def _cut(j: int, best: npt.NDArray[np.float64], last: _Last, stage_s: npt.NDArray[np.float64]) -> None:
    """Set A and the last stage of the first j layers, where several stages are better than one.

    Args:
        best, last: A(j, n), at first that of one stage; and where the last of several begins, and its workers.
        stage_s: of the last one, and of what passes to it, by i from 1 and m from 1.
    """
    for n in range(2, best.shape[1]):
        slowest = np.maximum(best[1:j, n - 1 : 0 : -1], stage_s[:, : n - 1])
        i, k = map(int, np.unravel_index(slowest.argmin(), slowest.shape))
        if slowest[i, k] < best[j, n] * (1 - 1e-12):  # not for what rounding alone makes less
            best[j, n], last[j, n] = slowest[i, k], (i + 1, k + 1)


def _stages(last: _Last, layers: int, workers: int) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    """All stages and their replicas, from the last to the first."""
    stages, replicas = list[slice](), list[int]()
    while layers:
        start, m = last.get((layers, workers), (0, workers))
        stages.insert(0, slice(start, layers))
        replicas.insert(0, m)
        layers, workers = start, workers - m
    return tuple(stages), tuple(replicas)


def _num_layers(*figures: Sequence[float]) -> int:
    """How many layers there are, by all of these."""
    counts = [len(each) for each in figures]
    if not counts[0] or len(set(counts)) > 1:
        told = f"times of {counts[0]} layers, outputs of {counts[1]}, weights of {counts[2]}"
        raise ArgumentError(f"{told}; needs as many of each, at least 1")
    for value in chain(*figures):
        require_least("what a layer has", value, 0)
    return counts[0]
