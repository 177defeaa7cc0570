"""Several runs' losses over each other, and their differences."""

from math import nan

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.plots import Losses, loss_differences, style

ONE = [Losses(step, 5 / step, 6 / step) for step in (1, 2, 4)]
NEAR = [line._replace(train=line.train + 1e-6 * line.step) for line in ONE]
FAR = [line._replace(validation=line.validation - 1e-3) for line in ONE[1:]]


@pytest.mark.parametrize("width", [4.5, style.PAGE])
def test_over_each_other_and_the_differences_below(draw, width):
    picture = draw(loss_differences, {"one rank": ONE, "tp2": NEAR, "sp2": FAR, "again": ONE}, width=width)
    assert picture.title.startswith(
        "The losses of 3 runs are up to 0.001 from one rank's: sp2's in validation at step "
    )
    assert picture.key == ["one rank", "tp2", "sp2", "again"]
    assert picture.note == "Bit-identical to one rank: again."
    train, validation, of_train, of_validation = picture.axes
    assert [list(line.get_ydata()) for line in train.lines] == [[x.train for x in run] for run in (ONE, NEAR, FAR, ONE)]
    assert list(validation.lines[2].get_xdata()) == [2, 4]
    np.testing.assert_allclose(of_train.lines[1].get_ydata(), [1e-6, 2e-6, 4e-6], rtol=1e-6)
    np.testing.assert_allclose(of_validation.lines[2].get_ydata(), 1e-3)
    assert of_train.get_yscale() == "log"
    assert of_train.get_ylim() == pytest.approx((1e-7, 1e-2)), (
        "powers of ten with those of the least and the most inside"
    )
    colours = [[line.get_color() for line in ax.lines] for ax in (train, of_train)]
    assert len(set(colours[0])) == 4 and colours[1] == colours[0], "one colour for one run"


def test_no_difference_at_all(draw):
    picture = draw(loss_differences, {"a": ONE, "b": ONE})
    assert picture.title == "The losses of b equal a's bit for bit"
    assert picture.axes[2].get_yticks().tolist() == [0]


def test_one_other_run_is_called_by_its_name(draw):
    picture = draw(loss_differences, {"a": ONE, "b": FAR})
    assert picture.title.startswith("The losses of b are up to 0.001 from a's: in validation at step ")


def test_long_names_are_broken(draw):
    """A folder's name may have no blanks at which a title or a key could be."""
    long = "gpt2_bf16_zero3_" * 9
    picture = draw(loss_differences, {"a": ONE, long: NEAR, f"{long}too": FAR})
    assert [label.replace("\n", "") for label in picture.key] == ["a", long, f"{long}too"]
    assert max(len(line) for text in picture.key for line in text.splitlines()) < 60
    assert max(map(len, picture.figure.get_suptitle().splitlines())) < 110


def test_one_run(draw):
    picture = draw(loss_differences, {"a": ONE})
    assert picture.title == "a, without a run to compare it with"
    assert [[list(line.get_ydata()) for line in ax.lines] for ax in picture.axes] == [
        [[x[i] for x in ONE]] for i in (1, 2)
    ]
    assert picture.axes[0].lines[0].get_linewidth() < 2, "no band: nothing comes on top of it"


def test_runs_without_validation_have_no_panel_for_it(draw):
    runs = {name: [line._replace(validation=nan) for line in run] for name, run in (("a", ONE), ("b", NEAR))}
    assert [len(ax.lines) for ax in draw(loss_differences, runs).axes] == [2, 2]


def test_one_step(draw):
    picture = draw(loss_differences, {"a": [Losses(1, 5.0, 5.0)], "b": [Losses(1, 5.1, 5.0)]})
    above, *_, below = picture.axes
    assert not any(below.get_xticks() % 1)
    assert above.lines[0].get_marker() == "o"  # the band, which has no length


def test_a_run_that_diverges(draw):
    runs = {"a": [Losses(1, 5.0, 5.0), Losses(2, 4.0, 4.0)], "b": [Losses(1, 5.0, 1e25), Losses(2, nan, nan)]}
    assert {ax.get_yscale() for ax in draw(loss_differences, runs).axes} == {"log"}


def test_steps_that_only_one_has(draw):
    picture = draw(loss_differences, {"a": ONE, "b": [Losses(3, 1.0, nan)]})
    assert picture.title == "The losses of b and of a have no step in common"
    assert picture.note == ""


@pytest.mark.parametrize("runs", [{}, {"a": []}, {"a": ONE, "b": [Losses(1, nan, 1.0)]}])
def test_nothing_to_draw(runs):
    with pytest.raises(ArgumentError, match="no finite losses"):
        loss_differences(runs)
