"""What layers cost, against the formulas of the whole model."""

from itertools import count

import numpy as np
import pytest

from simdist.arrays import Meter, metered, phantom
from simdist.cluster import Device
from simdist.nn import Shape, gpt
from simdist.nn.formulas import matmul_flops, megatron_activation_bytes, megatron_flops
from simdist.parallel.pipeline import cost, measured_costs, modelled_costs, split, stage_times, zero_bubble_layer

SHAPE = Shape(layers=4, width=64, heads=4, context=32, tied=False)


def test_costs_add_up_to_those_of_the_model():
    model = gpt(SHAPE)
    size = model.parameters.size
    model.parameters.bind(phantom(size), phantom(size))
    with metered(meter := Meter()):
        model.backward(model.forward(phantom((3, 33), np.uint8))[1], 1.0)
    costs = modelled_costs(gpt(SHAPE), 3, 33)
    assert sum(cost.total for cost in costs) == meter.flops
    assert meter.flops == pytest.approx(matmul_flops(SHAPE, 3), rel=0.1)


def test_a_model_is_not_heard_while_it_is_tried_out():
    with metered(meter := Meter()):
        modelled_costs(gpt(SHAPE), 3, 33)
    assert meter.flops == 0


def test_blocks_cost_the_same_and_backward_twice_as_much():
    costs = modelled_costs(gpt(SHAPE), 3, 33)
    assert len(costs) == 6
    assert len(set(costs[1:5])) == 1
    block = costs[1]
    assert block.backward_input + block.backward_weight == pytest.approx(2 * block.forward, rel=0.1)
    assert block.backward_input > block.backward_weight > 0  # attention has none of the weights' half


def test_seconds_of_a_device():
    slow = Device("slow", 1e6, 1e12, 1e9)
    flops, seconds = modelled_costs(gpt(SHAPE), 3, 33), modelled_costs(gpt(SHAPE), 3, 33, slow)
    for a, b in zip(flops, seconds, strict=True):
        assert b.total == pytest.approx(a.total / 1e6, rel=1e-2)
    fewer = modelled_costs(gpt(SHAPE), 3, 33, Device("slow memory", 1e30, 1e6, 1e9), np.float64)
    half = modelled_costs(gpt(SHAPE), 3, 33, Device("slow memory", 1e30, 1e6, 1e9), np.float32)
    assert sum(c.total for c in fewer) == pytest.approx(2 * sum(c.total for c in half), rel=0.05)


def test_measured_costs():
    model = gpt(SHAPE)
    size = model.parameters.size
    model.parameters.bind(np.empty(size, np.float32), np.zeros(size, np.float32))
    model.parameters.initialize(0)
    costs = measured_costs(model, np.zeros((2, 33), np.uint8), repeats=2)
    assert len(costs) == 6
    assert all(min(cost) >= 0 and cost.total > 0 for cost in costs)
    times = stage_times(costs, split([cost.total for cost in costs], 3), 0.5)
    assert times.communication == 0.5
    assert sum(times.forward) == pytest.approx(sum(cost.forward for cost in costs))


def test_the_shortest_of_the_measurements_counts(monkeypatch):
    """The first walk along the layers takes longest, as caches are cold: 3 s from one look at the clock to the next."""
    model, looks = gpt(SHAPE), count()
    size = model.parameters.size
    model.parameters.bind(phantom(size, np.float32), phantom(size, np.float32))
    per_walk = 1 + 6 + 1 + 2 * 6  # at first, after each layer, after the loss, after each half of a backward
    monkeypatch.setattr(cost, "perf_counter", lambda: max(3 * (k := next(looks)), k + 2 * per_walk))
    found = measured_costs(model, phantom((2, 33), np.uint8), repeats=2)
    assert [tuple(layer) for layer in found] == [(1, 1, 1)] * 5 + [(2, 1, 1)]  # the last with the loss


@pytest.mark.parametrize(
    ("width", "heads", "ratio"),
    [(2304, 24, 0.366), (4096, 32, 0.432), (5120, 40, 0.432), (6144, 48, 0.432)],
)
def test_as_the_paper_on_zero_bubbles_counts(width, heads, ratio):
    """Its models of 1.5B, 6.2B, 14.6B and 28.3B parameters, of 1024 tokens: what W keeps is so much of what B does."""
    flops, memory = zero_bubble_layer(width, heads, 1024, sequences=6)
    assert memory.weight / memory.backward == pytest.approx(ratio, abs=5e-4)
    assert memory.backward == megatron_activation_bytes(1024, width, heads, 6)
    # A product's two gradients are each as much as itself; of attention's, all are of the inputs.
    assert flops.forward + flops.backward_weight + flops.backward_input == pytest.approx(
        megatron_flops(1, width, 0, 1024, 6, "none"), rel=1e-12
    )
