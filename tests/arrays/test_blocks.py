import numpy as np
import pytest

from simdist.arrays import phantom
from simdist.arrays.blocks import blocks


@pytest.mark.parametrize(("rows", "row_bytes"), [(0, 8), (1, 8), (10, 30), (10, 100), (10, 1000), (7, 0)])
def test_blocks_cover_all_rows_in_order(rows, row_bytes):
    found = blocks(rows, row_bytes, np.empty(0), block_bytes=100)
    assert [i for part in found for i in range(rows)[part]] == list(range(rows))
    assert all(part.stop - part.start in (1, *range(100 // max(1, row_bytes) + 1)) for part in found)


def test_an_array_that_is_not_in_memory_is_not_cut():
    assert blocks(1 << 40, 1 << 20, phantom(1)) == [slice(0, 1 << 40)]
