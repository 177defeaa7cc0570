"""Waiting: the shares of its time that each rank worked and waited."""

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from simdist.plots import style
from simdist.plots.records import by_name, require_each
from simdist.trace import Trace
from simdist.trace.statistics import RankStatistics

__all__ = ["waiting"]

_PARTS: dict[str, tuple[str, Callable[[RankStatistics], float]]] = {
    "computing": ("compute", lambda rank: rank.computing_s),
    "communicating": ("send", lambda rank: rank.communicating_s - rank.waiting_s),
    "waiting": ("wait", lambda rank: rank.waiting_s),
}
"""The parts of a rank's time: the kind whose colour each has, and its seconds."""


def waiting(runs: Mapping[str, Trace], *, width: float = style.PAGE) -> Figure:
    """How each rank spent its time, with waiting apart from work; a panel for each run.

    Args:
        runs: name -> its record.
        width: of the figure, in inches.

    Raises:
        ArgumentError: a run has no spans, or is no trace.
    """
    require_each(by_name(runs), "spans")
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
        handles = [Patch(**style.look(kind), label=part) for part, (kind, _) in _PARTS.items()]
        early = any(sum(_share(rank, part) for part in _PARTS) < 0.98 for told in found.values() for rank in told)
        style.legend(fig, handles, "White: none of these was recorded." if early else "")
        style.title(fig, _finding(found))
    return fig


def _bars(ax: Axes, told: list[RankStatistics]) -> None:
    """One bar per rank: computing, communicating with a rank that was ready, and waiting."""
    left = [0.0] * len(told)
    for part, (kind, _) in _PARTS.items():
        shares = [_share(rank, part) for rank in told]
        ax.barh(range(len(told)), shares, left=left, height=0.8, linewidth=0, **style.look(kind))
        left = [a + b for a, b in zip(left, shares, strict=True)]
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_locator(style.whole_numbers(12))


def _share(rank: RankStatistics, part: str) -> float:
    return _PARTS[part][1](rank) / rank.elapsed_s if rank.elapsed_s else 0.0


def _finding(found: Mapping[str, list[RankStatistics]]) -> str:
    """The picture in a sentence."""
    parts = []
    for name, told in found.items():
        waited = [_share(rank, "waiting") for rank in told]
        parts.append(f"{name} {sum(waited) / len(waited):.0%} ({min(waited):.0%} to {max(waited):.0%})")
    return f"Time waited, mean over the ranks: {', '.join(parts)}"
