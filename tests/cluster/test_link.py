from math import nan

import pytest

from simdist.cluster import Link
from simdist.errors import ArgumentError


def test_a_message_takes_alpha_and_n_beta():
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(8) == 4.0
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(0) == 2.0


@pytest.mark.parametrize(
    ("senders", "wires", "share"),
    [(1, 1, 1), (8, 1, 8), (8, 4, 2), (9, 4, 3), (2, 4, 1), (0, 4, 1), (8, float("inf"), 1)],
)
def test_those_that_send_at_once_share_the_wires(senders, wires, share):
    """The busiest wire has ⌈senders / wires⌉ of them."""
    assert Link(2.0, 24.0).among(senders, wires) == Link(2.0, 24.0 / share)


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "message"),
    [(-1.0, 1.0, "latency_s is -1.0; needs at least 0"), (nan, 1.0, "latency_s is nan"), (0.0, 0, "bytes_per_s is 0;")],
)
def test_refuses_what_no_wire_is(latency_s, bytes_per_s, message):
    with pytest.raises(ArgumentError, match=message):
        Link(latency_s, bytes_per_s)
