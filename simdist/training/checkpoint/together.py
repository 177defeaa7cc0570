"""Together: a failure on one rank raises the same error on all."""

from collections.abc import Callable

from simdist.comm import Communicator
from simdist.errors import ArgumentError, ArrayError, CheckpointError, CheckpointMismatch, CorruptCheckpoint, DataError

__all__ = ["on_rank_0", "together"]

_KINDS = {
    kind.__name__: kind
    for kind in (CheckpointError, CorruptCheckpoint, CheckpointMismatch, DataError, ArgumentError, ArrayError)
}

_TEXT_BYTES = 900  # of a note's 1000


def together(comm: Communicator, action: Callable[[], str | None]) -> list[str]:
    """Do something on every rank, then exchange the outcomes.

    Args:
        action: returns a note for the other ranks of less than 1000 bytes, or None. No rank goes on if it raises one
            of simdist's errors about checkpoints, files and arguments, or an OSError, which counts as CheckpointError.

    Returns:
        the notes, by rank; "" for None.

    Raises:
        CheckpointError, DataError, ArgumentError: on all ranks the same, that of the first rank that failed, which it
            names.
    """
    failure: Exception | None = None
    note = ""
    try:
        note = f"={action() or ''}"
        comm.check_note(note)
    except (OSError, ArgumentError) as error:
        failure = error
        names = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS)
        kind = next(names, CheckpointError.__name__)
        who = f"rank {comm.rank}: " if comm.size > 1 else ""
        text = f"{who}{error}".encode(errors="backslashreplace")[:_TEXT_BYTES].decode(errors="ignore")
        note = f"!{kind} {text}"
    notes = comm.exchange(note)
    for other in notes:
        if other.startswith("!"):
            kind, _, text = other[1:].partition(" ")
            raise _KINDS[kind](text) from failure
    return [other[1:] for other in notes]


def on_rank_0(comm: Communicator, action: Callable[[], str | None]) -> str:
    """Have rank 0 do something on behalf of all; returns its note, if any. All ranks must call.

    Raises:
        CheckpointError, DataError, ArgumentError: as of `together`.
    """
    return together(comm, lambda: action() if comm.rank == 0 else None)[0]
