import pytest

from simdist.asynchronous.parameter_server import Layout
from simdist.errors import ArgumentError


@pytest.mark.parametrize(("num_keys", "row_width"), [(0, 1), (1, 1), (17, 1), (24, 4), (8, 8)])
@pytest.mark.parametrize("num_servers", [1, 2, 3, 5])
def test_every_key_has_one_server_and_no_row_is_parted(num_keys, row_width, num_servers):
    layout = Layout(num_servers + 2, num_servers, num_keys, row_width)
    held = [key for server in range(num_servers) for key in range(num_keys)[layout.keys(server)]]
    assert held == list(range(num_keys))
    assert all(layout.keys(server).start % row_width == 0 for server in range(num_servers))


def test_parts_of_a_range():
    layout = Layout(5, 3, 10)  # keys 0-3, 4-6, 7-9
    assert list(layout.parts(slice(2, 8))) == [(0, slice(2, 4)), (1, slice(4, 7)), (2, slice(7, 8))]
    for start in range(11):
        for stop in range(start, 11):
            found = [key for _, part in layout.parts(slice(start, stop)) for key in range(part.start, part.stop)]
            assert found == list(range(start, stop))


def test_workers_come_after_servers():
    layout = Layout(5, 2, 10)
    assert layout.num_workers == 3
    assert [layout.worker(rank) for rank in (2, 3, 4)] == [0, 1, 2]
    assert layout.rank_of(2) == 4


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((3, 0, 4), "0 servers on 3 ranks"),
        ((3, 3, 4), "3 servers on 3 ranks"),
        ((1, 1, 4), "1 server on 1 rank;"),
        ((3, 1, 5, 2), "5 keys in rows of 2"),
        ((3, 1, -1), "num_keys is -1; needs at least 0"),
    ],
)
def test_what_is_no_layout(arguments, fault):
    with pytest.raises(ArgumentError, match=fault):
        Layout(*arguments)


@pytest.mark.parametrize("keys", [slice(-1, 3), slice(4, 3), slice(0, 11), slice(0, 10, 2)])
def test_keys_that_there_are_not(keys):
    layout = Layout(5, 3, 10)
    layout.check(slice(0, 10))
    with pytest.raises(ArgumentError, match=f"keys {keys.start} to {keys.stop}; there are 0 to 10"):
        layout.check(keys)
