"""Server traffic: the busiest rank's bytes per step over the number of workers, through a server and in a ring."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from simdist.errors import ArgumentError
from simdist.plots import style

__all__ = ["ServerTraffic", "server_traffic"]


class ServerTraffic(NamedTuple):
    """What the busiest rank sent in a step of this many workers, by the record.

    Attributes:
        workers: how many share each step.
        server_bytes: sent by the server, which receives as many.
        ring_bytes: sent by each rank of a ring all-reduce on as many ranks.
    """

    workers: int
    server_bytes: float
    ring_bytes: float


def server_traffic(measured: Sequence[ServerTraffic], num_bytes: int, *, width: float = style.COLUMN) -> Figure:
    """Bytes per step over the number of workers: a server's grow with it, a ring's do not.

    Marks are what was measured, lines the formulas: p n through the server, 2n(p-1)/p round the ring.

    Args:
        num_bytes: n, of the weights.
        width: of the figure, in inches.

    Raises:
        ArgumentError: nothing was measured.
    """
    if not measured:
        raise ArgumentError("no traffic to draw")
    points = sorted(measured)
    p = np.linspace(1, points[-1].workers, 200)
    lines = {
        "one server": (p * num_bytes, [point.server_bytes for point in points]),
        "ring all-reduce": (2 * num_bytes * (p - 1) / p, [point.ring_bytes for point in points]),
    }
    with style.styled():
        fig = style.figure(width, 2.3)
        ax = fig.subplots()
        handles = []
        for i, (name, (formula, found)) in enumerate(lines.items()):
            look = style.series(i)
            ax.plot(p, formula, color=look["color"], linewidth=3.0, alpha=0.25)
            handles += ax.plot([point.workers for point in points], found, **look, linestyle="", label=name)
        ax.set(xlabel="workers", ylabel="sent a step, busiest rank", xlim=(0, None), ylim=(0, None))
        ax.xaxis.set_major_locator(style.whole_numbers())
        step = 2.0 ** max(0, np.ceil(np.log2(max(points[-1].server_bytes, 1) / 5)))
        ax.yaxis.set_major_locator(MultipleLocator(step))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: style.size(y)))
        ax.grid(True, axis="y", color="#EEEEEE", linewidth=0.5)
        style.legend(fig, handles, "Marks: measured. Lines: formulas.", letters=16)
        style.title(fig, _finding(points[-1]))
    return fig


def _finding(last: ServerTraffic) -> str:
    """The picture in a sentence."""
    text = f"With {style.number(last.workers, 'worker')} the server sends {style.size(last.server_bytes)} a step"
    if last.ring_bytes:
        text += f", {last.server_bytes / last.ring_bytes:.3g} times what a rank of a ring does"
    return text
