from math import inf, nan

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.plots import Point, loss_race, style


def run(seconds, rate, steps=30, workers=2):
    return [Point(step, seconds * (step + 1), rate**step) for step in range(steps) for _ in range(workers)]


@pytest.mark.parametrize("width", [4.5, style.PAGE])
def test_against_steps_and_against_time(draw, width):
    picture = draw(loss_race, {"synchronous": run(4.0, 0.8), "asynchronous": run(1.0, 0.85)}, width=width)
    by_step, by_time = picture.axes
    assert picture.key == ["synchronous", "asynchronous"]
    assert "asynchronous is there first" in picture.title
    assert "synchronous last" in picture.title
    assert "; synchronous in the fewest steps" in picture.title
    assert max(by_step.lines[0].get_xdata()) == 29
    assert [max(line.get_xdata()) for line in by_time.lines] == pytest.approx([120, 30], rel=0.05)
    assert by_step.get_yscale() == "log"


def test_who_comes_first_to_what_all_come_to(draw):
    falls = {"one": (1.0, [1, 0.5, 0.04, *[0] * 20]), "other": (2.0, [1, 1, 0.5, 0.04, *[0] * 20])}
    runs = {
        name: [Point(k, took * (k + 1), loss) for k, loss in enumerate(losses)]
        for name, (took, losses) in falls.items()
    }
    assert draw(loss_race, runs).title == (
        "A loss of 0.05: one is there first, after 3 s, other last, after 8 s; one in the fewest steps, 2"
    )


def test_of_equals_one_is_first_and_another_last(draw):
    title = draw(loss_race, {name: [Point(1, 2.0, 1.0)] for name in ("one", "other")}).title
    assert title.startswith("A loss of 1: one is there first, after 2 s, other last, after 2 s")


def test_many_losses_are_means_of_neighbours(draw):
    losses = [Point(step, float(step), float(step % 2)) for step in range(400)]
    (line, *_), _ = (ax.lines for ax in draw(loss_race, {"one": losses}).axes)
    assert len(line.get_xdata()) == 40
    np.testing.assert_allclose(line.get_ydata(), 0.5)


def test_one_step(draw):
    picture = draw(loss_race, {"one": [Point(1, 1.0, 2.0)]})
    assert picture.title == "one: the loss goes from 2 to 2 in 1 step and 1 s"
    assert not any(picture.axes[0].get_xticks() % 1)


def test_a_loss_that_is_not_finite_is_passed_over(draw):
    picture = draw(loss_race, {"one": [Point(0, 1.0, 2.0), Point(1, 2.0, nan), Point(2, 3.0, inf), Point(3, 4.0, 1.0)]})
    assert list(picture.axes[0].lines[0].get_ydata()) == [2.0, 1.0]
    assert picture.title == "one: the loss goes from 2 to 1 in 3 steps and 4 s"


@pytest.mark.parametrize("runs", [{}, {"one": []}, {"one": [Point(0, 1.0, nan)]}])
def test_nothing_to_draw(runs):
    with pytest.raises(ArgumentError, match="no finite losses"):
        loss_race(runs)


def test_workers_at_the_same_step_are_one_point(draw):
    points = [Point(step, step + worker / 4, 1.0 + worker) for step in range(5) for worker in range(3)]
    by_step, by_time = draw(loss_race, {"ssp": points}).axes
    assert by_step.lines[0].get_xdata().tolist() == [0, 1, 2, 3, 4]
    assert by_step.lines[0].get_ydata().tolist() == [2.0] * 5
    assert len(by_time.lines[0].get_xdata()) == 15
