"""PipeDream's plans: those of its papers' tables, and the best of all plans for a few layers."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import pipedream_stages

# VGG-16 by its authors on a V100 (github.com/msr-fiddle/pipedream, profiles/vgg16): a layer with what follows it up to
# the next with weights; ms of forward and backward; bytes of outputs for 128 images; bytes of weights
VGG16 = [
    (56.919, 1_644_167_168, 7_168),
    (178.671, 411_041_792, 147_712),
    (59.900, 822_083_584, 295_424),
    (85.573, 205_520_896, 590_336),
    (31.906, 411_041_792, 1_180_672),
    (47.584, 411_041_792, 2_360_320),
    (53.685, 102_760_448, 2_360_320),
    (25.545, 205_520_896, 4_720_640),
    (38.786, 205_520_896, 9_439_232),
    (43.551, 51_380_224, 9_439_232),
    (14.039, 51_380_224, 9_439_232),
    (12.119, 51_380_224, 9_439_232),
    (14.107, 12_845_056, 9_439_232),
    (7.457, 2_097_152, 411_058_176),
    (1.752, 2_097_152, 67_125_248),
    (0.941, 512_000, 16_388_000),
]
TEN_GIGABIT = 1.25e9


@pytest.mark.parametrize(("workers", "replicas", "in_flight"), [(8, (7, 1), 2), (16, (15, 1), 2)])
def test_the_plans_of_the_papers_tables(workers, replicas, in_flight):
    """Of 8 V100s, arXiv 1806.03377, table 1; of 16, Narayanan et al. 2019, SOSP, table 1."""
    milliseconds, outputs, weights = zip(*VGG16, strict=True)
    plan = pipedream_stages([ms / 1e3 for ms in milliseconds], outputs, weights, workers, TEN_GIGABIT)
    assert (plan.replicas, plan.in_flight) == (replicas, in_flight)
    assert sum(weights[plan.stages[1]]) > 0.85 * sum(weights)  # of which no gradients are summed


def all_plans(layers, workers):
    """All cuts of the layers, with all ways to share the workers: stages as (start, end, replicas)."""
    for stages in range(1, min(layers, workers) + 1):
        for cuts in combinations(range(1, layers), stages - 1):
            for shares in combinations(range(1, workers), stages - 1):
                ends, steps = pairwise([0, *cuts, layers]), pairwise([0, *shares, workers])
                yield [(a, b, d - c) for (a, b), (c, d) in zip(ends, steps, strict=True)]


def slowest(plan, times, outputs, weights, rate):
    """What the slowest part of a plan takes for a mini-batch."""
    computing = [sum(times[a:b]) / m for a, b, m in plan]
    summing = [4 * (m - 1) * sum(weights[a:b]) / (m * rate) / m for a, b, m in plan]
    return max(*computing, *summing, *(2 * outputs[b - 1] / rate for _, b, _ in plan[:-1]))


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_is_faster(seed):
    random = np.random.default_rng(seed)
    layers, workers = int(random.integers(1, 6)), int(random.integers(1, 6))
    figures = [random.exponential(size=layers).tolist() for _ in range(3)]
    plan = pipedream_stages(*figures, workers, 3.0)
    found = [(s.start, s.stop, m) for s, m in zip(plan.stages, plan.replicas, strict=True)]
    assert found in list(all_plans(layers, workers))
    best = min(slowest(each, *figures, 3.0) for each in all_plans(layers, workers))
    assert plan.seconds == pytest.approx(best)
    assert plan.seconds == pytest.approx(slowest(found, *figures, 3.0))


def test_of_plans_that_are_equal_the_one_with_fewest_stages():
    plan = pipedream_stages([0.1] * 6, [0.0] * 6, [0.0] * 6, 3, 1.0)
    assert (plan.stages, plan.replicas, plan.in_flight) == ((slice(0, 6),), (3,), 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers is 0; needs at least 1"),
        ({"bytes_per_s": 0.0}, "bytes_per_s is 0.0; needs more than 0"),
        ({"times_s": [1.0]}, "times of 1 layers, outputs of 2, weights of 2; needs as many of each, at least 1"),
        ({"times_s": [], "output_bytes": [], "weight_bytes": []}, "times of 0 layers"),
        ({"weight_bytes": [1.0, -1.0]}, "what a layer has is -1.0; needs at least 0"),
    ],
)
def test_what_cannot_be_planned(given, message):
    right = {"times_s": [1.0, 2.0], "output_bytes": [1.0, 1.0], "weight_bytes": [1.0, 1.0]}
    with pytest.raises(ArgumentError, match=message):
        pipedream_stages(**{**right, "workers": 2, "bytes_per_s": 1.0, **given})
