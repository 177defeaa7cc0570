"""What a stage takes is what its layers take."""

from itertools import pairwise

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.comm.device import use_device
from simdist.nn import Shape, gpt
from simdist.parallel.pipeline import footprints, joined, schedule
from simdist.parallel.pipeline.peaks import peaks

FLOAT32 = np.dtype(np.float32)
CUTS = [[6], [2, 2, 2], [1, 4, 1], [3, 3]]


def bounds(cut):
    ends = np.cumsum([0, *cut]).tolist()
    return [slice(a, b) for a, b in pairwise(ends)]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("tied", "dropout"), [(True, 0.0), (False, 0.1)])
def test_a_stage_of_layers_is_joined_from_theirs(recompute, tied, dropout):
    """But for an input of the last layer that none keeps: within a stage it is gone before the loss."""
    one = 2 * 12 * 16 * FLOAT32.itemsize
    model = gpt(Shape(4, 16, 4, 12, tied=tied, dropout=dropout, recompute=recompute))
    layers = footprints(model, bounds([1] * 6), 2, 13, FLOAT32)
    for cut in CUTS:
        for stage, own in zip(footprints(model, bounds(cut), 2, 13, FLOAT32), bounds(cut), strict=True):
            found = joined(layers[own])
            assert found.levels == stage.levels
            for measured, of_layers in ((stage.passing, found.passing), (stage.working, found.working)):
                assert all(0 <= of_layers[letter] - measured[letter] <= one * (letter == "F") for letter in "FBIW")
            assert all(stage.working[letter] >= stage.levels[letter].during for letter in "FBIW")
            rest = {"levels": {}, "passing": {}, "working": {}, "seconds": {}}
            assert found._replace(**rest) == stage._replace(**rest)


def test_micro_batches_of_twice_the_size_take_as_much_as_of_twice_the_windows():
    one = schedule("1f1b", stages=3, micro_batches=4)
    of_two, of_four = (footprints(gpt(Shape(4, 16, 4, 12)), bounds([2, 2, 2]), n, 13, FLOAT32) for n in (2, 4))
    for scaled, measured in zip(peaks(one, of_two, [2.0] * 4), peaks(one, of_four), strict=True):
        assert scaled == pytest.approx(measured, rel=1e-3)
    some, every = peaks(one, of_two, ranks=[2, 0]), peaks(one, of_two)
    assert some == [every[2], every[0]] and every[0].activations > every[2].activations


def test_seconds_are_those_of_the_clock():
    def program(comm):
        use_device(comm, "phantom")
        model = gpt(Shape(4, 64, 4, 32))
        layers = footprints(model, bounds([1] * 6), 2, 33, FLOAT32, comm.clock)
        stages = footprints(model, bounds([3, 3]), 2, 33, FLOAT32, comm.clock)
        return layers, stages, comm.clock()

    [(layers, stages, clock_s)] = sd.run(program, 1, cluster=preset("h100")).results
    for stage, own in zip(stages, bounds([3, 3]), strict=True):
        assert joined(layers[own]).seconds == pytest.approx(stage.seconds, rel=1e-12)
    passes = [took.seconds for took in (*layers, *stages)]
    assert all(took["B"] == pytest.approx(took["I"] + took["W"], rel=1e-12) for took in passes)
    assert clock_s == pytest.approx(
        sum(2 * took["F"] + took["B"] + took["I"] + took["W"] for took in passes), rel=1e-12
    )


def test_without_a_clock_there_are_no_seconds():
    assert [stage.seconds for stage in footprints(gpt(Shape(1, 8, 2, 4)), bounds([1, 2]), 1, 5, FLOAT32)] == [{}, {}]


def test_a_stage_of_many_layers_is_joined_in_one_pass():
    """Each of 20,000 layers added to all before it would take minutes."""
    model = gpt(Shape(1, 16, 4, 12))
    layer = footprints(model, bounds([1, 1, 1]), 2, 13, FLOAT32)[1]
    ten, many = joined([layer] * 10), joined([layer] * 20_000)
    own, kept = layer.levels["F"].during, layer.levels["F"].after
    assert ten.levels["F"].during == 9 * kept + own
    assert many.levels["F"].during == 19_999 * kept + own
