"""Segments: the pieces in which a pipeline passes an array on.

While one rank sends segment i, the next one already passes on segment i-1. More segments fill the pipeline
sooner and pay more latencies. Where the last rank gets the first segment in step k+1, s segments take k+s steps of
alpha + n beta / s, and s = sqrt(k n beta / alpha) is best.
"""

from simdist.arrays import Partition, partition, slices
from simdist.errors import require_whole

__all__ = ["SEGMENT_BYTES", "piece", "segments"]

SEGMENT_BYTES = 1 << 18
"""The default size of a segment: long enough that a call costs little compared with the transfer."""


def segments(length: int, itemsize: int, segment_bytes: int = SEGMENT_BYTES) -> Partition:
    """Cut `length` items into the fewest runs, as equal as possible, of at most `segment_bytes` each.

    There is always at least one run, even of no items. Only a run of a single item may be longer.

    Raises:
        ArgumentError: segment_bytes is no whole number of at least 1.
    """
    require_whole("segment_bytes", segment_bytes, 1)
    items = max(1, segment_bytes // itemsize)
    return partition(length, max(1, -(-length // items)))


def piece(chunk: slice, pieces: int, k: int) -> slice:
    """Piece k of a chunk that is cut into this many pieces."""
    part = slices(chunk.stop - chunk.start, pieces)[k]
    return slice(chunk.start + part.start, chunk.start + part.stop)
