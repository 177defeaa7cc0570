"""Waiting: the shares of its time that each rank worked and waited."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.plots.records import by_name
from simdist.trace import Trace
from simdist.trace.statistics import RankStatistics

__all__ = ["waiting"]

_PARTS = {
    "computing": ("compute", ""),
    "communicating": ("send", ""),
    "waiting": ("wait", "////"),
}


def waiting(runs: Mapping[str, Trace], *, width: float = style.PAGE) -> Figure:
    """How each rank spent its time, with waiting apart from work; a panel for each run.

    Args:
        runs: name -> its record.
        width: of the figure, in inches.

    Raises:
        ArgumentError: a run has no spans, or is no trace.
    """
    if not by_name(runs) or not all(len(trace) for trace in runs.values()):
        raise ArgumentError(f"no spans to draw in {[name for name, trace in runs.items() if not len(trace)]}")
    found = {name: trace.statistics() for name, trace in runs.items()}
    ranks = max(len(told) for told in found.values())
    with style.styled():
        fig = style.figure(width, min(6.0, 1.1 + 0.14 * max(ranks, 4)))
        axes = fig.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for ax, (name, told) in zip(axes, found.items(), strict=True):
            _bars(ax, told)
            ax.set_title(name)
            ax.set_xlabel("share of the time")
        axes[0].set(ylabel="rank", ylim=(ranks - 0.5, -0.5))
        handles = [
            Patch(facecolor=style.colour(kind), hatch=hatch, edgecolor="#888888" if hatch else "none", label=part)
            for part, (kind, hatch) in _PARTS.items()
        ]
        early = any(sum(_share(rank, part) for part in _PARTS) < 0.98 for told in found.values() for rank in told)
        style.legend(fig, handles, "White: none of these was recorded." if early else "")
        style.title(fig, _finding(found))
    return fig


def _bars(ax: Axes, told: list[RankStatistics]) -> None:
    """One bar per rank: computing, communicating with a rank that was ready, and waiting."""
    left = [0.0] * len(told)
    for part, (kind, hatch) in _PARTS.items():
        shares = [_share(rank, part) for rank in told]
        bars = ax.barh(range(len(told)), shares, left=left, height=0.8, linewidth=0, facecolor=style.colour(kind))
        for bar in bars if hatch else ():
            bar.set(hatch=hatch, edgecolor="#888888")
        left = [a + b for a, b in zip(left, shares, strict=True)]
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_locator(style.whole_numbers(12))


def _share(rank: RankStatistics, part: str) -> float:
    if not rank.elapsed_s:
        return 0.0
    seconds = {
        "computing": rank.computing_s,
        "communicating": rank.communicating_s - rank.waiting_s,
        "waiting": rank.waiting_s,
    }[part]
    return seconds / rank.elapsed_s


def _finding(found: Mapping[str, list[RankStatistics]]) -> str:
    """The picture in a sentence."""
    parts = []
    for name, told in found.items():
        waited = [_share(rank, "waiting") for rank in told]
        parts.append(f"{name} {sum(waited) / len(waited):.0%} ({min(waited):.0%} to {max(waited):.0%})")
    return f"Time waited, mean over the ranks: {', '.join(parts)}"
