"""Record: the spans of all ranks brought together on one."""

import json

import numpy as np

from simdist.collectives import gather
from simdist.comm import Communicator
from simdist.trace import Span, Trace

__all__ = ["gather_trace"]


def gather_trace(comm: Communicator, root: int = 0, first: int = 0) -> Trace | None:
    """The record of all ranks up to here, on root; None elsewhere. All ranks must call.

    It travels as text: a line a rank, a JSON list of its spans.

    Args:
        first: how many of this rank's earliest spans to leave out.
    """
    rows = [list(span) for span in comm.recorder.spans()[first:]]
    text = np.frombuffer(json.dumps(rows).encode() + b"\n", np.uint8)
    full = gather(text, comm, root)
    if full is None:
        return None
    spans = (Span(*row) for line in full.tobytes().splitlines() for row in json.loads(line))
    return Trace(spans, max(comm.ranks) + 1)
