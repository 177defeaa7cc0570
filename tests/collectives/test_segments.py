"""Segments: few, equal, not too long, and at least one."""

import pytest

from simdist.collectives.segments import SEGMENT_BYTES, segments
from simdist.errors import ArgumentError


@pytest.mark.parametrize("itemsize", [1, 2, 8])
@pytest.mark.parametrize("segment_bytes", [1, 7, 8, 24, SEGMENT_BYTES])
def test_the_fewest_that_are_short_enough(segment_bytes, itemsize):
    most = max(1, segment_bytes // itemsize)
    for length in (0, 1, 2, 3, 10, 100, 100_000):
        parts = segments(length, itemsize, segment_bytes)
        sizes = [part.stop - part.start for part in parts]
        assert sum(sizes) == length
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= most
        assert len(parts) == 1 or (len(parts) - 1) * most < length


@pytest.mark.parametrize("segment_bytes", [0, -1])
def test_a_segment_has_some_length(segment_bytes):
    with pytest.raises(ArgumentError, match=f"segment_bytes is {segment_bytes}; needs at least 1"):
        segments(10, 8, segment_bytes)


@pytest.mark.parametrize("length", [10, 1000])
def test_a_segment_is_a_number_of_bytes(length):
    with pytest.raises(ArgumentError, match=r"segment_bytes is 100\.0; needs a whole number"):
        segments(length, 8, 100.0)
