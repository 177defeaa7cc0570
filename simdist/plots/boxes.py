"""Boxes: the place of each span of a timeline in the row of its stream, for every renderer.

full height     computing
strip on top    a collective; its time is paler below the strip
below it        sends, and below these receives, from when they are posted; those in flight at the
                same time share the height; or moves in shared memory
outline         a frame around other spans, such as a training step
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from simdist.trace import Span
from simdist.trace.kind import COLLECTIVES, COMMUNICATING, COMPUTING, MESSAGES, kind
from simdist.trace.layout import Lanes, Layout

__all__ = ["STRIP", "Box", "boxes", "words"]

STRIP = -0.44, -0.17
"""Top and bottom of a collective's strip."""

_WORDS = {"recv": "receive", "move": "move in shared memory", "wait": "waiting", "compute": "computing"}


class Box(NamedTuple):
    """How a span is drawn.

    Attributes:
        role: "frame", "collective", "operation" or "message"; later ones are drawn in front.
        kind: determines the colour.
        top, bottom: in heights of a row, from its middle downwards.
    """

    role: str
    kind: str
    top: float
    bottom: float


def boxes(spans: Sequence[Span]) -> list[Box]:
    """The box of each span."""
    encloses = Layout.of(spans).encloses
    lanes = _flights(spans)
    found = []
    for i, s in enumerate(spans):
        what = kind(s.name)
        if what in MESSAGES:
            lane, number = lanes[i]
            high = 0.28 / number
            top = (-0.16 if what == "send" else 0.14) + lane * high
            found.append(Box("message", what, top, top + high * (0.85 if number > 1 else 1)))
        elif what in COLLECTIVES:
            found.append(Box("collective", what, STRIP[0], 0.42))
        elif what == "move":
            found.append(Box("operation", what, -0.16, 0.42))
        elif what in COMPUTING or what == "wait" or (s.seconds and not encloses[i]):
            found.append(Box("operation", "compute" if what == "other" else what, -0.42, 0.42))
        else:
            found.append(Box("frame", "other", -0.48, 0.48))
    return found


def words(found: Iterable[Box]) -> dict[str, str]:
    """The kinds that occur, for the key, each with its name; frames need none."""
    kinds = {box.kind for box in found if box.role != "frame"}
    named = [kind for kind in COMPUTING if kind != "compute"]
    order = [*named, "compute", *COMMUNICATING, "disk"]
    other = {"compute": "other computing"} if kinds & {"forward", "backward"} else {}
    return {kind: other.get(kind, _WORDS.get(kind, kind)) for kind in sorted(kinds, key=order.index)}


def _flights(spans: Sequence[Span]) -> dict[int, tuple[int, int]]:
    """For each message its lane among those in flight at the same time, and the number of lanes in its row."""
    rows: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for i, s in enumerate(spans):
        what = kind(s.name)  # a name may say more, as "send gradients" does
        if what in MESSAGES:
            rows[s.rank, s.stream, what].append(i)
    found: dict[int, tuple[int, int]] = {}
    for indices in rows.values():
        lanes, in_order = Lanes(), sorted(indices, key=lambda i: (spans[i].start_s, spans[i].end_s))
        lane = {i: lanes.take(spans[i].start_s, spans[i].end_s) for i in in_order}
        found.update({i: (k, lanes.count) for i, k in lane.items()})
    return found
