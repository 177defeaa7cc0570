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
    """Draw a line for each message, with a dot as its head; of too many, for some spread evenly, and returns a note.

    Args:
        messages: each as its send and its receive.
        ends: ends(send, receive) is where its line begins, and where it ends.
        colour, head: of the lines; the size of the dots.
    """
    count = min(len(messages), _MOST_ARROWS)
    lines = [ends(*messages[i * len(messages) // count]) for i in range(count)]
    if lines:
        x, y = zip(*(end for _, end in lines), strict=True)
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=0.5, zorder=5))
        ax.scatter(x, y, s=head, color=colour, zorder=5, linewidths=0)
    return [f"{count:,} of {len(messages):,} messages have an arrow."] if count < len(messages) else []
