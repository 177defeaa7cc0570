"""Shards: which part of a model's weights, and of a text, each rank holds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from simdist.arrays import Array
from simdist.errors import ArgumentError
from simdist.nn import Place
from simdist.plots import style
from simdist.words import counted

__all__ = ["shards"]

_UNIT = 0.36  # inches for the median of all lengths
_MOST_BLOCKS = 4  # more are drawn only where they differ
_LEAST, _MOST = 0.12, 1.5  # inches of any side
_ACROSS, _DOWN = 0.2, 0.1  # between drawings
_OVER, _UNDER = 0.14, 0.13  # a drawing, for its name and its size

_T = TypeVar("_T")
_Box = tuple[tuple[int, int], ...]
_Owners = Mapping[str, tuple[tuple[int, ...], dict[_Box, list[int]]]]


class _Drawing(NamedTuple):
    """A parameter as a rectangle."""

    name: str
    shape: tuple[int, ...]
    owners: dict[_Box, list[int]]
    width: float
    height: float


def shards(held: Sequence[Mapping[str, Place]], tokens: Sequence[Array] = (), *, width: float = style.PAGE) -> Figure:
    """Every parameter as a rectangle, rows down and columns across, in the colours of the ranks that hold its parts.

    Parts that all ranks hold are grey. Of many blocks, those that are split alike are drawn once. A parameter of more
    axes is drawn as several matrices side by side: two for a gated map, and one for each expert of a mixture. Sides are
    to scale within the limits of what can be drawn; empty parameters are left out.

    Args:
        held: for each rank, by name, the place of its part of a parameter in the whole one: for an actual
            model, {p.name: p.place for p in model.parameters}.
        tokens: for each rank, the indices of the tokens of a text that it works on between the layers that are
            split; if not given, no text is drawn.
        width: of the figure, in inches.

    Raises:
        ArgumentError: there is no rank, or no parameter.
    """
    names = list(dict.fromkeys(name for own in held for name, place in own.items() if math.prod(place.shape)))
    if not names:
        raise ArgumentError(f"no parameters on {counted(len(held), 'rank')}: nothing to draw")
    owners = {name: _owners(held, name) for name in names}
    drawn, left_out = _unlike(owners)
    rows = _arranged(list(_scaled(drawn)), 0.96 * width)
    heights = [max(_height(column) for column in row) for row in rows]
    total = sum(heights) + (0.45 if len(tokens) else 0.0)
    with style.styled():
        fig = style.figure(width, total + 0.7)
        ax = fig.subplots()
        ax.set(xlim=(0, 0.96 * width), ylim=(total, 0), xticks=[], yticks=[], aspect="equal")
        ax.axis("off")
        _draw_rows(ax, rows, len(held))
        if len(tokens):
            _text(ax, tokens, sum(heights) + _OVER, 0.96 * width)
        keys, repeated = style.rank_key(len(held), "rank")
        notes = [_note(owners, len(held)), left_out, repeated]
        style.legend(fig, [*keys, Patch(color=style.FAINT, label="all ranks")], " ".join(filter(None, notes)))
        style.title(fig, _finding(owners, len(held)))
    return fig


def _owners(held: Sequence[Mapping[str, Place]], name: str) -> tuple[tuple[int, ...], dict[_Box, list[int]]]:
    """The shape of a parameter, and the ranks that hold each box of it, with axes in the order of drawing."""
    shape: tuple[int, ...] = ()
    owners: dict[_Box, list[int]] = {}
    for rank, own in enumerate(held):
        if name in own:
            shape = own[name].shape
            index = own[name].index
            cut = [(s.start, s.stop) for s in index] + [(0, n) for n in shape[len(index) :]]
            owners.setdefault(_in_order(cut, shape), []).append(rank)
    return shape, owners


def _in_order(of_axes: Sequence[_T], shape: Sequence[int]) -> tuple[_T, ...]:
    """Reorders one value per axis of a shape: experts, then a gate, and the axes of a matrix last."""
    axes = list(range(len(shape)))
    if len(shape) > 2 and shape[-2] == 2:
        axes.insert(max(0, len(shape) - 3), axes.pop(-2))
    return tuple(of_axes[axis] for axis in axes)


def _of_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths of the axes in the order of drawing: a vector is a row, and a single number a matrix of one."""
    return (1,) * (2 - len(shape)) + _in_order(shape, shape)


def _unlike(owners: _Owners) -> tuple[_Owners, str]:
    """The parameters to draw: of many blocks only those that are split otherwise than any before; and a note."""
    blocks: dict[str, list[str]] = {}
    for name in owners:
        block, _, rest = name.partition(".")
        if rest and block[-1:].isdigit():
            blocks.setdefault(block, []).append(name)
    if len(blocks) <= _MOST_BLOCKS:
        return owners, ""
    looks: list[Any] = []
    alike = set[str]()
    for block, names in blocks.items():
        look = [(name.removeprefix(block), owners[name]) for name in names]
        if look in looks:
            alike.update(names)
        else:
            looks.append(look)
    note = f"Of blocks that are split alike the first is drawn: {len(looks)} of {len(blocks)} in all." if alike else ""
    return {name: own for name, own in owners.items() if name not in alike}, note


def _scaled(owners: _Owners) -> Iterator[_Drawing]:
    """Each parameter with sides in inches."""
    lengths = sorted(n for shape, _ in owners.values() for n in shape or (1,))
    unit = _UNIT / lengths[len(lengths) // 2]
    for name, (shape, boxes) in owners.items():
        *sheets, rows, columns = _of_matrix(shape)
        side = [min(max(n * unit, _LEAST), _MOST) for n in (columns, rows)]
        count = math.prod(sheets)
        yield _Drawing(name, shape, boxes, side[0] * (count if count * side[0] <= 4 else 4 / side[0]), side[1])


def _height(column: Sequence[_Drawing]) -> float:
    """Inches of drawings one under the other, with their labels."""
    return sum(d.height + _OVER + _UNDER + _DOWN for d in column)


def _width(column: Sequence[_Drawing]) -> float:
    return max(max(d.width, 0.049 * len(d.name)) for d in column) + _ACROSS


def _arranged(drawings: list[_Drawing], room: float) -> list[list[list[_Drawing]]]:
    """Rows of columns: in a column the parameters of a layer, one under the other."""
    columns = [list(own) for _, own in groupby(drawings, lambda d: d.name.rpartition(".")[0])]
    rows: list[list[list[_Drawing]]] = [[]]
    for column in columns:
        if rows[-1] and sum(map(_width, [*rows[-1], column])) > room + _ACROSS:
            rows.append([])
        rows[-1].append(column)
    return rows


def _draw_rows(ax: Axes, rows: list[list[list[_Drawing]]], ranks: int) -> None:
    """Draw all rows, from the top."""
    top = 0.0
    for row in rows:
        left = 0.0
        for column in row:
            y = top
            for drawing in column:
                _draw(ax, drawing, ranks, left, y + _OVER)
                y += _height([drawing])
            left += _width(column)
        top += max(_height(column) for column in row)


def _draw(ax: Axes, drawing: _Drawing, ranks: int, x: float, y: float) -> None:
    """Draw one parameter, with its name above it and its size below."""
    shape = _of_matrix(drawing.shape)
    ax.text(x, y - 0.04, drawing.name, fontsize=5.5, va="bottom")
    size = " × ".join(f"{n:,}" for n in drawing.shape)
    ax.text(x, y + drawing.height + 0.03, size, fontsize=5.0, va="top", color="#666666")
    for box, who in drawing.owners.items():
        spans = ((0, 1),) * (2 - len(box)) + box
        everywhere = len(who) == ranks and ranks > 1
        for across, down in _sides(spans, shape):
            x0, x1 = (x + drawing.width * share for share in across)
            y0, y1 = (y + drawing.height * share for share in down)
            _fill(ax, [] if everywhere else who, (x0, y0), x1 - x0, y1 - y0)


def _fill(ax: Axes, who: list[int], corner: tuple[float, float], width: float, height: float) -> None:
    """Draw a rectangle in the colours of these ranks, grey for none, and write the ranks into it."""
    x, y = corner
    colours = [style.rank_colour(rank) for rank in who] or [style.FAINT]
    step = width / len(colours)
    for i, colour in enumerate(colours):  # ranks with the same part, side by side
        ax.add_patch(Rectangle((x + i * step, y), step, height, facecolor=colour, edgecolor="none"))
    ax.add_patch(Rectangle(corner, width, height, fill=False, edgecolor="white", linewidth=0.6))
    words = " ".join(map(str, who)) or "all"
    if width > 0.055 * len(words) and height >= 0.085:
        ax.text(x + width / 2, y + height / 2, words, fontsize=5.5, ha="center", va="center_baseline")


def _sides(spans: _Box, shape: tuple[int, ...]) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The extent of a box across and down, as shares of the drawing; the sheets of more axes are side by side.

    Neighbouring sheets whose columns are all in the box are joined.
    """
    *sheets, (r0, r1), (c0, c1) = spans
    *counts, rows, columns = shape
    across, down = math.prod(counts), (r0 / rows, r1 / rows)
    own = [
        i
        for i, at in enumerate(product(*map(range, counts)))
        if all(a <= k < b for k, (a, b) in zip(at, sheets, strict=True))
    ]
    if c1 - c0 == columns and own == list(range(own[0], own[-1] + 1)):
        yield (own[0] / across, (own[-1] + 1) / across), down
    else:
        for sheet in own:
            yield ((sheet + c0 / columns) / across, (sheet + c1 / columns) / across), down


def _text(ax: Axes, tokens: Sequence[Array], y: float, width: float) -> None:
    """Draw a strip of tokens, each in the colours of the ranks that work on it."""
    count = max(int(max(own)) for own in tokens if len(own)) + 1
    who: list[list[int]] = [[] for _ in range(count)]
    for rank, own in enumerate(tokens):
        for token in own:
            who[int(token)].append(rank)
    ax.text(0, y - 0.04, f"{counted(count, 'token')} of a text", fontsize=5.5, va="bottom")
    step = width / count
    for token, ranks in enumerate(who):
        everywhere = len(ranks) == len(tokens) and len(tokens) > 1
        colours = [style.FAINT] if everywhere else [style.rank_colour(rank) for rank in ranks]
        for i, colour in enumerate(colours):
            high = 0.2 / len(colours)
            ax.add_patch(Rectangle((token * step, y + i * high), step, high, facecolor=colour, edgecolor="none"))
        if step > 0.03:
            ax.add_patch(Rectangle((token * step, y), step, 0.2, fill=False, edgecolor="white", linewidth=0.4))


def _note(owners: _Owners, ranks: int) -> str:
    """What several colours in one frame mean, if there are such."""
    shared = any(1 < len(who) < ranks for _, boxes in owners.values() for who in boxes.values())
    return "Ranks side by side in one frame hold the same part." if shared else ""


def _finding(owners: _Owners, ranks: int) -> str:
    """The picture in a sentence."""
    whole = sum(math.prod(shape) for shape, _ in owners.values())
    mine = sum(
        math.prod(stop - start for start, stop in box)
        for _, boxes in owners.values()
        for box in boxes
        if 0 in boxes[box]
    )
    return f"Of {counted(whole, 'weight')} rank 0 of {ranks} holds {mine:,}: {mine / whole:.1%}"
