"""Experts: how many tokens were routed to each, how many it dropped, and which rank holds it."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from simdist.errors import ArgumentError
from simdist.parallel.expert import Routed, routes
from simdist.plots import style
from simdist.trace import Span
from simdist.words import counted

__all__ = ["expert_load"]

_DROPPED: dict[str, Any] = {"facecolor": "white", "edgecolor": style.ACCENT, "hatch": "////", "linewidth": 0.6}
_EVEN: dict[str, Any] = {"color": style.INK, "linewidth": 0.8, "linestyle": "--"}
_SLOTS: dict[str, Any] = {"color": style.INK, "linewidth": 0.8}
_MOST_LAYERS = 4
_NAMED = 4  # of the ranks with the same experts


def expert_load(spans: Iterable[Span], layers: Iterable[str] | None = None, *, width: float = style.PAGE) -> Figure:
    """Bars of the choices of each expert, in the colour of the rank that holds it, with the dropped ones on top.

    Lines show an expert's capacity, and its load if all loads were even.

    Args:
        spans: of a run; those that record where tokens went are used.
        layers: whose experts to show, by name; by default the first few.
        width: of the figure, in inches.

    Raises:
        ArgumentError: no tokens were sent to experts, there is no such layer, or the loads are unknown.
    """
    found = {name: routed for name, routed in routes(spans).items() if sum(routed.asked)}
    wanted = list(layers or list(found)[:_MOST_LAYERS])
    for name in wanted:
        if name not in found:
            raise ArgumentError(f"no layer {name!r} sent tokens to experts; there are: {', '.join(found) or 'none'}")
    shown = {name: found[name] for name in wanted}
    if not shown:
        raise ArgumentError("no tokens were sent to experts in this record")
    if not all(isfinite(sum(routed.asked)) for routed in shown.values()):
        raise ArgumentError("this record is of arrays without numbers: loads are unknown")
    left = len(found) - len(shown)
    with style.styled():
        fig = style.figure(width, 2.3)
        axes = fig.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for ax, (name, routed) in zip(axes, shown.items(), strict=True):
            _bars(ax, routed)
            ax.set(title=name, xlabel="expert")
        axes[0].set_ylabel("share of the choices")
        keys = _keys(shown)
        style.legend(fig, keys, f"{counted(left, 'more layer')} not shown." if left else "")
        style.title(fig, _finding(shown))
    return fig


def _bars(ax: Axes, routed: Routed) -> None:
    """One layer's experts."""
    total, experts = sum(routed.asked), range(len(routed.asked))
    kept = [(asked - dropped) / total for asked, dropped in zip(routed.asked, routed.dropped, strict=True)]
    lost = [dropped / total for dropped in routed.dropped]
    colours = [style.rank_colour(min(holders)) for holders in routed.holders]
    ax.bar(experts, kept, color=colours, edgecolor="#888888", linewidth=0.4)
    some = [i for i in experts if lost[i]]  # an edge around nothing would still be seen
    ax.bar(some, [lost[i] for i in some], bottom=[kept[i] for i in some], **_DROPPED)
    ax.axhline(1 / len(experts), **_EVEN)
    ax.axhline(routed.slots / total, **_SLOTS)
    ax.xaxis.set_major_locator(style.whole_numbers())
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _keys(shown: dict[str, Routed]) -> list[Any]:
    """The ranks that hold experts, unless there are too many for distinct colours, dropped choices, and the lines."""
    groups = sorted({tuple(sorted(holders)) for routed in shown.values() for holders in routed.holders})
    keys: list[Any] = []
    if len(groups) <= style.NUM_RANK_COLOURS:
        keys = [Patch(color=style.rank_colour(ranks[0]), label=_on(ranks)) for ranks in groups]
    lines = [Line2D([], [], label="slots", **_SLOTS), Line2D([], [], label="even share", **_EVEN)]
    return [*keys, Patch(label="dropped", **_DROPPED), *lines]


def _on(ranks: tuple[int, ...]) -> str:
    """Names the ranks that share experts, or hold a copy each."""
    some = ", ".join(map(str, ranks[:_NAMED])) + (", …" if len(ranks) > _NAMED else "")
    return f"on rank{'s' if len(ranks) > 1 else ''} {some}"


def _finding(shown: dict[str, Routed]) -> str:
    """The picture in a sentence."""
    most = max(max(routed.asked) * len(routed.asked) / sum(routed.asked) for routed in shown.values())
    asked = sum(sum(routed.asked) for routed in shown.values())
    dropped = sum(sum(routed.dropped) for routed in shown.values()) / asked
    experts = max(len(routed.asked) for routed in shown.values())
    ranks = len({rank for routed in shown.values() for holders in routed.holders for rank in holders})
    where = f"{counted(experts, 'expert')} on {counted(ranks, 'rank')}"
    return f"{where}: the busiest is asked for {most:.2g} times its share; {dropped:.1%} of choices are dropped"
