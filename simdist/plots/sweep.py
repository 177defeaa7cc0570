"""Sweep: how long collectives take over sizes and numbers of ranks: measured, predicted and by formula."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from simdist.collectives.measurement import Measurement
from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.words import counted

__all__ = ["Crossover", "crossovers", "in_words", "lines_of", "over_size", "sweep"]


class Crossover(NamedTuple):
    """From `num_bytes` on, `algorithm` is the fastest."""

    num_bytes: float
    algorithm: str


Line = dict[int, float]
"""Seconds by size."""

_SOURCES: dict[str, dict[str, Any]] = {
    "measured": {"linestyle": "-", "linewidth": 1.2, "zorder": 4},
    "predicted": {"linestyle": "--", "linewidth": 0.9, "zorder": 3},
    "formula": {"linestyle": "-", "linewidth": 3.5, "alpha": 0.25, "zorder": 2},
}


_SAID = {"predicted": "as predicted", "formula": "by formula"}


def crossovers(lines: dict[str, Line]) -> list[Crossover]:
    """Which algorithm is fastest from which size on; the first from the smallest size.

    Between two sizes, times are interpolated linearly in the bytes, as in the formulas. Of equally fast algorithms the
    one that stays fastest longest counts, so there is no change between equals.

    Args:
        lines: the times of each algorithm; a size that one of them lacks is skipped.
    """
    sizes = sorted(set.intersection(*(set(line) for line in lines.values()))) if lines else []
    runs: list[tuple[int, set[str]]] = []  # the size from which on these are the fastest
    for size in sizes:
        best = _fastest(lines, size)
        if runs and runs[-1][1] & best:
            runs[-1] = runs[-1][0], runs[-1][1] & best
        else:
            runs.append((size, best))
    found = [Crossover(size, min(names)) for size, names in runs[:1]]
    for (_, before), (b, names) in pairwise(runs):
        old, new, a = min(before), min(names), sizes[sizes.index(b) - 1]
        behind, ahead = lines[new][a] - lines[old][a], lines[old][b] - lines[new][b]
        found.append(Crossover(a + (b - a) * max(0.0, behind) / (max(0.0, behind) + ahead), new))
    return found


_EQUAL = 1e-9
"""Relative difference of times up to which they count as equal: clocks are rounded."""


def _fastest(lines: dict[str, Line], size: int) -> set[str]:
    """The algorithms that take the least time at this size."""
    least = min(line[size] for line in lines.values())
    return {name for name, line in lines.items() if line[size] <= least * (1 + _EQUAL)}


def sweep(
    measurements: Iterable[Measurement], *, algorithms: Sequence[str] | None = None, width: float = style.PAGE
) -> Figure:
    """Time over size, a panel for each number of ranks, a colour for each algorithm; crossover points are marked.

    The marks are those of the measured times, or of the predicted ones where nothing was measured, or of the
    formulas.

    Args:
        measurements: of one operation, in any order.
        algorithms: which to draw; all if not given.
        width: of the figure, in inches.

    Raises:
        ArgumentError: nothing to draw, or several operations.
    """
    every = [m for m in measurements if algorithms is None or m.algorithm in algorithms]
    operations = {m.operation for m in every}
    if len(operations) != 1:
        raise ArgumentError(f"a sweep shows one operation, but these are {len(operations)}: {sorted(operations)}")
    names, counts = list(dict.fromkeys(m.algorithm for m in every)), sorted({m.ranks for m in every})
    rows = [m for m in every if m.num_bytes > 0]
    with style.styled():
        beside = max(1, min(len(counts), int(width / 2.3)))
        down = -(-len(counts) // beside)
        fig = style.figure(width, 0.85 + 2.2 * down)
        axes = fig.subplots(down, beside, squeeze=False, sharex=True, sharey=True)
        findings = []
        for ax, ranks in zip(axes.flat, counts, strict=False):
            findings.append(_panel(ax, [m for m in rows if m.ranks == ranks], names, ranks, width / beside))
        for ax in axes.flat[len(counts) :]:
            ax.set_axis_off()
        for ax in axes[:, 0]:
            ax.set_ylabel("time")
        for ax in axes.flat[len(counts) - beside : len(counts)]:  # the lowest of each column
            ax.set_xlabel("size of the array")
            ax.tick_params(axis="x", labelbottom=True)
        style.legend(fig, _handles(rows, names), _left_out(len(every) - len(rows)))
        style.title(fig, f"Fastest {operations.pop()} on {_join(findings)}{_accuracy(every)}")
    return fig


def lines_of(rows: Sequence[Measurement], source: str) -> dict[str, Line]:
    """The times of each algorithm from one source, "measured", "predicted" or "formula", where there are any: a single
    rank takes none.
    """
    found: dict[str, Line] = {}
    for m in rows:
        seconds: float | None = getattr(m, f"{source}_s")
        if seconds:
            found.setdefault(m.algorithm, {})[m.num_bytes] = seconds
    return found


def _panel(ax: Axes, rows: Sequence[Measurement], names: Sequence[str], ranks: int, width: float) -> str:
    """Draw one number of ranks on `width` inches; returns the finding in words."""
    over_size(ax, style.seconds, width)
    marked: dict[str, Line] = {}
    by = ""
    for source, look in _SOURCES.items():
        lines = lines_of(rows, source)
        if lines and not marked:
            marked, by = lines, f", fastest {_SAID[source]}" if source in _SAID else ""
        for name, line in lines.items():
            own = style.series(names.index(name))
            if lines is not marked and len(line) > 1:  # a single size makes no line
                own["marker"] = ""
            ax.plot(sorted(line), [line[size] for size in sorted(line)], **own, **look)
    found = crossovers(marked)
    if found:  # an empty panel shares the limits of the others
        _regimes(ax, found, names)
    ax.set_title(f"{counted(ranks, 'rank')}{by}", pad=3 + 6.5 * max(0, len(found) - 1))
    return f"{counted(ranks, 'rank')}: {in_words(found)}"


class _Marks(LogLocator):
    """Marks at 1, 2 and 5 times powers of ten; over more than three decades labels would touch: only the powers."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """See Matplotlib."""
        self.set_params(subs=(1.0, 2.0, 5.0) if vmax <= 1e3 * vmin else (1.0,))
        return super().tick_values(vmin, vmax)


def over_size(ax: Axes, written: Callable[[float], str], width: float) -> None:
    """Set log scales: an array's size across, on `width` inches, and upwards values that `written` formats."""
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=min(7, int(width / 0.5))))
    ax.xaxis.set_major_formatter(lambda num_bytes, _: style.size(num_bytes))
    ax.yaxis.set_major_locator(_Marks(numticks=12))
    ax.yaxis.set_major_formatter(lambda value, _: written(value))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
        axis.set_minor_locator(NullLocator())
    style.grid(ax)
    ax.set_axisbelow(True)


def _regimes(ax: Axes, found: Sequence[Crossover], names: Sequence[str]) -> None:
    """Shade the background in the colour of the fastest, and name above the axes each that takes over."""
    left, right = ax.get_xlim()
    ends = [change.num_bytes for change in found[1:]] + [right]
    for i, (change, end) in enumerate(zip(found, ends, strict=True)):
        colour = style.series(names.index(change.algorithm))["color"]
        start = change.num_bytes if i else left
        ax.axvspan(start, end, color=style.tint(colour, 0.09), linewidth=0, zorder=0)
        if i:
            ax.axvline(start, color=colour, linewidth=0.8, zorder=1)
            ax.annotate(
                f"{change.algorithm} from {style.size(start)}", (start, 1), xycoords=("data", "axes fraction"),
                xytext=(0, 2 + 6.5 * (len(found) - 1 - i)), textcoords="offset points", fontsize=5.5, color=colour,
                ha="right" if start * start > left * right else "left",
            )  # fmt: skip
    ax.set_xlim(left, right)


def in_words(found: Sequence[Crossover]) -> str:
    """Which algorithm is the fastest from which size on: "tree, ring from 64 KiB"."""
    if not found:
        return "nothing to compare"
    return ", ".join([found[0].algorithm, *(f"{c.algorithm} from {style.size(c.num_bytes)}" for c in found[1:])])


def _join(findings: Sequence[str]) -> str:
    """All findings, or the first and the last of many."""
    return "; on ".join(findings if len(findings) <= 2 else [findings[0], findings[-1]])


def _accuracy(rows: Sequence[Measurement]) -> str:
    """How far predictions are off, if there are measurements."""
    ratios = [m.measured_s / m.predicted_s for m in rows if m.measured_s and m.predicted_s]
    if not ratios:
        return ""
    return f". Measured and predicted differ by a factor of {median(max(r, 1 / r) for r in ratios):.2g} (median)"


def _left_out(empty: int) -> str:
    return f"{counted(empty, 'figure')} for an empty array left out: a log scale has no 0." if empty else ""


def _handles(rows: Sequence[Measurement], names: Sequence[str]) -> list[Line2D]:
    """The key: a colour for each algorithm, a line for each source."""
    key = [Line2D([], [], linewidth=1.4, label=name, **style.series(i)) for i, name in enumerate(names)]
    for source, look in _SOURCES.items():
        if lines_of(rows, source):
            key.append(Line2D([], [], **{"color": style.INK, "label": source, **look}))
    return key
