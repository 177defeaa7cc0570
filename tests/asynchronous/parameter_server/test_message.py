import numpy as np
import pytest

from simdist.asynchronous.parameter_server.message import HEADER_BYTES, Kind, Message


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("rows", [None, [], [3], [1, 4, 5]])
def test_what_is_packed_comes_out_again(dtype, rows):
    width = 3
    count = 5 if rows is None else width * len(rows)
    values = np.arange(count, dtype=dtype)
    numbers = None if rows is None else np.array(rows, np.int64)
    packet = Message(Kind.PUSH, 7, slice(2, 9), values, numbers).packed()
    assert packet.dtype == np.uint8
    assert len(packet) == HEADER_BYTES + 8 * len(rows or ()) + values.nbytes
    kind, clock, keys, found, found_rows = Message.unpacked(packet, np.dtype(dtype))
    assert (kind, clock, keys) == (Kind.PUSH, 7, slice(2, 9))
    np.testing.assert_array_equal(found, values)
    assert (found_rows is None) == (rows is None)
    if rows is not None:
        assert found_rows.tolist() == rows


def test_values_that_do_not_lie_side_by_side():
    values = np.arange(10.0)[::2]
    packet = Message(Kind.PUSH, 7, slice(0, 5), values).packed()
    np.testing.assert_array_equal(Message.unpacked(packet, values.dtype).values, values)
