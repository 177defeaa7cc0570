"""Plans beside each other."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simdist.cluster import preset
from simdist.errors import ArgumentError
from simdist.planning import Workbench, details, search
from simdist.plots import plan_bars, style

GPT = {"model": "gpt", "layers": 6, "width": 512, "heads": 8, "context_bytes": 128, "global_batch_size": 16}
BENCH = Workbench(preset("a100").with_(devices_per_node=4), 8)


@pytest.fixture(scope="module")
def best():
    return search(GPT | {"schedule": "1f1b"}, BENCH).best


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_bars_are_as_long_as_the_step_and_the_memory(draw, best, width):
    picture = draw(plan_bars, best, BENCH, width=width)
    left, right = picture.axes
    for ax, values in ((left, [p.step.seconds * 1e3 for p in best]), (right, [p.num_bytes / 1e9 for p in best])):
        ends = [
            max(bar.get_x() + bar.get_width() for bar in ax.patches if round(bar.get_y() + bar.get_height() / 2) == y)
            for y in range(len(best))
        ]
        np.testing.assert_allclose(ends, values, rtol=1e-9)
    assert left.get_xlabel().endswith("(ms)")
    first, last = best[0], best[-1]
    times = last.step.seconds / first.step.seconds
    assert picture.title.endswith(f"takes {times:.2g} times as long")
    assert "computing" in picture.key and "optimizer state" in picture.key


def test_neighbours_differ_without_colour(draw, best):
    steps, _ = draw(plan_bars, best[:1], BENCH).axes
    looks = [(np.dot(bar.get_facecolor()[:3], (0.299, 0.587, 0.114)), bar.get_hatch()) for bar in steps.patches]
    for (lightness, hatch), (next_lightness, next_hatch) in pairwise(looks):
        assert abs(lightness - next_lightness) > 0.1 or hatch != next_hatch


def test_the_key_has_the_words_of_the_table(draw, best):
    parts = {"computing", "communication within layers", "update"}
    assert parts <= {line.split("  ")[0] for line in details(best[0], BENCH)}
    assert parts <= set(draw(plan_bars, best, BENCH).key)


def test_a_capacity_that_hides_the_bars_is_told_instead(draw, best):
    few = max(plan.num_bytes for plan in best)
    for factor, told in ((5, "dashed: a device's capacity"), (20, f"a device has {20 * few / 1e9:g} GB")):
        device = replace(BENCH.cluster.device, memory_bytes=factor * few)
        bench = Workbench(BENCH.cluster.with_(device=device), 8)
        picture = draw(plan_bars, best, bench)
        assert picture.note.endswith(told)
        assert len(picture.axes[1].lines) == (factor == 5)


def test_one_plan_is_compared_with_nothing(draw, best):
    assert "times as long" not in draw(plan_bars, best[:1], BENCH).title


def test_no_plan():
    with pytest.raises(ArgumentError, match="no plans to draw"):
        plan_bars([], BENCH)
