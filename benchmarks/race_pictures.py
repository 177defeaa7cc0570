"""Race pictures: how fast contenders are at a collective, over sizes: bandwidth, and time relative to a memory copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simdist.bench.race import COPY
from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.plots.sweep import over_size
from simdist.words import counted

if TYPE_CHECKING:
    from benchmarks.collectives import Row

__all__ = ["race_bandwidth", "race_over_limit"]

_FIRST = ("direct", "direct, own memory", "auto", "auto, own memory")
_RIVALS = ("vendor", "gloo")
_MESSAGES = "best by messages"


def race_bandwidth(results: Iterable[Row], *, width: float = style.PAGE) -> Figure:
    """Bus bandwidth over size, as defined by nccl-tests; a panel for each number of ranks, warm arrays above cold ones.

    simdist's message-passing algorithms are one line: the fastest of them at each size.

    Args:
        results: of one operation.
        width: of the figure, in inches.

    Raises:
        ArgumentError: nothing to draw, or several operations.
    """
    return _draw(results, width, lambda r: r.busbw / 1e9, "bus bandwidth, GB/s", "Bus bandwidth of {} over size", max)


def race_over_limit(results: Iterable[Row], *, width: float = style.PAGE) -> Figure:
    """Time relative to that in which all ranks at once copy the same number of bytes; see `race_bandwidth`."""
    title = "Time of {} as a multiple of the time in which all ranks copy the same number of bytes"
    return _draw(results, width, lambda r: r.over_limit, "time / time of a copy", title, min)


def _draw(
    results: Iterable[Row],
    width: float,
    value: Callable[[Row], float],
    label: str,
    title: str,
    best: Callable[[Iterable[float]], float],
) -> Figure:
    rows = list(results)
    operations = {row.operation for row in rows}
    if len(operations) != 1:
        raise ArgumentError(f"a race shows one operation, but these are {len(operations)}: {sorted(operations)}")
    counts, kinds = sorted({row.ranks for row in rows}), sorted({row.cold for row in rows})
    every = {
        (ranks, cold): _lines([r for r in rows if (r.ranks, r.cold) == (ranks, cold)], value, best)
        for ranks in counts
        for cold in kinds
    }
    names = sorted({name for lines in every.values() for name in lines}, key=_rank)
    with style.styled():
        fig = style.figure(width, 0.9 + 2.1 * len(kinds))
        axes = fig.subplots(len(kinds), len(counts), squeeze=False, sharex=True, sharey=True)
        for row, cold in zip(axes, kinds, strict=True):
            for ax, ranks in zip(row, counts, strict=True):
                _panel(ax, every[ranks, cold], names, best is min, width / len(counts))
                ax.set_title(f"{counted(ranks, 'rank')}, {'cold' if cold else 'warm'} arrays")
            row[0].set_ylabel(label)
        for ax in axes[-1]:
            ax.set_xlabel("size of the array")
        key = [Line2D([], [], label=name, **style.series(i)) for i, name in enumerate(names)]
        style.legend(fig, key, letters=16)
        style.title(fig, title.format(operations.pop()))
    return fig


def _rank(name: str) -> tuple[int, str]:
    """Sort key: simdist first."""
    order = (*_FIRST, _MESSAGES)
    return (order.index(name), "") if name in order else (len(order), name)


def _lines(
    rows: Sequence[Row], value: Callable[[Row], float], best: Callable[[Iterable[float]], float]
) -> dict[str, dict[int, float]]:
    """The values of each contender by size; all message-passing algorithms are one contender."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.contender == COPY:
            continue
        name = row.contender if row.contender.startswith((*_FIRST, *_RIVALS)) else _MESSAGES
        line = found.setdefault(name, {})
        line[row.num_bytes] = best((line.get(row.num_bytes, value(row)), value(row)))
    return found


def _panel(ax: Axes, lines: dict[str, dict[int, float]], names: Sequence[str], limit: bool, width: float) -> None:
    over_size(ax, "{:g}".format, width)
    if limit:
        ax.axhline(1, color=style.INK, linewidth=0.8, zorder=1)
    for name, line in lines.items():
        ax.plot(sorted(line), [line[n] for n in sorted(line)], **style.series(names.index(name)))
