"""Collective: the picture of a collective as it was executed, one panel a step.

    row      a rank
    column   a chunk, as coarse as possible: items that always travel together are one
    cell     what the rank holds of the chunk: a stripe for each rank whose contribution it includes;
             0+1 is a sum, 0, 1 are two pieces not added up

Stripes differ in position as well as colour, so the picture can be read without colour.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch

from simdist.collectives.contributions import Pieces, State, states
from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.trace import Span
from simdist.words import counted

__all__ = ["collective_steps"]

_MOST_PANELS = 16
_MOST_ARROWS = 40  # in a panel; more would hide what they show


@dataclass(frozen=True)
class _Story:
    """What was watched, step by step: the cells after the step, and the messages received during it."""

    title: str
    ranks: int
    columns: list[range]
    goal: list[Pieces]
    cells: list[list[list[Pieces]]]  # [step][rank][column]
    moves: list[list[tuple[int, int, int]]]  # [step]: (from, to, column)

    @classmethod
    def of(cls, record: Sequence[State]) -> "_Story":
        ranks, last = max(s.rank for s in record) + 1, max(s.step for s in record)
        columns = _columns(record)
        now: list[list[Pieces]] = [[()] * len(columns) for _ in range(ranks)]
        cells = []
        moves: list[list[tuple[int, int, int]]] = [[] for _ in range(last + 1)]
        for step in range(last + 1):
            for s in (s for s in record if s.step == step):
                now[s.rank] = [s.holds[c.start] for c in columns]
                for src, places in s.takes:
                    moves[step] += [(src, s.rank, i) for i, c in enumerate(columns) if c.start in places]
            cells.append(list(now))
        goal = [record[0].goal[c.start] for c in columns]
        return cls(record[0].title, ranks, columns, goal, cells, moves)

    def complete(self, step: int, rank: int, column: int) -> bool:
        """Whether the cell has all that it should end with."""
        return set(self.goal[column]) <= set(self.cells[step][rank][column])

    def contributors(self, column: int) -> list[int]:
        """The ranks whose contributions this column should end with."""
        return sorted(r for piece in self.goal[column] for r in piece)

    def fresh(self, step: int, rank: int, column: int) -> bool:
        """Whether the cell has changed in this step."""
        return step > 0 and self.cells[step][rank][column] != self.cells[step - 1][rank][column]

    def finding(self) -> str:
        """The picture in a sentence."""
        last = len(self.cells) - 1
        head = f"{self.title.replace(' ', ', ', 1)} on {counted(self.ranks, 'rank')}: {counted(last, 'step')}"
        everywhere = all(self.complete(last, r, c) for r in range(self.ranks) for c in range(len(self.columns)))
        if len(self.contributors(0)) == 1:
            return f"{head}, then all ranks hold all of it" if everywhere and last else head
        somewhere = next((k for k in range(last + 1) if all(self._held(k, c) for c in range(len(self.columns)))), None)
        what = "every chunk" if len(self.columns) > 1 else "the array"
        missing = [f"c{c}" for c in range(len(self.columns)) if not self._held(last, c)]
        if len(missing) == len(self.columns):
            return f"{head}, then nothing is complete anywhere"
        if missing:
            return f"{head}, then {_are(missing)} complete nowhere"
        if somewhere is None or (somewhere == last and not everywhere):
            return f"{head}, then {what} is complete on {self._owners()}"
        if somewhere == last:
            return f"{head}, then {what} is complete everywhere"
        return f"{head}; {what} is complete somewhere after step {somewhere}" + (
            f", everywhere after step {last}" if everywhere else ""
        )

    def _held(self, step: int, column: int) -> bool:
        return any(self.complete(step, rank, column) for rank in range(self.ranks))

    def _owners(self) -> str:
        last = len(self.cells) - 1
        owners = {r for r in range(self.ranks) for c in range(len(self.columns)) if self.complete(last, r, c)}
        return f"rank {owners.pop()}" if len(owners) == 1 else "one rank each"


def _are(names: list[str]) -> str:
    """Subject and verb: "c4 is", "c0, c1, c2 and 5 more are"."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "") + (" are" if len(names) > 1 else " is")


def _columns(record: Sequence[State]) -> list[range]:
    """Runs of places that are the same in every state and every message."""
    places = range(len(record[0].goal))
    looks = [
        (record[0].goal[i], tuple(s.holds[i] for s in record), tuple(i in p for s in record for _, p in s.takes))
        for i in places
    ]
    starts = [i for i in places if i == 0 or looks[i] != looks[i - 1]]
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(places)], strict=True)]


def collective_steps(
    trace: Iterable[Span], *, width: float = style.PAGE, steps: Sequence[int] | None = None, arrows: bool = True
) -> Figure:
    """What each rank holds after each step of a collective.

    Args:
        trace: a record with states, as `simdist.collectives.watch.watched` makes it.
        width: of the figure, in inches.
        steps: which to draw, 0 being the start; by default all, but at most 16.
        arrows: whether to draw what is sent.

    Raises:
        ArgumentError: the record has no states, or no such step.
    """
    story = _Story.of(states(trace))
    last = len(story.cells) - 1
    notes = []
    if steps is None:
        steps = range(last + 1)
        if len(steps) > _MOST_PANELS:
            steps = [round(i * last / (_MOST_PANELS - 1)) for i in range(_MOST_PANELS)]
            notes.append(f"{_MOST_PANELS} of {last + 1} states are shown.")
    if not len(steps):
        raise ArgumentError("steps is empty; give at least one")
    for step in steps:
        if not 0 <= step <= last:
            raise ArgumentError(f"there is no step {step}; this collective has steps 0 to {last}")
    if story.ranks > style.NUM_RANK_COLOURS:
        notes.append(style.rank_key(story.ranks, "")[1])
    with style.styled():
        return _draw(story, list(steps), width, arrows, notes)


def _draw(story: _Story, steps: list[int], width: float, arrows: bool, notes: list[str]) -> Figure:
    m, p = len(story.columns), story.ranks
    cell_width, cell_height = max(0.1, min(0.3, 1.4 / m)), max(0.1, min(0.24, 1.6 / p))
    beside = int(min(len(steps), max(1.0, (width - 0.45) / max(0.85, cell_width * m + 0.12))))
    down = -(-len(steps) // beside)
    beside = -(-len(steps) // down)
    height = 0.75 + down * (0.34 + p * cell_height)
    fig = style.figure(width, height)
    axes = fig.subplots(down, beside, squeeze=False, sharex=True, sharey=True).flatten()
    omitted = sum(_panel(ax, story, step, arrows) for ax, step in zip(axes, steps, strict=False))
    for ax in axes[len(steps) :]:
        ax.set_axis_off()
    for ax in axes[::beside]:
        ax.set_yticks(range(p), [f"rank {r}" for r in range(p)])
    style.title(fig, story.finding())
    if omitted:
        notes.append(f"{counted(omitted, 'arrow')} left out.")
    style.legend(fig, _handles(story), " ".join(notes), letters=14)
    fig.draw_without_rendering()  # only now is the size of a cell known, and whether text fits
    room = axes[0].get_window_extent().width / fig.dpi * 72 * 2 * _HALF[0] / m
    type_of_sums = _type_of_sums(story, room)
    for ax, step in zip(axes, steps, strict=False):
        _labels(ax, story, step, room, type_of_sums)
    return fig


def _panel(ax: Axes, story: _Story, step: int, arrows: bool) -> int:
    """Draw one step; returns how many arrows it leaves out."""
    m, p = len(story.columns), story.ranks
    ax.set(xlim=(-0.62, m - 0.45), ylim=(p - 0.42, -0.58))
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_title("start" if step == 0 else f"after step {step}", pad=7.0 if m > 1 else 2.5)
    _cells(ax, story, step)
    moves = story.moves[step] if arrows else []
    for src, dst, column in moves[:_MOST_ARROWS]:
        _arrow(ax, src, dst, column)
    return max(0, len(moves) - _MOST_ARROWS)


_HALF = 0.41, 0.39  # half of a cell, in x and y; the rest is the gutter


def _cells(ax: Axes, story: _Story, step: int) -> None:
    """All cells of a panel: what they hold, and a frame around each."""
    a, b = _HALF
    stripes: dict[str, list[Any]] = defaultdict(list)
    frames: dict[bool, list[Any]] = {False: [], True: []}
    for rank, row in enumerate(story.cells[step]):
        for column, pieces in enumerate(row):
            wanted = story.contributors(column)
            left, right, top, bottom = column - a, column + a, rank - b, rank + b
            frames[story.fresh(step, rank, column)].append(style.box(left, right, top, bottom))
            if story.complete(step, rank, column) and len(wanted) > 1:
                stripes[style.DONE].append(style.box(left, right, top, bottom))
                continue
            each = 2 * a / len(wanted)
            for i, r in enumerate(wanted):
                if any(r in piece for piece in pieces):
                    stripes[style.rank_colour(r)].append(style.box(left + i * each, left + (i + 1) * each, top, bottom))
    for colour, found in stripes.items():
        ax.add_collection(PolyCollection(found, facecolors=colour, edgecolors="none", zorder=1))
    ax.add_collection(PolyCollection(frames[False], facecolors="none", edgecolors="#999999", linewidths=0.5, zorder=2))
    ax.add_collection(
        PolyCollection(frames[True], facecolors="none", edgecolors=style.ACCENT, linewidths=1.6, zorder=3)
    )


def _arrow(ax: Axes, src: int, dst: int, column: int) -> None:
    """From the sender's cell to the receiver's, bent more the farther it goes."""
    side, far = (1 if dst > src else -1), abs(src - dst)  # down along the right edge, up along the left one
    x = column + side * _HALF[0] * (0.7 if far == 1 else 1.0)
    short = 0.24 * side if far == 1 else 0.0  # between neighbours it stays clear of the text in the cells
    ax.add_patch(
        FancyArrowPatch(
            (x, src + short),
            (x, dst - short),
            connectionstyle=f"arc3,rad={-0.55 / far if far > 1 else 0}",
            arrowstyle="-|>",
            mutation_scale=6,
            linewidth=0.9,
            color=style.ACCENT,
            shrinkA=0,
            shrinkB=0,
            clip_on=False,
            zorder=5,
        )
    )


def _type_of_sums(story: _Story, room: float) -> float:
    """The size of type in which the longest sum of the whole picture fits into a cell of so many points."""
    sums = {
        _sums(pieces)
        for rows in story.cells
        for row in rows
        for column, pieces in enumerate(row)
        if pieces != story.goal[column] or len(story.contributors(column)) == 1
    }
    return min((_type_size(text, room) for text in sums), default=6.5)


def _labels(ax: Axes, story: _Story, step: int, room: float, type_of_sums: float) -> None:
    """Write the columns' numbers above them, and in each cell, `room` points wide, what it holds, if it is readable."""
    for rank in range(story.ranks):
        for column, pieces in enumerate(story.cells[step][rank]):
            if story.complete(step, rank, column) and len(story.contributors(column)) > 1:
                text, type_size, colour = "all", min(6.0, _type_size("all", room)), "white"
            else:
                text, type_size, colour = _sums(pieces), type_of_sums, style.INK
            if text and type_size >= 3.8:
                ax.text(column, rank, text, ha="center", va="center", fontsize=type_size, color=colour, zorder=6)
    if len(story.columns) > 1 and room > 6:
        for column in range(len(story.columns)):
            ax.text(column, -0.5, f"c{column}", ha="center", va="bottom", fontsize=min(5.0, room / 2), color="#666666")


def _sums(pieces: Pieces) -> str:
    return ", ".join("+".join(map(str, piece)) for piece in pieces)


def _type_size(text: str, room: float) -> float:
    """The size of type at which a text fills most of so many points, up to 6.5."""
    letters = 0.66 * len(text) + 0.2 * text.count("+")  # its width, where the size of type is 1
    return min(6.5, 0.9 * room / max(1.0, letters))


def _handles(story: _Story) -> list[Patch]:
    """The key."""
    ranks = sorted({r for column in range(len(story.columns)) for r in story.contributors(column)})
    edge: dict[str, Any] = {"edgecolor": "#999999", "linewidth": 0.5}
    key = [Patch(facecolor=style.rank_colour(r), label=f"from rank {r}", **edge) for r in ranks]
    if len(story.contributors(0)) > 1:
        key.append(Patch(facecolor=style.DONE, label="complete: from all"))
    return [*key, Patch(facecolor="none", edgecolor=style.ACCENT, linewidth=1.6, label="just arrived")]
