"""Loss race: several ways to train, over steps and over time."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from simdist.arrays import Array
from simdist.plots import style
from simdist.plots.records import require_each
from simdist.words import counted

__all__ = ["Point", "loss_race"]

_MOST_POINTS = 40


class Point(NamedTuple):
    """The loss of one worker at one step."""

    step: int
    time_s: float
    loss: float


def loss_race(runs: Mapping[str, Sequence[Point]], *, unit: str = "", width: float = style.PAGE) -> Figure:
    """Loss over steps and over time, which shows the progress per step apart from the cost of a step.

    Losses of many workers and steps are drawn as the means of at most 40 groups of neighbours.

    Args:
        runs: name -> the losses of all workers, in any order.
        unit: of the loss.
        width: of the figure, in inches.

    Raises:
        ArgumentError: a run has no finite losses.
    """
    points = {name: np.array([p for p in found if np.isfinite(p[2])], float) for name, found in runs.items()}
    require_each(points, "finite losses")
    by_step, by_time = ({name: _means(found, axis) for name, found in points.items()} for axis in (0, 1))
    length, sign = style.unit_of_time(max(line[-1, 1] for line in by_time.values()))
    with style.styled():
        fig = style.figure(width, 2.5)
        left, right = fig.subplots(1, 2, sharey=True)
        handles = []
        for i, name in enumerate(points):
            look = style.series(i) | {"markersize": 2.2, "linewidth": 1.0, "label": name}
            handles += left.plot(by_step[name][:, 0], by_step[name][:, 2], **look)
            right.plot(by_time[name][:, 1] / length, by_time[name][:, 2], **look)
        left.set(xlabel="step", ylabel=f"loss ({unit})" if unit else "loss")
        left.xaxis.set_major_locator(style.whole_numbers())
        right.set(xlabel=f"time ({sign})")
        right.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        for ax in (left, right):
            style.losses(ax, [loss for line in by_step.values() for loss in line[:, 2].tolist()])
        style.legend(fig, handles)
        style.title(fig, _finding(by_step, by_time))
    return fig


def _means(points: Array, axis: int) -> Array:
    """The means of neighbours along an axis, shape (groups, 3), in its order: no more groups than places on it."""
    ordered = points[np.argsort(points[:, axis], kind="stable")]
    count = min(len(np.unique(points[:, axis])), _MOST_POINTS)
    return np.array([group.mean(axis=0) for group in np.array_split(ordered, count)])


def _finding(by_step: Mapping[str, Array], by_time: Mapping[str, Array]) -> str:
    """For one run its final loss; for several, which is first to reach a loss that all reach, in time and in steps."""
    if len(by_time) == 1:
        ((name, line),) = by_time.items()
        took = f"{counted(round(by_step[name][-1, 0]), 'step')} and {style.seconds(line[-1, 1])}"
        return f"{name}: the loss goes from {line[0, 2]:.3g} to {line[-1, 2]:.3g} in {took}"
    lines = [*by_step.values(), *by_time.values()]
    # The final loss of the worst, plus a margin, because losses of few samples fluctuate.
    end = max(max(line[:, 2].min(), np.median(line[-max(1, len(line) // 8) :, 2])) for line in lines)
    level = end + 0.05 * max(0.0, max(line[0, 2] for line in lines) - end)
    steps = {name: line[np.argmax(line[:, 2] <= level), 0] for name, line in by_step.items()}
    times = {name: line[np.argmax(line[:, 2] <= level), 1] for name, line in by_time.items()}
    fast, few = min(times, key=lambda name: times[name]), min(steps, key=lambda name: steps[name])
    slow = max(reversed(times), key=lambda name: times[name])
    return (
        f"A loss of {level:.3g}: {fast} is there first, after {style.seconds(times[fast])}, {slow} last, after "
        f"{style.seconds(times[slow])}; {few} in the fewest steps, {steps[few]:.0f}"
    )
