"""Arrows: lines from where messages are sent to where they are received."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from simdist.trace import Span

__all__ = ["Point", "draw_arrows"]

_MOST_ARROWS = 2_000

Point = tuple[float, float]


def draw_arrows(
    ax: Axes,
    messages: Sequence[tuple[Span, Span]],
    ends: Callable[[Span, Span], tuple[Point, Point]],
    *,
    colour: str,
    head: float,
) -> list[str]:
    """Draw a line for each message, with a dot as its head; returns a note if there are too many.

    Args:
        messages: each as its send and its receive.
        ends: ends(send, receive) is where its line begins, and where it ends.
        colour, head: of the lines; the size of the dots.
    """
    lines = [ends(send, recv) for send, recv in messages[:_MOST_ARROWS]]
    if lines:
        x, y = zip(*(end for _, end in lines), strict=True)
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=0.5, zorder=5))
        ax.scatter(x, y, s=head, color=colour, zorder=5, linewidths=0)
    left_out = len(messages) > _MOST_ARROWS
    return [f"{_MOST_ARROWS:,} of {len(messages):,} messages have an arrow."] if left_out else []
