"""Size axes: log scales over the size of an array."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from simdist.plots import style

__all__ = ["over_size"]


class _Marks(LogLocator):
    """Marks at 1, 2 and 5 times powers of ten; over more than three decades labels would touch: only the powers."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """See Matplotlib."""
        self.set_params(subs=(1.0, 2.0, 5.0) if vmax <= 1e3 * vmin else (1.0,))
        return super().tick_values(vmin, vmax)


def over_size(ax: Axes, written: Callable[[float], str], width: float) -> None:
    """Set log scales: an array's size across, on `width` inches, and upwards values that `written` formats."""
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=min(7, int(width / 0.5))))
    ax.xaxis.set_major_formatter(lambda num_bytes, _: style.size(num_bytes))
    ax.yaxis.set_major_locator(_Marks(numticks=12))
    ax.yaxis.set_major_formatter(lambda value, _: written(value))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
        axis.set_minor_locator(NullLocator())
    style.grid(ax)
    ax.set_axisbelow(True)
