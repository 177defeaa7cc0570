"""Memory: what a rank's memory held over time."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simdist.arrays import CATEGORIES, Moment
from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.trace.memory import within
from simdist.words import counted

__all__ = ["COLOURS", "memory"]

COLOURS = {
    "parameters": style.DONE,
    "gradients": "#4477AA",
    "optimizer state": "#88CCEE",
    "activations": "#EE8866",
    "communication": "#882255",
    "buffers": style.FAINT,
}
_MOST_MOMENTS = 2000


def memory(
    moments: Sequence[Moment], *, start_s: float | None = None, end_s: float | None = None, width: float = style.PAGE
) -> Figure:
    """Bytes alive over time, stacked by category; the peak is marked, with the operation that was running.

    Memory that an operation allocates and frees before it returns is not in the ledger, and so not in the picture.

    Args:
        moments: of a ledger. Of very many, only the largest of each group of neighbours is drawn.
        start_s, end_s: show only this time.
        width: of the figure, in inches.

    Raises:
        ArgumentError: there is nothing to draw.
    """
    shown = _shown(moments, -inf if start_s is None else start_s, inf if end_s is None else end_s)
    if not any(m.total for m in shown):
        raise ArgumentError(f"no memory was recorded in this time, of {counted(len(moments), 'moment')} in all")
    peak = max(shown, key=lambda m: m.total)
    first_s = shown[0].time_s
    last_s = max(shown[-1].time_s if end_s is None or end_s == inf else end_s, first_s + 1e-9)
    drawn, note = _thinned(shown, last_s)
    used = [i for i in range(len(CATEGORIES)) if any(m.live[i] for m in shown)]
    length_s, second = style.unit_of_time(last_s - first_s)
    num_bytes, unit = style.unit_of_bytes(peak.total)
    with style.styled():
        fig = style.figure(width, 2.6)
        ax = fig.subplots()
        t = [(m.time_s - first_s) / length_s for m in drawn]
        _pile(ax, t, {i: [m.live[i] / num_bytes for m in drawn] for i in used})
        ax.set(xlabel=f"time ({second})", ylabel=f"memory ({unit})", xlim=(0, t[-1]))
        _mark(ax, (peak.time_s - first_s) / length_s, peak, num_bytes)
        ax.set_ylim(0, 1.22 * peak.total / num_bytes)  # room for the text at the peak
        style.legend(fig, [Patch(color=COLOURS[CATEGORIES[i]], label=CATEGORIES[i]) for i in used], note)
        style.title(fig, _finding(peak))
    return fig


def _shown(moments: Sequence[Moment], start_s: float, end_s: float) -> list[Moment]:
    """The moments in this time, beginning with the state at its start; none if it starts after its end or the last."""
    if not moments or start_s > min(end_s, moments[-1].time_s):
        return []
    return [m._replace(time_s=max(m.time_s, start_s)) for m in within(moments, start_s, end_s)]


def _pile(ax: Axes, t: list[float], heights: Mapping[int, list[float]]) -> None:
    """Stack one area for each category, by its index."""
    floor = np.zeros(len(t))
    for i, each in heights.items():
        top = floor + each
        ax.fill_between(t, floor, top, step="post", color=COLOURS[CATEGORIES[i]], linewidth=0)
        floor = top


def _thinned(shown: list[Moment], last_s: float) -> tuple[list[Moment], str]:
    """At most _MOST_MOMENTS moments, the peak among them, then the end; and a note about the others."""
    if len(shown) <= _MOST_MOMENTS:
        return [*shown, shown[-1]._replace(time_s=last_s)], ""
    edges = np.linspace(0, len(shown), _MOST_MOMENTS + 1).astype(int).tolist()
    drawn = [max(shown[a:b], key=lambda m: m.total) for a, b in pairwise(edges)]
    drawn.append(shown[-1]._replace(time_s=last_s))
    return drawn, f"Of {len(shown):,} moments, the largest of about every {len(shown) // _MOST_MOMENTS + 1} is drawn."


def _mark(ax: Axes, x: float, peak: Moment, num_bytes: int) -> None:
    """Mark the peak, and write beside it the operation that was running."""
    left, right = ax.get_xlim()
    beyond = x > (left + right) / 2
    ax.plot([x], [peak.total / num_bytes], "v", color=style.ACCENT, markersize=4, clip_on=False, zorder=5)
    ax.annotate(
        f"{style.size(peak.total)} in {peak.at}" if peak.at else style.size(peak.total),
        (x, peak.total / num_bytes),
        xytext=(-5 if beyond else 5, 4),
        textcoords="offset points",
        ha="right" if beyond else "left",
        color=style.ACCENT,
    )


def _finding(peak: Moment) -> str:
    """The picture in a sentence."""
    ends = list(accumulate(sorted(peak.live, reverse=True)))
    most = next(i for i, end in enumerate(ends) if end >= 0.8 * peak.total) + 1  # categories make up most of it
    order = sorted(range(len(CATEGORIES)), key=lambda i: -peak.live[i])[:most]
    parts = ", ".join(f"{peak.live[i] / peak.total:.0%} {CATEGORIES[i]}" for i in order)
    where = f" in {peak.at}" if peak.at else ""
    return f"Memory peaks at {style.size(peak.total)}{where}: {parts}"
