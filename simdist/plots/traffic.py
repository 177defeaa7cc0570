"""Traffic: how many bytes each rank sent to each."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simdist.arrays import Array
from simdist.errors import ArgumentError, require_kind
from simdist.plots import style
from simdist.trace import Trace
from simdist.words import counted

__all__ = ["traffic"]

_SHADES = LinearSegmentedColormap.from_list("bytes", ["#E8F1F8", "#77AADD", "#0072B2", style.DONE])
_MOST_RANKS_WRITTEN = 10


def traffic(trace: Trace, *, width: float = style.COLUMN) -> Figure:
    """A map of the bytes sent, senders down, receivers across; pairs without traffic stay white.

    Raises:
        ArgumentError: the trace has no messages.
    """
    require_kind("trace", trace, Trace, "sd.run(…).trace")
    matrix = trace.traffic()
    messages = sum(s.name == "send" for s in trace)
    if not messages:
        raise ArgumentError("this trace has no messages to draw: `direct` uses shared memory and sends none")
    sent = np.ma.masked_equal(matrix, 0)
    p = trace.ranks
    with style.styled():
        fig = style.figure(width, width - 0.4)
        ax = fig.subplots()
        low, high = (int(sent.min()), int(sent.max())) if sent.count() else (0, 1)
        logarithmic = low > 0 and high > 100 * low
        norm: Normalize = LogNorm(low, high) if logarithmic else Normalize(0, high)
        image = ax.imshow(sent, cmap=_SHADES, norm=norm, interpolation="nearest")
        bar = fig.colorbar(image, ax=ax, shrink=0.8)
        marks = _powers(low, high) if logarithmic else _round_numbers(high)
        bar.set_ticks(list(marks), labels=list(marks.values()))
        bar.ax.minorticks_off()
        bar.outline.set_visible(False)
        ax.set(xlabel="to rank", ylabel="from rank")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(style.whole_numbers(min(p, 12)))
        ax.spines[:].set_visible(True)
        if p <= _MOST_RANKS_WRITTEN:
            _write(ax, matrix, norm, (width - 1.3) * 72 / p)
        style.title(fig, _finding(matrix, messages))
    return fig


def _write(ax: Axes, matrix: Array, norm: Normalize, room: float) -> None:
    """Write the bytes into each cell, which is `room` points wide."""
    points = min(6.5, room / 5)
    for (src, dst), num_bytes in np.ndenumerate(matrix):
        if num_bytes and points >= 3.5:
            colour = "white" if norm(num_bytes) > 0.45 else style.INK
            text = style.size(num_bytes).replace(" ", "\n")
            ax.text(dst, src, text, ha="center", va="center", fontsize=points, color=colour)


def _round_numbers(high: int) -> dict[float, str]:
    """Marks of a linear scale up to `high`: round numbers of one unit, of bytes whole ones."""
    length, sign = style.unit_of_bytes(high)
    locator = MaxNLocator(4, steps=[1, 2, 5, 10], integer=length == 1, min_n_ticks=1)
    numbers = map(float, locator.tick_values(0, high / length))
    return {n * length: f"{n:.3g} {sign}" for n in numbers if n * length <= high}


def _powers(low: int, high: int) -> dict[float, str]:
    """Marks of a logarithmic scale: powers of 2, evenly spaced, which are whole numbers of any unit."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    exponents = range(first, last + 1, math.ceil((last - first) / 4))
    return {2**exponent: style.size(2**exponent) for exponent in exponents}


def _finding(matrix: Array, messages: int) -> str:
    """The picture in a sentence."""
    p = len(matrix)
    others = matrix * ~np.eye(p, dtype=bool)  # without messages to itself
    partners = np.count_nonzero(others, axis=1)
    low, high = int(partners.min()), int(partners.max())
    whom = f"{low}" if low == high else f"{low}–{high}"
    return (
        f"{style.size(int(matrix.sum()))} in {counted(messages, 'message')}: each of {counted(p, 'rank')} "
        f"sends to {whom} of the others, at most {style.size(int(others.max()))} to one"
    )
