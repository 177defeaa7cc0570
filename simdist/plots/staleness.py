"""Staleness: how old the weights were that updates were computed from."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from simdist.arrays import Array
from simdist.plots import style
from simdist.plots.records import require_each
from simdist.words import counted

__all__ = ["staleness"]

_MOST_BARS = 60
_SHOWN = 0.995  # of each run's updates: a few very stale ones would leave little room for the others


def staleness(runs: Mapping[str, Sequence[int]], *, width: float = style.COLUMN) -> Figure:
    """The distribution of staleness, as shares of all updates of each run.

    Args:
        runs: name -> the staleness of each update: how many others were applied between its read and its application.
        width: of the figure, in inches.

    Raises:
        ArgumentError: there are no updates.
    """
    require_each(runs, "updates")
    highest = max(int(np.quantile(found, _SHOWN, method="inverted_cdf")) for found in runs.values())
    step = -(-(highest + 1) // _MOST_BARS)
    edges = np.arange(0, highest + step + 1, step) - 0.5
    with style.styled():
        fig = style.figure(width, 2.2)
        ax = fig.subplots()
        handles = []
        for i, (name, found) in enumerate(runs.items()):
            colour = style.series(i)["color"]
            shares = np.histogram(found, edges)[0] / len(found)
            handles.append(ax.stairs(shares, edges, color=colour, label=name, linewidth=1.2, zorder=3))
            ax.stairs(shares, edges, color=style.tint(colour, 0.25), fill=True, zorder=2)
        in_bars = f", {step} in a bar" if step > 1 else ""
        ax.set(xlabel=f"staleness (updates in between{in_bars})", ylabel="share of updates")
        ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
        ax.xaxis.set_major_locator(style.whole_numbers())
        ax.set_axisbelow(True)
        style.grid(ax)
        beyond = sum(int(np.sum(np.asarray(found) > edges[-1])) for found in runs.values())
        style.legend(fig, handles, f"{counted(beyond, 'update')} beyond the axis." if beyond else "")
        style.title(fig, _finding({name: np.asarray(found) for name, found in runs.items()}))
    return fig


def _finding(runs: Mapping[str, Array]) -> str:
    """The picture in a sentence."""
    parts = [f"{name} {found.mean():.3g} (most {found.max()})" for name, found in runs.items()]
    return f"Mean staleness: {', '.join(parts)}"
