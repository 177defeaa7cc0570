"""OpenRequests: what a program leaves behind: requests that it has not waited for, and unreceived messages."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from simdist.comm.checks import ANY
from simdist.comm.request import Request

__all__ = ["OpenRequests", "listed_below", "remedy", "unreceived", "with_tag"]

_MOST_ROWS = 8


class OpenRequests(dict[Request, tuple[str, Any, int, int]]):
    """The nonblocking sends and receives whose `wait` has not been called yet.

    Each with its call: "isend" or "irecv", the communicator, and the peer and the tag as given.
    """

    def rows(self) -> list[str]:
        """Each of them in words."""
        rows = []
        for what, comm, peer, tag in self.values():
            me, other = comm.ranks[comm.rank], "any rank" if peer == ANY else f"rank {comm.ranks[peer]}"
            way = "to" if what == "isend" else "from"
            rows.append(f"rank {me} never waited for its {what} {way} {other}{with_tag(tag)} on {comm.context!r}")
        return rows


def remedy(waits: Sequence[str]) -> list[str]:
    """A line that says what to do, if ranks wait for each other that all send or all receive; else none.

    Args:
        waits: in words, as in messages about deadlocks and deadlines.
    """
    if waits and all(each.startswith("waits to send") and " and receive from" not in each for each in waits):
        return ["All send before they receive: use sendrecv, or isend, then recv, then the wait of isend's request"]
    if waits and all(each.startswith("waits to receive") and "a message with" not in each for each in waits):
        return ["All wait for messages that none of them has sent: one has to send before it receives"]
    return []


def unreceived(src: int, dst: int, num_bytes: int, tag: int, context: str) -> str:
    """A message that was sent and never received, in words; src and dst are global ranks."""
    return f"rank {dst} never received a message of {num_bytes} bytes from rank {src}{with_tag(tag)} on {context!r}"


def with_tag(tag: int) -> str:
    """The tag of a message in a sentence about it; nothing for 0 and ANY."""
    return "" if tag in (0, ANY) else f" with tag {tag}"


def listed_below(head: str, rows: list[str]) -> str:
    """The rows below a heading, equal ones once; of many, the first ones and how many more there are."""
    rows = [row if times == 1 else f"{row}, {times} times" for row, times in Counter(rows).items()]
    more = [f"… and {len(rows) - _MOST_ROWS} more"] if len(rows) > _MOST_ROWS else []
    return "\n  ".join([head, *rows[:_MOST_ROWS], *more])
