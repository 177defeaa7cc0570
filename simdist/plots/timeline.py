"""Timeline: a run as it was recorded, true to scale: a row for each stream of each rank.

`simdist.plots.boxes` defines the place of each span in its row. Where a row is white, nothing was recorded.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from simdist.plots import style
from simdist.plots.arrows import Point, draw_arrows
from simdist.plots.boxes import STRIP, Box, boxes, words
from simdist.plots.view import MARGIN, View, finding
from simdist.trace import Span, Trace
from simdist.trace.kind import COLLECTIVES, kind
from simdist.trace.layout import Layout
from simdist.trace.match import match

__all__ = ["timeline"]

_MOST_SPANS = 20_000
_MOST_LABELS = 400
_EDGE: dict[str, Any] = {"edgecolor": "#888888", "linewidth": 0.3}  # in the key


def timeline(
    trace: Trace,
    *,
    ranks: Sequence[int] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    arrows: bool = False,
    width: float = style.PAGE,
    most_spans: int = _MOST_SPANS,
) -> Figure:
    """The timeline of a run.

    Args:
        ranks: which to show, in this order; by default all, but at most 32.
        start_s, end_s: the part to show, on the trace's clock; all if not given.
        arrows: whether to draw a line from each send to its receive.
        width: of the figure, in inches.
        most_spans: with more spans than these, rows show how each moment was spent instead of single spans.

    Raises:
        ArgumentError: there is no such rank, or nothing to draw.
    """
    view = View.of(trace, ranks, start_s, end_s, width)
    rows = len(view.rows)
    with style.styled():
        fig = style.figure(width, 0.95 + rows * _row_inches(rows))
        ax = fig.subplots()
        kinds = _shares(ax, view) if len(view.indices) > most_spans else _bars(ax, view)
        if arrows:
            _arrows(ax, view)
        _axes(ax, view)
        key = [Patch(**_EDGE | style.look(kind), label=word) for kind, word in kinds.items()]
        style.legend(fig, key, " ".join(view.notes))
        style.title(fig, finding(view))
    return fig


def _row_inches(rows: int) -> float:
    """The height of a row, given their number."""
    return max(0.09, min(0.36, 5.0 / rows))


# -- span by span -------------------------------------------------------------------------------------

_Edges = tuple[float, float, float, float]  # left, right, top, bottom

_FRONT = {"frame": 0, "collective": 1, "strip": 2, "operation": 3, "message": 4}


def _bars(ax: Axes, view: View) -> dict[str, str]:
    """Draw every span; returns the kinds that occur, with their names."""
    spans = view.spans
    found: dict[tuple[int, bool, str], list[_Edges]] = defaultdict(list)  # (layer, whether innermost, kind)
    labels: list[tuple[float, Span, float, float, str]] = []
    roomy = _row_inches(len(view.rows)) > 0.24
    placed = boxes(spans)
    for s, (role, what, top, bottom), encloses in zip(spans, placed, Layout.of(spans).encloses, strict=True):
        y = view.rows[s.rank, s.stream]
        left, right = view.x(s.start_s), view.x(s.end_s)
        found[_FRONT[role], not encloses, what].append((left, right, y + top, y + bottom))
        middle, named = y + (top + bottom) / 2, role == "operation"
        if role == "collective":
            found[_FRONT["strip"], True, what].append((left, right, y + STRIP[0], y + STRIP[1]))
            middle, named = y + sum(STRIP) / 2, roomy
        if named:
            labels.append((view.points(s), s, (left + right) / 2, middle, style.colour(what)))
    _paint(ax, view, found)
    _write(ax, view, labels, placed)
    return words(placed)


def _paint(ax: Axes, view: View, found: Mapping[tuple[int, bool, str], Sequence[_Edges]]) -> None:
    """Draw the boxes of each kind; an edge separates those that are large enough for one, and for hatches."""
    gap = view.x(view.start_s + 2.5 / 72 / (view.width - MARGIN) * (view.end_s - view.start_s))  # 2.5 points
    thin = 1 / 72 / _row_inches(len(view.rows))  # 1 point
    for (front, _, what), edges in sorted(found.items()):
        colour = style.colour(what)
        face = "none" if front == 0 else style.tint(colour, 0.22) if front == 1 else colour
        edge = "#888888" if what in style.HATCHED else style.FAINT if front == 0 else "white"
        large = [right - left > gap and bottom - top > thin for left, right, top, bottom in edges]
        for wanted, line in ((True, edge), (False, colour)):
            corners = [style.box(*each) for each, is_large in zip(edges, large, strict=True) if is_large == wanted]
            bars = PolyCollection(corners, facecolors=face, edgecolors=line, linewidths=0.4, zorder=front)
            if what in style.HATCHED and wanted:
                bars.set_hatch("////")
            if corners:
                ax.add_collection(bars)


def _write(ax: Axes, view: View, labels: list[tuple[float, Span, float, float, str]], placed: Sequence[Box]) -> None:
    """Write names inside the bars that have room for them, the widest first, if possible beside nested spans."""
    rows: dict[tuple[int, str], list[tuple[Span, str]]] = defaultdict(list)
    for s, box in sorted(zip(view.spans, placed, strict=True), key=lambda each: each[0].start_s):
        rows[s.rank, s.stream].append((s, box.role))
    for points, s, x, y, colour in sorted(labels, key=lambda label: -label[0])[:_MOST_LABELS]:
        need = 3.6 * len(s.name) + 4
        if points > need and kind(s.name) not in COLLECTIVES:
            row = rows[s.rank, s.stream]
            first, end = bisect_left(row, s.start_s, key=_start), bisect_right(row, s.end_s, key=_start)
            held = [(o, role) for o, role in row[first:end] if o.end_s <= s.end_s and o.seconds < s.seconds]
            free = _longest(s, [o for o, _ in held])
            if view.points(free) <= need:  # then over messages, but not over other work
                free = _longest(s, [o for o, role in held if role == "operation"])
            points, x = view.points(free), view.x((free.start_s + free.end_s) / 2)
        if points > need:
            halo = [withStroke(linewidth=1.2, foreground=colour)]  # to be read over messages
            look: Any = {"fontsize": 5, "color": style.ink_on(colour), "path_effects": halo}
            ax.text(x, y, s.name, ha="center", va="center", zorder=6, clip_on=True, **look)


def _start(each: tuple[Span, str]) -> float:
    return each[0].start_s


def _longest(s: Span, held: Sequence[Span]) -> Span:
    """The longest part of a span that is free of the nested spans, given in the order of their starts."""
    parts, since_s = [], s.start_s
    for each in held:
        parts.append((each.start_s - since_s, since_s))
        since_s = max(since_s, each.end_s)
    seconds, start_s = max([*parts, (s.end_s - since_s, since_s)])
    return s._replace(start_s=start_s, end_s=start_s + seconds)


def _arrows(ax: Axes, view: View) -> None:
    """A line from where each send begins to where its receive ends."""

    def ends(send: Span, recv: Span) -> tuple[Point, Point]:
        row, its_row = view.rows[send.rank, send.stream], view.rows[recv.rank, recv.stream]
        return (view.x(send.start_s), row - 0.02), (view.x(recv.end_s), its_row + 0.28)

    shown, spans = set(view.indices), view.trace.spans
    messages = [(spans[i], spans[j]) for i, j in match(spans) if i in shown and j in shown]
    view.notes += draw_arrows(ax, messages, ends, colour=style.INK, head=4)


# -- too many to draw one by one ----------------------------------------------------------------------


def _shares(ax: Axes, view: View) -> dict[str, str]:
    """Draw how each moment of each row was spent; returns the kinds shown, with their names."""
    columns = int((view.width - MARGIN) * 120)
    edges = np.linspace(view.start_s, view.end_s, columns + 1)
    length, sign = view.unit
    for row, activity in view.activity.items():
        t = np.unique(np.concatenate([activity.marks(), edges]))
        computing, communicating, waiting = activity.split(t)
        column = np.clip(np.searchsorted(edges, t[:-1], side="right") - 1, 0, columns - 1)
        top = np.full(columns, view.rows[row] + 0.45)
        for what, stretches in (("compute", computing), ("send", communicating & ~waiting), ("wait", waiting)):
            spent = np.bincount(column, weights=np.diff(t) * stretches, minlength=columns) / (edges[1] - edges[0])
            bottom, top = top, top - 0.9 * spent
            x = np.repeat(edges - view.start_s, 2)[1:-1] / length
            ax.fill_between(x, np.repeat(bottom, 2), np.repeat(top, 2), color=style.colour(what), lw=0, rasterized=True)
    each = (edges[1] - edges[0]) / length
    view.notes.append(
        f"{len(view.indices):,} spans are too many to draw individually: "
        f"each column, {each:.3g} {sign} wide, shows how its time was divided."
    )
    return {"compute": "computing", "send": "communicating", "wait": "waiting for a rank"}


# -- around it ----------------------------------------------------------------------------------------


def _axes(ax: Axes, view: View) -> None:
    """Write the names of the rows, and the scale."""
    several = any(stream != "main" for _, stream in view.rows)
    names = [f"rank {rank}" if stream == "main" or not several else stream for rank, stream in view.rows]
    style.name_rows(ax, names, 6.5)
    ax.set_xlim(0, view.x(view.end_s))
    for before, after in pairwise(view.rows):
        if before[0] != after[0]:
            ax.axhline(view.rows[after] - 0.5, color=style.FAINT, linewidth=0.4, zorder=0)
    since = "" if view.start_s == 0 else f" since {style.seconds(view.start_s)}"
    ax.set_xlabel(f"time{since} ({view.unit[1]})")
