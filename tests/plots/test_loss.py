"""The loss curve."""

from math import inf, nan

import pytest

from simdist.errors import ArgumentError
from simdist.plots import loss_curve, style


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_falls_and_compares(draw, width):
    steps = [1, 10, 20]
    picture = draw(loss_curve, steps, [5.5, 3.0, 2.5], [5.6, 3.2, 2.75], {"unigram entropy": 3.25}, width=width)
    assert picture.title == "Validation loss falls from 5.6 to 2.75"
    (ax,) = picture.axes
    train, validation, level = ax.lines
    assert list(train.get_ydata()) == [5.5, 3.0, 2.5]
    assert list(validation.get_ydata()) == [5.6, 3.2, 2.75]
    assert set(level.get_ydata()) == {3.25}
    assert "unigram entropy 3.25" in picture.words
    assert all(text.get_path_effects() for text in picture.texts if "entropy" in text.get_text())
    assert ax.get_ylabel() == "loss (nats a byte)"


def test_training_alone(draw):
    picture = draw(loss_curve, [1, 2], [2.0, 3.0])
    assert picture.title == "Training loss rises from 2 to 3"
    assert picture.key == ["training"]


def test_one_step(draw):
    picture = draw(loss_curve, [7], [2.0], [2.5])
    assert picture.title == "Validation loss is 2.5 at step 7"
    assert not any(picture.axes[0].get_xticks() % 1)
    assert [line.get_marker() for line in picture.axes[0].lines] == ["o", "o"]


def test_what_diverges_is_on_a_log_scale_and_levels_keep_their_words_apart(draw):
    picture = draw(loss_curve, [1, 2], [5.5, 1e25], [nan, nan], {"unigram entropy": 3.13, "bigram entropy": 2.41})
    assert picture.axes[0].get_yscale() == "log"
    one, other = (t.get_window_extent() for t in picture.texts if "entropy" in t.get_text())
    assert not one.overlaps(other)


@pytest.mark.parametrize("last", [20, 35, 600, 1000])
def test_steps_are_marked_at_round_numbers(draw, last):
    ticks = draw(loss_curve, [1, last], [5.5, 2.0]).axes[0].get_xticks()
    gap = f"{ticks[1] - ticks[0]:.0f}"
    assert gap[0] in "125" and not gap[1:].strip("0")


def test_levels_apart_have_their_words_where_curves_are_low(draw):
    picture = draw(loss_curve, [1, 300, 600], [5.5, 2.0, 1.7], None, {"unigram entropy": 3.13, "bigram entropy": 2.41})
    assert [t.get_ha() for t in picture.axes[0].texts] == ["right", "right"]


def test_a_level_of_zero_has_a_place(draw):
    assert draw(loss_curve, [1, 2], [5.5, 0.01], None, {"unigram entropy": 0.0}).axes[0].get_yscale() == "linear"


def test_validation_where_it_was_measured(draw):
    picture = draw(loss_curve, [1, 2, 3], [3.0, 2.0, 1.0], [3.5, None, nan])
    assert list(picture.axes[0].lines[1].get_xdata()) == [1]
    assert picture.note == ""


def test_a_loss_that_is_not_finite_is_left_out_and_it_says_so(draw):
    picture = draw(loss_curve, [1, 2, 3], [3.0, inf, nan])
    assert picture.note == "2 of 3 training losses left out: not finite."


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (([1, 2], [1.0]), "1 training losses for 2 steps"),
        (([1], [1.0], []), "0 validation losses for 1 steps"),
        (([], []), "no finite loss"),
        (([1], [nan]), "no finite loss"),
    ],
)
def test_what_cannot_be_drawn(arguments, fault):
    with pytest.raises(ArgumentError, match=fault):
        loss_curve(*arguments)
