import re

import pytest

from simdist.errors import ArgumentError
from simdist.optim import Spans

WHOLE = Spans([slice(10, 20), slice(0, 7), slice(7, 10), slice(25, 25), slice(30, 40)])


def pairs(spans):
    return [(span.start, span.stop) for span in spans]


def test_they_are_in_order():
    assert pairs(WHOLE) == [(0, 7), (7, 10), (10, 20), (25, 25), (30, 40)]
    assert len(WHOLE) == 5


def test_a_shard_sees_all_of_them_cut():
    assert pairs(WHOLE.cut(5, 35)) == [(0, 2), (2, 5), (5, 15), (20, 20), (25, 30)]
    assert pairs(WHOLE.cut(20, 24)) == [(0, 0), (0, 0), (0, 0), (4, 4), (4, 4)]


def test_a_block_sees_what_lies_in_it():
    assert pairs(WHOLE.within(slice(0, 50))) == [(0, 7), (7, 10), (10, 20), (30, 40)]
    assert pairs(WHOLE.within(slice(19, 31))) == [(0, 1), (11, 12)]
    assert pairs(WHOLE.within(slice(20, 30))) == []
    assert [i for _, i in WHOLE.numbered(slice(8, 31))] == [1, 2, 4]


def test_every_item_is_found_once_in_any_cut():
    for size in range(1, 45):
        shard = WHOLE.cut(3, 33)
        found = [
            (block + j + 3, i)
            for block in range(0, 30, size)
            for part, i in shard.numbered(slice(block, min(block + size, 30)))
            for j in range(part.start, part.stop)
        ]
        assert found == [(k, i) for i, span in enumerate(WHOLE) for k in range(span.start, span.stop) if 3 <= k < 33]


@pytest.mark.parametrize(
    "wrong", [slice(3, 2), slice(-1, 2), slice(0, None), slice(None, 2), slice(0, 4, 2), slice(19, 22)]
)
def test_what_is_no_span(wrong):
    with pytest.raises(ArgumentError, match=re.escape(str(wrong)) + " (is no stretch of a vector|overlap)"):
        Spans([slice(10, 20), wrong])
