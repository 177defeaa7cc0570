"""Loss: the progress of training."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.words import counted

__all__ = ["loss_curve"]


def loss_curve(
    steps: Sequence[int],
    train: Sequence[float],
    validation: Sequence[float | None] | None = None,
    reference: Mapping[str, float] | None = None,
    *,
    unit: str = "nats a byte",
    width: float = style.COLUMN,
) -> Figure:
    """Loss over steps, of training and of validation.

    Args:
        steps: the step of each figure.
        train, validation: one for each step; nan or None where not measured.
        reference: values to compare with, such as {"unigram entropy": 3.1}, drawn as horizontal lines.
        unit: of the loss.
        width: of the figure, in inches.

    Raises:
        ArgumentError: lengths differ, or there is nothing to draw.
    """
    curves = {"training": train} | ({"validation": validation} if validation is not None else {})
    points = {name: found for name, values in curves.items() if (found := _finite(steps, values, name))}
    if not points:
        raise ArgumentError("no finite loss to draw")
    with style.styled():
        fig = style.figure(width, 2.3)
        ax = fig.subplots()
        lines = [_line(ax, name, found) for name, found in points.items()]
        levels = reference or {}
        for level in levels.values():
            ax.axhline(level, color=style.ACCENT, linewidth=0.9, linestyle="--")
        ax.set(xlabel="step", ylabel=f"loss ({unit})")
        ax.xaxis.set_major_locator(style.whole_numbers())
        style.losses(ax, [*levels.values(), *(loss for found in points.values() for _, loss in found)])
        _name(ax, levels)
        style.legend(fig, lines, _left_out(len(steps), len(points.get("training", ()))))
        style.title(fig, _finding(points))
    return fig


_LINE = 0.12  # height of a line of text, as a share of the picture's
_LOOKS: dict[str, dict[str, Any]] = {
    "training": {"color": "#77AADD", "linewidth": 1.0},
    "validation": {"color": style.DONE, "marker": "o"},
}


def _line(ax: Axes, name: str, found: Sequence[tuple[int, float]]) -> Line2D:
    """Draw a curve; a single loss, which would be invisible as a line, as a point."""
    point = {"marker": "o"} if len(found) == 1 else {}
    return ax.plot(*zip(*found, strict=True), label=name, **_LOOKS[name] | point)[0]


def _name(ax: Axes, levels: Mapping[str, float]) -> None:
    """Write each level's name at its right end, where curves are low; at the left if another level is close."""
    right: list[float] = []
    for name, level in levels.items():
        height = float(ax.transAxes.inverted().transform(ax.transData.transform((0, level)))[1])
        left = any(abs(height - other) < _LINE for other in right)
        if not left:
            right.append(height)
        ax.annotate(
            f"{name} {level:.3g}", (0 if left else 1, level), xycoords=ax.get_yaxis_transform(), xytext=(2 * left, 1),
            textcoords="offset points", ha="left" if left else "right", va="bottom", color=style.ACCENT,
            path_effects=[withStroke(linewidth=2, foreground="white")],  # to be read where a curve passes behind
        )  # fmt: skip


def _finite(steps: Sequence[int], values: Sequence[float | None], name: str) -> list[tuple[int, float]]:
    """(step, loss) for every loss that was measured and is finite."""
    if len(values) != len(steps):
        raise ArgumentError(f"{len(values)} {name} losses for {len(steps)} steps")
    return [(step, value) for step, value in zip(steps, values, strict=True) if value is not None and isfinite(value)]


def _left_out(steps: int, drawn: int) -> str:
    return f"{steps - drawn} of {counted(steps, 'training loss')} left out: not finite." if drawn < steps else ""


def _finding(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """The picture in a sentence."""
    name = "validation" if "validation" in points else "training"
    (first, before), (last, after) = points[name][0], points[name][-1]
    if first == last:
        return f"{name.capitalize()} loss is {after:.3g} at step {last}"
    if before == after:
        return f"{name.capitalize()} loss stays at {after:.3g}"
    return f"{name.capitalize()} loss {'falls' if after < before else 'rises'} from {before:.3g} to {after:.3g}"
