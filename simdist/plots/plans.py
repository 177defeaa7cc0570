"""Plans: the parts of a step's time, and of memory, for several ways to train."""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simdist.arrays import CATEGORIES
from simdist.errors import ArgumentError
from simdist.planning import Plan, Workbench, mesh_text, zero_text
from simdist.plots import style
from simdist.plots.memory import COLOURS

__all__ = ["plan_bars"]

_PARTS = {
    "computing": "compute",
    "communication within layers": "send",
    "waiting for stages": "wait",
    "gradients, weights": "all_reduce",
    "update": "update",
}
"""The parts of a step, in the order of `Plan.parts_s`, and the kinds whose colours they have."""

_GB = 1e9


def plan_bars(plans: Sequence[Plan], bench: Workbench, *, width: float = style.PAGE) -> Figure:
    """A bar for the step of each, and a bar for its memory.

    Args:
        plans: the fastest first.
        bench: the one on which the plans were made.
        width: of the figure, in inches.

    Raises:
        ArgumentError: there are no plans.
    """
    if not plans:
        raise ArgumentError("there are no plans to draw; needs at least one")
    length_s, second = style.unit_of_time(max(plan.step.seconds for plan in plans))
    with style.styled():
        fig = style.figure(width, (1.2 if width >= style.PAGE else 2.0) + 0.2 * len(plans))
        left, right = fig.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for y, plan in enumerate(plans):
            parts = zip(_PARTS.values(), plan.parts_s(bench), strict=True)
            _bar(left, y, ((style.look(kind), seconds / length_s) for kind, seconds in parts))
            held = _held_at_once(plan)
            _bar(right, y, (({"facecolor": COLOURS[each]}, held[each] / _GB) for each in CATEGORIES))
        capacity = _capacity(right, plans, bench)
        left.set_yticks(range(len(plans)), [_name(plan) for plan in plans])
        left.invert_yaxis()
        left.set(xlabel=f"a step ({second})")
        right.set(xlabel="memory (GB)")
        right.tick_params(left=False)
        times = [Patch(**style.look(kind), label=part) for part, kind in _PARTS.items()]
        style.legend(fig, times, "step: average over the ranks", letters=20, side="left")
        kinds = [Patch(color=COLOURS[each], label=each) for each in CATEGORIES]
        style.legend(fig, kinds, f"memory: of the fullest rank; {capacity}", side="right")
        style.title(fig, _finding(plans))
    return fig


def _capacity(ax: Axes, plans: Sequence[Plan], bench: Workbench) -> str:
    """Draw a line at a device's memory, unless bars beside it would be too short to see; what the key says of it."""
    capacity = bench.cluster.device.memory_bytes
    if 10 * max(plan.num_bytes for plan in plans) < capacity:
        return f"a device has {capacity / _GB:g} GB"
    ax.axvline(capacity / _GB, color=style.ACCENT, linewidth=0.9, linestyle="--")
    return "dashed: a device's capacity"


def _held_at_once(plan: Plan) -> dict[str, float]:
    """Bytes of each category, which add up to the peak. What comes and goes is not at its own peak then, and is cut."""
    held = dict(plan.memory)
    for each in ("buffers", "communication", "activations"):
        held[each] -= min(held[each], max(0.0, sum(held.values()) - plan.num_bytes))
    return held


def _bar(ax: Axes, y: int, parts: Iterable[tuple[dict[str, Any], float]]) -> None:
    """Draw one part after the other, each with its look."""
    start = 0.0
    for look, length in parts:
        ax.barh(y, length, left=start, height=0.7, linewidth=0, **look)
        start += length


def _name(plan: Plan) -> str:
    schedule, sharing = plan.config.schedule, [f"ZeRO {zero_text(plan.config)}"] if plan.config.zero else []
    return ", ".join([mesh_text(plan), *sharing, *([schedule] if schedule else [])])


def _finding(plans: Sequence[Plan]) -> str:
    best, last = plans[0], plans[-1]
    words = f"{_name(best)} is fastest: {style.seconds(best.step.seconds)} a step"
    if len(plans) == 1:
        return words
    return f"{words}; {_name(last)} takes {last.step.seconds / best.step.seconds:.2g} times as long"
