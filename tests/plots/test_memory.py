"""Memory over time."""

from math import inf

import numpy as np
import pytest

from simdist.arrays import Ledger, Moment, hold, phantom, recorded
from simdist.errors import ArgumentError
from simdist.nn import Shape, gpt
from simdist.plots import memory, style


def moments(*rows):
    return [Moment(float(time), tuple(live), at) for time, live, at in rows]


STEPS = moments(
    (0, (100, 0, 0, 0, 0, 0), ""),
    (1, (100, 100, 200, 0, 0, 0), "update"),
    (2, (100, 100, 200, 500, 0, 50), "block0.qkv"),
    (3, (100, 100, 200, 1000, 0, 0), "loss"),
    (4, (100, 100, 200, 0, 0, 0), "loss"),
)


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_the_peak_is_named(draw, width):
    picture = draw(memory, STEPS, width=width)
    assert picture.title == "Memory peaks at 1.37 KiB in loss: 71% activations, 14% optimizer state"
    assert picture.key == ["parameters", "gradients", "optimizer state", "activations", "buffers"]
    assert "1.37 KiB in loss" in picture.words
    (ax,) = picture.axes
    assert ax.get_xlabel() == "time (s)"
    assert ax.get_ylabel() == "memory (KiB)"
    tops = [area.get_paths()[0].vertices[:, 1].max() * 1024 for area in ax.collections]
    np.testing.assert_allclose(tops, [100, 200, 400, 1400, 1400])


def test_a_part_of_the_time(draw):
    picture = draw(memory, STEPS, start_s=1, end_s=2)
    assert picture.title.startswith("Memory peaks at 950 B in block0.qkv")
    assert picture.key == ["parameters", "gradients", "optimizer state", "activations", "buffers"]


def test_what_is_alive_when_the_part_begins_and_ends_is_drawn(draw):
    rows = ((0, (900, 0, 0, 0, 0, 0), "load"), (5, (100, 0, 0, 0, 0, 0), ""), (20, (0,) * 6, ""))
    picture = draw(memory, moments(*rows), start_s=1, end_s=12)
    assert picture.title.startswith("Memory peaks at 900 B in load")
    (ax,) = picture.axes
    assert ax.get_xlim() == (0, 11)
    corners = {tuple(corner) for corner in ax.collections[0].get_paths()[0].vertices.tolist()}
    assert {(0, 900), (4, 900), (4, 100), (11, 100)} <= corners


def test_a_time_in_which_nothing_changes_shows_what_is_alive(draw):
    picture = draw(memory, STEPS, start_s=2.25, end_s=2.75)
    assert picture.title.startswith("Memory peaks at 950 B in block0.qkv")
    assert picture.axes[0].get_xlim() == (0, 500)  # milliseconds


def test_without_limits_of_time_everything_is_drawn(draw):
    whole, unlimited = draw(memory, STEPS), draw(memory, STEPS, start_s=-inf, end_s=inf)
    assert unlimited.axes[0].get_xlim() == whole.axes[0].get_xlim()
    assert unlimited.title == whole.title


def test_very_many_moments_keep_the_peak(draw):
    rng = np.random.default_rng(0)
    many = moments(*((i, (1000, 0, 0, int(rng.integers(0, 500)), 0, 0), "x") for i in range(9000)))
    many[4321] = Moment(4321.0, (1000, 0, 0, 5000, 0, 0), "here")
    picture = draw(memory, many)
    assert picture.title.startswith("Memory peaks at 5.86 KiB in here")
    assert picture.note == "Of 9,000 moments, the largest of about every 5 is drawn."
    (ax,) = picture.axes
    assert max(area.get_paths()[0].vertices[:, 1].max() for area in ax.collections) == pytest.approx(6000 / 1024)


def test_one_moment(draw):
    picture = draw(memory, STEPS[1:2])
    assert picture.title.startswith("Memory peaks at 400 B in update: 50% optimizer state")
    assert picture.axes[0].get_xlim() == pytest.approx((0, 1))
    assert picture.axes[0].get_xlabel() == "time (ns)"


def test_of_a_model(draw):
    ledger = Ledger(clock=iter(np.arange(1e6) / 1e3).__next__)
    model = gpt(Shape(layers=3, width=64, heads=4, context=32))
    size = model.parameters.size
    model.parameters.bind(phantom(size), phantom(size))
    with recorded(ledger):
        hold("parameters", model.parameters.data)
        hold("gradients", model.parameters.gradient)
        _, context = model.forward(phantom((8, 33), np.uint8))
        model.backward(context, 1.0)
    picture = draw(memory, ledger.moments)
    assert " in loss: " in picture.title


def test_nothing_to_draw():
    for nothing in ([], moments((0, (0,) * 6, "")), STEPS):
        with pytest.raises(ArgumentError, match="no memory was recorded"):
            memory(nothing, start_s=9)
    with pytest.raises(ArgumentError, match="no memory was recorded in this time"):
        memory(STEPS, start_s=3, end_s=2)
