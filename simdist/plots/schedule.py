"""Schedule: the picture of a pipeline, one row per rank, from the record of its run or of its simulation.

    cell     an action, true to scale, with its micro-batch; paler for later stages of the rank
    strip    at the bottom of a cell: the weight gradients, if computed together with the input's
    half     a cell: two actions at once
    white    idle

Below it, if asked for, each rank's memory over time.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Memory, Simulation, Times, parse
from simdist.parallel.pipeline.record import action_spans, recorded
from simdist.plots import style
from simdist.plots.arrows import Point, draw_arrows
from simdist.plots.records import by_name
from simdist.plots.view import MARGIN
from simdist.trace import Span, Trace
from simdist.trace.kind import kind
from simdist.words import counted

__all__ = ["pipeline_schedule"]

_MOST_NUMBERS = 3_000
_STRIP = 0.22  # of a cell's height
_PALEST = 0.4


def pipeline_schedule(
    runs: Mapping[str, Trace],
    *,
    memory: Memory | None = None,
    arrows: bool = False,
    unit: str = "s",
    width: float = style.PAGE,
) -> Figure:
    """One or several pipelines, one above the other on the same time axis.

    Args:
        runs: name -> record, whose spans of pipeline actions are drawn: F0, 2B1, F3&B0.
        memory: of a micro-batch; if given, each rank's memory over time is drawn too.
        arrows: whether to draw a line from where each message is produced to where it is consumed.
        unit: of the time; seconds are written as ms or µs if that reads better.
        width: of the figure, in inches.

    Raises:
        ArgumentError: nothing to draw, or a run is no trace.
    """
    pictures = [_Run.of(name, trace) for name, trace in by_name(runs).items()]
    if not pictures:
        raise ArgumentError("no runs to draw; give at least one")
    panels = [(run, kept) for run in pictures for kept in ([None, memory] if memory else [None])]
    heights = [_inches(run) for run, _ in panels]
    end = max(run.end for run in pictures) or 1.0
    length, sign = style.unit_of_time(end) if unit == "s" else (1.0, unit)
    notes: list[str] = []
    with style.styled():
        fig = style.figure(width, 0.95 + sum(heights) + 0.33 * len(panels))
        axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (run, kept) in zip(axes, panels, strict=True):
            scale = _Scale(length, sign, (width - MARGIN) * 72 / end * length, _inches(run) * 72 / len(run.cells))
            title = _kept(ax, run, kept, scale) if kept else _title(run, scale)
            notes += [] if kept else _cells(ax, run, scale) + (_arrows(ax, run, scale) if arrows else [])
            _frame(ax, run, title, width, last=ax is axes[-1])
        axes[-1].set(xlim=(0, end / length), xlabel=f"time ({sign or 'in the unit of the action times'})")
        style.legend(fig, _key(), " ".join(dict.fromkeys(notes)))
        style.title(fig, _finding(pictures))
    return fig


_WORDS = {"F": "forward", "I": "backward", "W": "weight gradients"}


@dataclass(frozen=True, slots=True)
class _Cell:
    """A part of an action: its index and count among the parts that run at once are `half` and `halves`."""

    letter: str
    micro_batch: int
    chunk: int
    start: float
    end: float
    half: int
    halves: int


@dataclass(frozen=True, slots=True)
class _Run:
    """The part of a record that is drawn.

    Attributes:
        went: the recorded rows, and when each action began and ended; the first begins at 0.
        cells: rank -> its cells, in order.
        origin: when the first action began, on the trace's clock.
    """

    name: str
    trace: Trace
    went: Simulation
    cells: list[list[_Cell]]
    origin: float

    @classmethod
    def of(cls, name: str, trace: Trace) -> "_Run":
        found = action_spans(trace)
        if not found:
            raise ArgumentError(f"{name}: no actions of a pipeline, such as F0, in the record to draw")
        spans = [found[rank] for rank in range(trace.ranks)]
        schedule = parse("\n".join(" ".join(s.name for s in row) or "-" for row in spans), name)
        course = recorded(spans)
        cells = [
            [
                _Cell(part.letter, part.micro_batch, part.chunk, start, end, half, len(action.parts))
                for action, start, end in zip(row, starts, ends, strict=True)
                for half, part in enumerate(action.parts)
            ]
            for row, starts, ends in zip(schedule.rows, course.start, course.end, strict=True)
        ]
        origin = min(row[0].start_s for row in spans if row)
        return cls(name, trace, Simulation(schedule, Times(), course), cells, origin)

    @property
    def end(self) -> float:
        """When the last action ended."""
        return self.went.makespan


@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds per unit of the axis, the unit's sign, points on paper per unit, and points per row."""

    length: float
    sign: str
    points: float
    row_points: float


def _inches(run: _Run) -> float:
    """The height of all rows together."""
    return len(run.cells) * max(0.06, min(0.22, 4.0 / len(run.cells)))


# -- cells --------------------------------------------------------------------------------------------


def _colour(letter: str, chunk: int = 0) -> Any:
    return style.tint(style.colour(kind(f"{letter}0")), max(_PALEST, 1 - 0.45 * chunk))


def _key() -> list[Patch]:
    return [Patch(facecolor=_colour(letter), label=word) for letter, word in _WORDS.items()]


def _cells(ax: Axes, run: _Run, scale: _Scale) -> list[str]:
    """Draw every action, and its number where there is room; returns notes."""
    boxes: dict[tuple[str, int], list[list[tuple[float, float]]]] = defaultdict(list)
    numbers: list[tuple[float, float, float, _Cell]] = []
    for y, row in enumerate(run.cells):
        for c in row:
            high = 0.9 / c.halves
            left, right, top = c.start / scale.length, c.end / scale.length, y - 0.45 + c.half * high
            boxes[c.letter, c.chunk].append(style.box(left, right, top, top + high))
            if c.letter == "B":
                boxes["W", c.chunk].append(style.box(left, right, top + (1 - _STRIP) * high, top + high))
            middle = top + high * (0.5 - _STRIP / 2 * (c.letter == "B"))
            numbers.append((right - left, (left + right) / 2, middle, c))
    wide = scale.points * max(number[0] for number in numbers) > 3
    for (letter, chunk), corners in sorted(boxes.items()):
        edge = "white" if wide else "none"
        colour = _colour(letter, chunk)
        ax.add_collection(PolyCollection(corners, facecolors=[colour], edgecolors=edge, linewidths=0.4, zorder=2))
    paler = any(chunk for _, chunk in boxes)
    return _write(ax, numbers, scale) + (["Paler cells are of the rank's later stages."] if paler else [])


def _write(ax: Axes, numbers: Sequence[tuple[float, float, float, _Cell]], scale: _Scale) -> list[str]:
    """Write the numbers of the micro-batches, if they fit; returns notes."""
    digits = len(str(max(c.micro_batch for *_, c in numbers)))
    narrow = min(wide for wide, *_ in numbers)
    size = min(5.5, scale.points * narrow / (0.62 * digits + 0.25), 0.72 * scale.row_points)
    if size < 3.4 or len(numbers) > _MOST_NUMBERS:
        return ["The cells are too small for the numbers of their micro-batches."]
    for _, x, y, c in numbers:
        points = min(size, 0.8 * scale.row_points / c.halves)
        ink = "white" if c.letter == "F" and c.chunk == 0 else style.INK
        ax.text(x, y, str(c.micro_batch), ha="center", va="center_baseline", fontsize=max(3.4, points), color=ink)
    return []


def _arrows(ax: Axes, run: _Run, scale: _Scale) -> list[str]:
    """Draw a line from where each message is produced to where it is consumed; returns notes."""

    def ends(send: Span, recv: Span) -> tuple[Point, Point]:
        side = 0.45 if recv.rank > send.rank else -0.45
        x0, x1 = ((at - run.origin) / scale.length for at in (send.start_s, max(recv.end_s, send.end_s)))
        return (x0, send.rank + side), (x1, recv.rank - side)

    return draw_arrows(ax, run.trace.messages(), ends, colour=style.ACCENT, head=2.5)


# -- memory -------------------------------------------------------------------------------------------


def _kept(ax: Axes, run: _Run, memory: Memory, scale: _Scale) -> str:
    """Draw each rank's memory over time, scaled so that the largest fills a row, with its peak; returns the title."""
    curves = [run.went.memory(rank, memory) for rank in range(len(run.cells))]
    for curve in curves:
        curve.append((run.end, curve[-1][1]))
    most = max(level for curve in curves for _, level in curve) or 1.0
    for rank, curve in enumerate(curves):
        x = [moment / scale.length for (a, _), (b, _) in pairwise(curve) for moment in (a, b)]
        y = [rank + 0.45 - 0.9 * level / most for _, level in curve[:-1] for _ in range(2)]
        ax.fill_between(x, y, rank + 0.45, color=style.tint(style.DONE, 0.55), linewidth=0, zorder=2)
        text = f"{max(level for _, level in curve):.4g}"
        if scale.row_points > 5:
            ax.text(1.005, rank, text, transform=ax.get_yaxis_transform(), va="center", fontsize=5.5)
    return f"{'micro-batches' if memory == Memory() else 'memory'} held by each rank, and its peak"


# -- around it ----------------------------------------------------------------------------------------


def _frame(ax: Axes, run: _Run, title: str, width: float, last: bool) -> None:
    """Write the title, and the names of the rows."""
    style.name_rows(ax, [f"rank {rank}" for rank in range(len(run.cells))], 6.0)
    ax.tick_params(axis="x", labelbottom=last)
    ax.set_title(style.wrapped(title, width - MARGIN, 6.5), loc="left", fontsize=6.5, pad=2)


def _title(run: _Run, scale: _Scale) -> str:
    took = f"{run.end / scale.length:.4g} {scale.sign}".strip()
    idle, own = f"{run.went.bubble_rate:.1%}", f"{run.went.own_bubble_rate:.1%}"
    more = f", or {own} from the longest rank's first action to its last" if own != idle else ""
    return f"{run.name}: {took}; idle {idle} of it{more}"


def _finding(pictures: Sequence[_Run]) -> str:
    """The picture in a sentence."""
    first = pictures[0]
    ranks = counted(len(first.cells), "rank")
    head = f"{first.name} on {ranks}, {counted(first.went.schedule.num_micro_batches, 'micro-batch')}"
    if len(pictures) == 1:
        return f"{head}: idle {first.went.bubble_rate:.1%} of the time"
    return f"{head}: {', '.join(_versus(first, other) for other in pictures[1:])}"


def _versus(one: _Run, other: _Run) -> str:
    more = one.end / other.end - 1 if one.end != other.end else 0.0
    how = f"{abs(more):.1%} {'longer' if more > 0 else 'shorter'} than" if abs(more) >= 0.0005 else "as long as"
    return f"{how} {other.name}"
