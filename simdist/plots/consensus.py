"""Consensus: how fast ranks that average with their neighbours converge to each other."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from simdist.asynchronous.consensus import recorded
from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.plots.records import by_name
from simdist.trace import Trace
from simdist.words import counted

__all__ = ["consensus"]

_ROUNDING = 1e-28  # of the first error: smaller ones are rounding


def consensus(
    traces: Mapping[str, Trace], contraction: Mapping[str, float] | None = None, *, width: float = style.COLUMN
) -> Figure:
    """The consensus error over time, on a log scale, and the upper bound by the eigenvalues.

    Args:
        traces: of runs, by name, whose records have consensus errors (see
            `simdist.asynchronous.Snapshots`).
        contraction: for some of them, by the same names, the largest share of the error that remains from one
            recorded instant to the next (see `Mixing.contraction`): a dashed line from the first error. It holds
            for averaging only; gradients pull ranks apart again.
        width: of the figure, in inches.

    Raises:
        ArgumentError: there is nothing to draw, a record has no consensus errors or is no trace, or a bound belongs to
            no trace.
    """
    bounds = contraction or {}
    errors = {name: recorded(trace.spans) for name, trace in by_name(traces).items()}
    _check(errors, bounds)
    length, sign = style.unit_of_time(max(found[-1][0] for found in errors.values()))
    with style.styled():
        fig = style.figure(width, 2.8)
        ax = fig.subplots()
        lines, left_out = [], 0
        for i, (name, found) in enumerate(errors.items()):
            drawn = _above_rounding(found, length)
            left_out += len(found) - len(drawn)
            look = style.series(i)
            lines += ax.plot(*zip(*drawn, strict=True), label=name, markevery=max(1, len(drawn) // 8), **look)
            if name in bounds:
                allowed = [(t, found[0][1] * bounds[name] ** k) for k, (t, _) in enumerate(found)]
                ax.plot(*zip(*_above_rounding(allowed, length), strict=True), **_BOUND | {"color": look["color"]})
        if bounds:
            lines.append(Line2D([], [], label="at most, by eigenvalues", **_BOUND))
        ax.set(xlabel=f"time ({sign})", ylabel="consensus error", yscale="log")
        _mark_powers(ax)
        style.legend(fig, lines, f"{counted(left_out, 'error')} left out: as small as rounding." if left_out else "")
        style.title(fig, _finding(errors))
    return fig


def _mark_powers(ax: Any) -> None:
    """Mark a few powers of ten on the vertical axis."""
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.yaxis.set_major_formatter(lambda error, _: f"{error:.0e}")
    ax.minorticks_off()
    style.grid(ax)


_BOUND: dict[str, Any] = {"color": style.INK, "linestyle": "--", "linewidth": 0.8}


def _above_rounding(points: Sequence[tuple[float, float]], length: float) -> list[tuple[float, float]]:
    """The points above the rounding error of the first, with times in units of this length."""
    return [(t / length, error) for t, error in points if error > _ROUNDING * points[0][1]]


def _check(errors: Mapping[str, Sequence[tuple[float, float]]], bounds: Mapping[str, float]) -> None:
    """Raise ArgumentError for what cannot be drawn."""
    if not errors:
        raise ArgumentError("no trace to draw consensus errors of")
    for name, found in errors.items():
        if not found or not found[0][1] > 0 or not all(isfinite(error) for _, error in found):
            raise ArgumentError(f"the record of {name!r} has no consensus errors that start above 0 and are finite")
    unknown = sorted(set(bounds) - set(errors))
    if unknown:
        raise ArgumentError(f"a bound for {unknown[0]!r}, which is none of {sorted(errors)}")


def _finding(errors: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """The picture in a sentence."""
    shares = {name: found[-1][1] / found[0][1] for name, found in errors.items()}
    steps = max(len(found) for found in errors.values()) - 1
    rests = ", ".join(f"{_share(share)} on {name}" for name, share in shares.items())
    return f"Consensus error left after {counted(steps, 'recorded step')}, relative to the first: {rests}"


def _share(share: float) -> str:
    return "nothing" if share <= _ROUNDING else f"{share:.1e}" if share < 0.01 else f"{share:.2g}"
