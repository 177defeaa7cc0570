"""Attention work: how long each rank of a ring worked on the keys of each rank."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.plots.records import by_name
from simdist.trace import Trace

__all__ = ["attention_work"]

_SPANS = ("forward attention", "backward attention")

_Work = list[dict[int, float]]
"""For each rank, by the rank whose keys they were, seconds."""


def attention_work(runs: Mapping[str, Trace], *, width: float = style.PAGE) -> Figure:
    """A panel for each run with a bar for each rank, coloured by the ranks whose keys it worked on.

    Args:
        runs: name, such as that of a split of the sequence -> its record; spans `forward attention` and
            `backward attention` are drawn, whose detail says whose block it was.
        width: of the figure, in inches.

    Raises:
        ArgumentError: a run has no such spans, or is no trace.
    """
    found = {name: _work(trace) for name, trace in by_name(runs).items()}
    if not found:
        raise ArgumentError("no runs: nothing to draw")
    for name, work in found.items():
        if not work or not all(any(own.values()) for own in work):
            raise ArgumentError(f"in the record of {name} not every rank has worked on keys of ring attention")
    ranks = max(map(len, found.values()))
    longest = max(sum(own.values()) for work in found.values() for own in work)
    length, sign = style.unit_of_time(longest)
    with style.styled():
        fig = style.figure(width, min(6.0, 1.2 + 0.2 * max(ranks, 4)))
        axes = fig.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
        for ax, (name, work) in zip(axes, found.items(), strict=True):
            _bars(ax, work, length)
            ax.set(title=name, xlabel=f"computing ({sign})")
        axes[0].set(ylabel="rank", xlim=(0, 1.12 * longest / length), ylim=(ranks - 0.5, -0.5))
        keys, repeated = style.rank_key(ranks, "keys of rank")
        note = f"Beside each bar: its length relative to the shortest of its run. {repeated}"
        style.legend(fig, keys, note)
        style.title(fig, _finding(found))
    return fig


def _work(trace: Trace) -> _Work:
    """The recorded work of each rank; empty unless every rank has some."""
    work: dict[int, dict[int, float]] = {}
    for span in trace:
        if span.name in _SPANS and span.detail.startswith("block "):
            owner = int(span.detail.removeprefix("block "))
            own = work.setdefault(span.rank, {})
            own[owner] = own.get(owner, 0.0) + span.end_s - span.start_s
    return [work[rank] for rank in range(trace.ranks)] if len(work) == trace.ranks else []


def _bars(ax: Axes, work: _Work, length: float) -> None:
    least = min(sum(own.values()) for own in work)
    for rank, own in enumerate(work):
        left = 0.0
        for owner, seconds in own.items():
            ax.barh(rank, seconds / length, left=left, height=0.8, color=style.rank_colour(owner), linewidth=0)
            left += seconds / length
        if len(work) <= 16:
            ax.text(left, rank, f" {sum(own.values()) / least:.1f}", va="center", fontsize=6.5)
    ax.yaxis.set_major_locator(style.whole_numbers(12))


def _finding(found: Mapping[str, _Work]) -> str:
    """The picture in a sentence."""
    parts = []
    for name, work in found.items():
        seconds = [sum(own.values()) for own in work]
        parts.append(f"{name + ' ' if len(found) > 1 else ''}{max(seconds) / min(seconds):.1f} times the least")
    return f"Most work of a rank in ring attention: {', '.join(parts)}"
