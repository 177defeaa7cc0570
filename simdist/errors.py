"""Every exception that simdist raises on purpose.

Each names the value, the limit and, where ranks take part, the rank. Each takes one message, so that
it survives the way back from a rank's process to the one that started it.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ArgumentError",
    "ArrayError",
    "CheckpointError",
    "CheckpointMismatch",
    "CollectiveMismatch",
    "CorruptCheckpoint",
    "DataError",
    "DeadlineError",
    "DeadlockError",
    "MessageMismatch",
    "PeerLost",
    "RankFailed",
    "ReplicaDrift",
    "ScheduleError",
    "SharedMemoryFull",
    "SimdistError",
    "UnknownNameError",
    "WorldUnavailable",
    "unknown_name",
]

_MANY = 30  # names that nobody would read


class SimdistError(Exception):
    """Anything that simdist raises on purpose."""


class ArgumentError(SimdistError, ValueError):
    """An argument lies outside its limits; the message gives both."""


class UnknownNameError(ArgumentError):
    """A name (of an algorithm, an operation, a preset) that does not exist; the message lists those that do."""


class ArrayError(ArgumentError):
    """An array that cannot be used as it is: not contiguous, read-only, of the wrong shape or dtype."""


class ScheduleError(ArgumentError):
    """A pipeline schedule that cannot be carried out; the message shows its rows, the place marked."""


class DataError(SimdistError, OSError):
    """A data file that cannot be read or holds too little."""


class CheckpointError(SimdistError, OSError):
    """A checkpoint that cannot be written or read; raised on all ranks alike, and those written before are intact."""


class CorruptCheckpoint(CheckpointError):
    """A checkpoint that is not as it was written: cut, changed, incomplete or forged; nothing was loaded from it."""


class CheckpointMismatch(CheckpointError):
    """A sound checkpoint of something else: other names, shapes or dtypes than asked for; nothing was loaded."""


class CollectiveMismatch(SimdistError):
    """Ranks called different collectives, or the same one with different arguments; raised on all of them."""


class MessageMismatch(SimdistError):
    """A message does not fit the buffer posted for it."""


class DeadlockError(SimdistError):
    """No rank can go on; the message gives the cycle of who waits for whom."""


class DeadlineError(SimdistError, TimeoutError):
    """A wait outlasted its deadline."""


class ReplicaDrift(SimdistError):
    """Copies of a model that should be the same are not; raised on all ranks, naming those that drifted."""


class RankFailed(SimdistError):
    """A rank ended without a result: killed, exited, or raised something that cannot travel."""


class PeerLost(RankFailed):
    """A rank that a message was to come from, or go to, has died, and the job may go on without it."""


class SharedMemoryFull(SimdistError, MemoryError):
    """A node's ranks want to share more memory than it has for that."""


class WorldUnavailable(SimdistError):
    """The MPI world was asked for where there is no MPI, or one inside another."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for `name`, which is no known `kind`: guesses which was meant, or lists them; both if they are few."""
    names = sorted(known)
    folded = {each.casefold(): each for each in names}
    near = [folded[each] for each in get_close_matches(str(name).casefold(), folded, n=1)]
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if near and len(names) > _MANY:
        return UnknownNameError(f"unknown {kind} {name!r}{hint}")
    there = f"There are: {', '.join(names)}" if names else "There are none"
    return UnknownNameError(f"unknown {kind} {name!r}{hint or '.'} {there}")
