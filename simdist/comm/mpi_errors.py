"""Errors between real ranks: those of MPI and mpi4py as simdist's exceptions."""

import numpy as np

from simdist.arrays import Array, kind_of
from simdist.comm.checks import check_bytes
from simdist.comm.communicator import ANY
from simdist.errors import ArgumentError, ArrayError, MessageMismatch, PeerLost, RankFailed

__all__ = ["check_array", "explain", "is_plain", "too_long"]

_MOST_BYTES = (1 << 31) - 1  # of a message, in an MPI before version 4 of the standard


def check_array(what: str, x: Array, rank: int) -> None:
    """Check that x can be sent or received as plain bytes.

    Raises:
        ArrayError: it is not an array of NumPy or CuPy, not contiguous, or holds objects.
    """
    if not isinstance(x, np.ndarray) and kind_of(x) != "cupy":
        raise ArrayError(
            f"{what} of {type(x).__name__} on rank {rank}: messages between real ranks are arrays of NumPy or CuPy"
        )
    check_bytes(what, x, rank)


def is_plain(x: Array) -> bool:
    """Whether x is an array of NumPy's that can be sent as it is; others take the time of `check_array` and more."""
    return type(x) is np.ndarray and x.flags.c_contiguous and not x.dtype.hasobject


def too_long(call: str, x: Array, peer: int) -> MessageMismatch:
    """The error for a message from `peer` that is longer than the array x posted for it."""
    sender = "any rank" if peer == ANY else f"rank {peer}"
    return MessageMismatch(
        f"{call}: the message from {sender} is longer than the {x.nbytes} bytes ({x.dtype}, shape {x.shape}) "
        "posted for it"
    )


def explain(error: Exception, kind: str, call: str, x: Array, peer: int, tag: int) -> Exception:
    """The error to raise for an error of MPI or mpi4py.

    Args:
        kind: for an MPI error "length", "tag", "lost" or "other"; empty for one of mpi4py.
        call: the call that failed, and its rank.
        x, peer, tag: of the message, if there is one.
    """
    if kind == "length":
        return too_long(call, x, peer)
    if kind == "tag" or isinstance(error, OverflowError):
        return ArgumentError(f"{call}: MPI does not accept the tag {tag}; it accepts at least 0 to 32767")
    if kind == "other" and isinstance(x, np.ndarray) and x.nbytes > _MOST_BYTES:
        return ArrayError(
            f"{call}: {x.nbytes} bytes at once; this MPI accepts at most {_MOST_BYTES}: send it in pieces"
        )
    if kind == "lost":
        return PeerLost(f"{call}, with {'any rank, of which one' if peer == ANY else f'rank {peer}, which'} has died")
    if kind:
        return RankFailed(f"{call}, with {'any rank' if peer == ANY else f'rank {peer}'}: MPI says: {error}")
    if isinstance(x, np.ndarray) and not x.flags.writeable:
        return ArrayError(f"{call}: the array to receive into is read-only")
    return error
