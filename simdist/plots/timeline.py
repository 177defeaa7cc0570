"""Timeline: a run as it was recorded, true to scale: a row for each stream of each rank.

    full height     computing
    strip on top    a collective; paler below it, what belongs to it
    below it        sends, and below these receives, from when they are asked for; those under way at the
                    same time share the height

Where a row is white, nothing was recorded.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simdist.plots import style
from simdist.plots.view import MARGIN, View, finding
from simdist.trace import Span, Trace
from simdist.trace.kind import COLLECTIVES, COMPUTING, MESSAGES, kind
from simdist.trace.layout import Layout
from simdist.trace.match import match

__all__ = ["timeline"]

_MOST_SPANS = 20_000
_MOST_ARROWS = 2_000
_MOST_LABELS = 400


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
        ranks: which to show, in this order; where not given all, or 32 of more.
        start_s, end_s: the part to show, on the trace's clock; all where not given.
        arrows: whether to draw a line from each send to its receive.
        width: of the figure, in inches.
        most_spans: of more than these no single one is drawn; rows then show how each moment was spent.

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
        patches = [
            Patch(facecolor=style.colour(k), hatch=_HATCH.get(k), edgecolor="#888888", linewidth=0.3, label=word)
            for k, word in kinds.items()
        ]
        style.legend(fig, patches, " ".join(view.notes))
        style.title(fig, finding(view))
    return fig


def _row_inches(rows: int) -> float:
    """How high a row is, of so many."""
    return max(0.09, min(0.36, 5.0 / rows))


_HATCH = {"wait": "////"}
_WORDS = {"recv": "receive", "wait": "waiting", "compute": "computing"}


# -- span by span -------------------------------------------------------------------------------------

Box = tuple[float, float, float, float]  # left, right, top, bottom


def _bars(ax: Axes, view: View) -> dict[str, str]:
    """Draw every span; returns the kinds that occur, and what to call them."""
    spans = view.spans
    encloses = Layout.of(spans).encloses
    lanes = _flights(spans)
    boxes: dict[tuple[int, str], list[Box]] = defaultdict(list)  # (in front of what, kind)
    labels: list[tuple[float, Span, float, float, str]] = []
    roomy = _row_inches(len(view.rows)) > 0.24
    for i, s in enumerate(spans):
        y, what = view.rows[s.rank, s.stream], kind(s.name)
        left, right = view.x(s.start_s), view.x(s.end_s)
        if what in MESSAGES:
            lane, number = lanes[i]
            high = 0.28 / number
            top = y + (-0.16 if what == "send" else 0.14) + lane * high
            boxes[4, what].append((left, right, top, top + high * (0.85 if number > 1 else 1)))
        elif what in COLLECTIVES:
            boxes[1, what].append((left, right, y - 0.44, y + 0.42))
            boxes[2, what].append((left, right, y - 0.44, y - 0.17))
            if roomy:
                labels.append((view.points(s), s, (left + right) / 2, y - 0.3, style.ink_on(style.colour(what))))
        elif what in COMPUTING or what == "wait" or not encloses[i]:
            what = "compute" if what == "other" else what
            boxes[3, what].append((left, right, y - 0.42, y + 0.42))
            labels.append((view.points(s), s, (left + right) / 2, y, style.ink_on(style.colour(what))))
        else:
            boxes[0, "other"].append((left, right, y - 0.48, y + 0.48))
    _paint(ax, view, boxes)
    _write(ax, labels)
    order = [*COMPUTING, *COLLECTIVES, *MESSAGES, "wait"]
    return {what: _WORDS.get(what, what) for what in sorted({what for front, what in boxes if front}, key=order.index)}


def _paint(ax: Axes, view: View, boxes: Mapping[tuple[int, str], Sequence[Box]]) -> None:
    """Draw the boxes of each kind; a white edge parts those that are wide enough for one."""
    gap = view.x(view.start_s + 2.5 / 72 / (view.width - MARGIN) * (view.end_s - view.start_s))  # 2.5 points
    for (front, what), found in sorted(boxes.items()):
        colour = style.colour(what)
        face = "none" if front == 0 else style.tint(colour, 0.22) if front == 1 else colour
        edge = style.FAINT if front == 0 else "white"
        edges = [edge if right - left > gap else colour for left, right, _, _ in found]
        corners = [[(a, c), (b, c), (b, d), (a, d)] for a, b, c, d in found]
        bars = PolyCollection(corners, facecolors=face, edgecolors=edges, linewidths=0.4, zorder=front)
        if what in _HATCH:
            bars.set(hatch=_HATCH[what], edgecolor="#888888")
        ax.add_collection(bars)


def _flights(spans: Sequence[Span]) -> dict[int, tuple[int, int]]:
    """For each message the lane that it gets among those in flight with it, and how many lanes its row has."""
    rows: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for i, s in enumerate(spans):
        if s.name in MESSAGES:
            rows[s.rank, s.stream, s.name].append(i)
    found: dict[int, tuple[int, int]] = {}
    for indices in rows.values():
        lane, lanes = {}, 0
        free: list[int] = []
        busy: list[tuple[float, int]] = []  # (until when, lane), soonest first
        for i in sorted(indices, key=lambda i: (spans[i].start_s, spans[i].end_s)):
            while busy and busy[0][0] <= spans[i].start_s:
                heappush(free, heappop(busy)[1])
            if not free:
                heappush(free, lanes)
                lanes += 1
            lane[i] = heappop(free)
            heappush(busy, (spans[i].end_s, lane[i]))
        found.update({i: (k, lanes) for i, k in lane.items()})
    return found


def _write(ax: Axes, labels: list[tuple[float, Span, float, float, str]]) -> None:
    """Names inside the bars that have room for them, the widest first."""
    for points, s, x, y, colour in sorted(labels, key=lambda label: -label[0])[:_MOST_LABELS]:
        if points > 3.6 * len(s.name) + 4:
            ax.text(x, y, s.name, ha="center", va="center", fontsize=5, color=colour, zorder=6, clip_on=True)


def _arrows(ax: Axes, view: View) -> None:
    """A line from where each send begins to where its receive ends."""
    shown, spans = set(view.indices), view.trace.spans
    pairs = [(i, j) for i, j in match(spans) if i in shown and j in shown]
    if len(pairs) > _MOST_ARROWS:
        view.notes.append(f"{_MOST_ARROWS:,} of {len(pairs):,} messages have an arrow.")
    lines, heads = [], []
    for i, j in pairs[:_MOST_ARROWS]:
        send, recv = spans[i], spans[j]
        end = view.x(recv.end_s), view.rows[recv.rank, recv.stream] + 0.28
        lines.append([(view.x(send.start_s), view.rows[send.rank, send.stream] - 0.02), end])
        heads.append(end)
    if lines:
        ax.add_collection(LineCollection(lines, colors=style.INK, linewidths=0.5, zorder=5))
        ax.scatter([x for x, _ in heads], [y for _, y in heads], s=4, color=style.INK, zorder=5, linewidths=0)


# -- too many to draw one by one ----------------------------------------------------------------------


def _shares(ax: Axes, view: View) -> dict[str, str]:
    """Draw for each moment of each row how it was spent; returns the kinds that this tells apart, and their names."""
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
        f"{len(view.indices):,} spans are too many to draw one by one: "
        f"each column, {each:.3g} {sign} wide, shows how it was shared out."
    )
    return {"compute": "computing", "send": "communicating", "wait": "waiting for a rank"}


# -- around it ----------------------------------------------------------------------------------------


def _axes(ax: Axes, view: View) -> None:
    """Names of the rows, and the scale."""
    rows = len(view.rows)
    several = any(stream != "main" for _, stream in view.rows)
    names = [f"rank {rank}" if stream == "main" or not several else stream for rank, stream in view.rows]
    every = max(1, -(-rows // 40))
    ax.set_yticks(range(0, rows, every), names[::every])
    ax.set(xlim=(0, view.x(view.end_s)), ylim=(rows - 0.45, -0.55))
    ax.tick_params(axis="y", length=0, labelsize=max(3.5, min(6.5, 200 / rows)))
    for before, after in zip(list(view.rows)[:-1], list(view.rows)[1:], strict=True):
        if before[0] != after[0]:
            ax.axhline(view.rows[after] - 0.5, color=style.FAINT, linewidth=0.4, zorder=0)
    ax.spines["left"].set_visible(False)
    since = "" if view.start_s == 0 else f" since {style.seconds(view.start_s)}"
    ax.set_xlabel(f"time{since} ({view.unit[1]})")
