"""Record: gathers the spans of all ranks on one."""

import json
from typing import Any

import numpy as np

from simdist.collectives import broadcast, gather
from simdist.comm import Communicator
from simdist.trace import Span, Trace

__all__ = ["broadcast_bytes", "broadcast_json", "gather_json", "gather_trace"]


def gather_trace(comm: Communicator, first: int = 0) -> Trace | None:
    """The record of all ranks so far, on rank 0; None elsewhere. All ranks must call.

    It is sent as text: one line per rank, a JSON list of its spans.

    Args:
        first: how many of this rank's earliest spans to leave out.
    """
    told = gather_json(comm, [list(span) for span in comm.recorder.spans()[first:]])
    if told is None:
        return None
    return Trace((Span(*row) for rows in told for row in rows), max(comm.ranks) + 1)


def gather_json(comm: Communicator, value: Any) -> list[Any] | None:
    """Gather a value from each rank, by rank, on rank 0; None elsewhere. All ranks must call.

    Args:
        value: made of numbers, text, lists and tuples, which arrive as lists.
    """
    told = json.dumps(value, default=np.generic.item)  # a span's bytes may be a NumPy number
    text = np.frombuffer(told.encode() + b"\n", np.uint8)
    full = gather(text, comm)
    return None if full is None else [json.loads(line) for line in full.tobytes().splitlines()]


def broadcast_json(comm: Communicator, value: Any) -> Any:
    """Broadcast rank 0's value, of the kinds that `gather_json` takes. All ranks must call."""
    return json.loads(broadcast_bytes(comm, json.dumps(value).encode()))


def broadcast_bytes(comm: Communicator, data: bytes) -> bytes:
    """Broadcast rank 0's data; what other ranks give is ignored. All ranks must call."""
    length = int(comm.exchange(str(len(data)))[0])
    x = np.empty(length, np.uint8) if comm.rank else np.frombuffer(data, np.uint8)
    broadcast(x, comm)
    return x.tobytes()
