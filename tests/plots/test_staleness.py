import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.plots import staleness, style


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_bars_are_shares_of_each_run(draw, width):
    picture = draw(staleness, {"SSP": [0, 1, 1, 2], "asynchronous": [3, 3]}, width=width)
    assert picture.title == "Mean staleness: SSP 1 (most 2), asynchronous 3 (most 3)"
    assert picture.key == ["SSP", "asynchronous"]
    bars = [patch.get_data() for patch in picture.axes[0].patches]
    assert bars[0].values.tolist() == [0.25, 0.5, 0.25, 0]
    assert bars[2].values.tolist() == [0, 0, 0, 1]
    assert bars[0].edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5]
    assert picture.note == ""


def test_very_stale_updates_are_left_out_and_it_says_so(draw):
    picture = draw(staleness, {"asynchronous": [*range(100)] * 10 + [10_000]})
    assert picture.note == "1 update beyond the axis."
    assert "most 10000" in picture.title
    bars = picture.axes[0].patches[0].get_data()
    np.testing.assert_allclose(bars.values.sum(), 1000 / 1001)


def test_what_the_last_bar_holds_is_not_beyond_the_axis(draw):
    picture = draw(staleness, {"asynchronous": [*range(61)] * 10 + [61, 10_000]})  # two in a bar
    assert picture.note == "1 update beyond the axis."
    assert picture.axes[0].patches[0].get_data().values.sum() == pytest.approx(611 / 612)


def test_the_stalest_of_few_updates_is_shown(draw):
    picture = draw(staleness, {"SSP": [0, 1, 2, 3]})
    assert picture.note == ""
    assert picture.axes[0].patches[0].get_data().values.sum() == 1


def test_none_is_stale(draw):
    (ax,) = draw(staleness, {"bsp": [0, 0]}).axes
    assert not any(ax.get_xticks() % 1)


@pytest.mark.parametrize("runs", [{}, {"SSP": []}])
def test_nothing_to_draw(runs):
    with pytest.raises(ArgumentError, match="no updates"):
        staleness(runs)
