"""Style: the look of all pictures: sizes, colours, units, words.

The same colour means the same thing in every picture. The palette is safe for colour-blind readers (after Okabe
and Ito, and Paul Tol), and neighbouring colours differ in lightness too, so it works in greyscale:
computing is cool and goes from dark to light, messages and moves are warm, waiting is grey and hatched.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from io import BytesIO
from numbers import Real
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from simdist.errors import ArgumentError

__all__ = [
    "ACCENT",
    "COLUMN",
    "DONE",
    "FAINT",
    "HATCHED",
    "INK",
    "NUM_RANK_COLOURS",
    "PAGE",
    "box",
    "colour",
    "figure",
    "grid",
    "ink_on",
    "legend",
    "look",
    "losses",
    "name_rows",
    "rank_colour",
    "rank_key",
    "seconds",
    "series",
    "size",
    "styled",
    "tint",
    "title",
    "unit_of_bytes",
    "unit_of_time",
    "whole_numbers",
    "wrapped",
]

COLUMN = 3.4
"""Width in inches of a column of a two-column paper."""
PAGE = 7.0
"""Width in inches of a page."""

INK = "#222222"
FAINT = "#DDDDDD"
ACCENT = "#D55E00"  # for what has just changed
DONE = "#14344A"  # for what is complete

_COLOURS = {
    "compute": "#60A5F0",
    "forward": "#0072B2",
    "backward": "#44BB99",
    "weight gradient": "#EEDD88",
    "update": "#B8D4EC",
    "send": "#D55E00",
    "recv": "#F0A73A",
    "move": "#D9726C",
    "wait": "#DDDDDD",
    "all_reduce": "#882255",
    "reduce_scatter": "#AA3377",
    "all_gather": "#D27BB5",
    "all_to_all": "#332288",
    "broadcast": "#999933",
    "reduce": "#8C6D31",
    "scatter": "#C0B86A",
    "gather": "#B5651D",
    "barrier": "#666666",
    "disk": "#C9BFAE",
    "other": "#BBBBBB",
}

HATCHED = ("wait",)  # so that these kinds differ by more than colour

_RANKS = ["#77AADD", "#EEDD88", "#FFAABB", "#99CC44", "#9999FF", "#CCAA77", "#66EEFF", "#DDEE44"]
NUM_RANK_COLOURS = len(_RANKS)
_SERIES = ["#0072B2", "#D55E00", "#009E73", "#AA4499", "#E69F00", "#14344A", "#56B4E9", "#999933", "#882255", "#666666"]
_SERIES += ["#8B4513", "#EE8866"]
_MARKERS = "osD^vP*X<>hd"

_RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.0,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "figure.dpi": 200.0,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "text.parse_math": False,  # names come from programs and files: a dollar is a dollar
}


def styled() -> AbstractContextManager[None]:
    """Draw inside this block; the user's settings are restored after it."""
    return rc_context(_RC)


class _Picture(Figure):
    """A figure that a notebook displays when it is a cell's last line, in its size on paper."""

    def _ipython_display_(self) -> None:
        # Not _repr_png_: once anything has used pyplot, notebooks prefer pyplot's formatter to it.
        display = import_module("IPython.display").display
        file = BytesIO()
        self.savefig(file, format="png")
        width, height = (round(inches * 100) for inches in self.get_size_inches())
        size = {"image/png": {"width": width, "height": height}}
        display({"image/png": file.getvalue(), "text/plain": repr(self)}, raw=True, metadata=size)


def figure(width: float, height: float) -> Figure:
    """An empty figure of these inches, without a window or pyplot.

    Raises:
        ArgumentError: it is too narrow or too wide to be read.
    """
    if not isinstance(width, Real) or not 2 <= width <= 100:
        raise ArgumentError(f"a figure {width!r:.40} inches wide cannot be read; needs at least 2 and at most 100")
    return _Picture(figsize=(width, height), layout="constrained")


def title(fig: Figure, text: str) -> None:
    """Write what the picture shows above it; a title of several lines makes the figure higher."""
    lines = wrapped(text, fig.get_figwidth(), 9.1)  # bold letters are wider
    fig.set_figheight(fig.get_figheight() + 0.15 * lines.count("\n"))
    fig.suptitle(lines, fontsize=8.0, fontweight="bold", x=0.01, ha="left")


def legend(
    fig: Figure, handles: Sequence[Any], note: str = "", letters: int | None = None, side: str = "center"
) -> None:
    """Draw the key under the picture, and above it, in small letters, a note on what the picture leaves out.

    Args:
        handles: each with its label.
        note: may be empty.
        letters: the approximate length of the labels; that of the longest, if not given.
        side: "left" or "right" of a picture that has two keys.
    """
    share = 1.0 if side == "center" else 0.5
    if letters is None:
        letters = max((len(line) for handle in handles for line in handle.get_label().splitlines()), default=0)
    fits = max(2 if side == "center" else 1, int(share * fig.get_figwidth() * 72 / (24 + 4.2 * letters)))
    rows = -(-len(handles) // fits)
    place: Any = f"outside lower {side}"
    key = fig.legend(
        handles=handles,
        loc=place,
        ncols=-(-len(handles) // rows) if rows else 1,
        handlelength=1.4,
        columnspacing=1.2,
        title=wrapped(note, share * fig.get_figwidth(), 6.0) if note else None,
        title_fontproperties={"size": 6.0, "style": "italic"},
    )
    key.get_title().set_multialignment("center")


def whole_numbers(most: int | None = None) -> MaxNLocator:
    """Marks at round whole numbers only, even if an axis has just one; at most `most` intervals."""
    return MaxNLocator(most, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def grid(ax: Axes) -> None:
    """Draw faint lines across."""
    ax.grid(True, axis="y", color="#EEEEEE", linewidth=0.5)


def name_rows(ax: Axes, names: Sequence[str], points: float) -> None:
    """Name rows from the top, at most 40 of them, in type of at most so many points."""
    rows = len(names)
    every = -(-rows // 40)
    ax.set_yticks(range(0, rows, every), names[::every])
    ax.set_ylim(rows - 0.45, -0.55)
    ax.tick_params(axis="y", length=0, labelsize=max(3.5, min(points, 200 / rows)))
    ax.spines["left"].set_visible(False)


def losses(ax: Axes, found: Sequence[float]) -> None:
    """Scale the vertical axis for these losses: logarithmic if they differ as much as those of a diverging run."""
    if min(found) > 0 and max(found) > 30 * min(found):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        ax.minorticks_off()
    grid(ax)


def wrapped(text: str, width: float, points: float) -> str:
    """text in lines that fit into `width` inches, at about 0.56 of its size to a letter; no last word is alone."""
    letters, words = int(width * 72 / (0.56 * points)), text.split()
    pair = "\xa0".join(words[-2:])
    kept = " ".join([*words[:-2], pair] if len(pair) <= letters else words)
    return "\n".join(wrap(kept, letters, break_on_hyphens=False)).replace("\xa0", " ")


def colour(kind: str) -> str:
    """The colour of a kind of span (see simdist.trace.kind)."""
    return _COLOURS.get(kind, _COLOURS["other"])


def look(kind: str) -> dict[str, Any]:
    """The colour of a kind of span in bars and keys, and its hatch, if it has one."""
    return {"facecolor": colour(kind)} | ({"hatch": "////", "edgecolor": "#888888"} if kind in HATCHED else {})


def tint(colour: str, share: float) -> Any:
    """A colour mixed with white: `share` of it, the rest white."""
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(1 - share * (1 - part) for part in (r, g, b))


def ink_on(colour: str) -> str:
    """White or black, whichever is readable on this colour."""
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * r + 0.587 * g + 0.114 * b < 140 else INK


def rank_colour(rank: int) -> str:
    """The light colour of a rank's contribution, on which black letters are readable."""
    return _RANKS[rank % len(_RANKS)]


def rank_key(ranks: int, label: str) -> tuple[list[Patch], str]:
    """The key of this many ranks, each `label` and its number, and a note if they share colours."""
    key = [Patch(color=rank_colour(rank), label=f"{label} {rank}") for rank in range(min(ranks, NUM_RANK_COLOURS))]
    return key, f"Colours repeat after {NUM_RANK_COLOURS} ranks." if ranks > NUM_RANK_COLOURS else ""


def series(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th of several lines."""
    return {"color": _SERIES[i % len(_SERIES)], "marker": _MARKERS[i % len(_MARKERS)]}


def unit_of_time(seconds: float) -> tuple[float, str]:
    """The best unit for times of this size: its length in seconds, and its sign."""
    for length, sign in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= length:
            return length, sign
    return 1e-9, "ns"


def seconds(time_s: float) -> str:
    """A time for readers: 1.5 ms."""
    length, sign = unit_of_time(time_s)
    return f"{_rounded(time_s / length, 3)} {sign}"


def unit_of_bytes(num_bytes: float) -> tuple[int, str]:
    """The best unit for so many bytes: its length in bytes, and its sign."""
    for length, sign in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= length:
            return length, sign
    return 1, "B"


def size(num_bytes: float, digits: int = 3) -> str:
    """Bytes for readers: 512 B, 64 KiB, 1.5 MiB."""
    length, sign = unit_of_bytes(num_bytes)
    return f"{_rounded(num_bytes / length, digits)} {sign}"


def _rounded(value: float, digits: int) -> str:
    """Rounded to `digits` digits, never written as a power of ten."""
    return f"{float(f'{value:.{digits}g}'):.10g}"


def box(left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    """The corners of a box, for a PolyCollection."""
    return [(left, top), (right, top), (right, bottom), (left, bottom)]
