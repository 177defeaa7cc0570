from math import nan

import pytest

from simdist.cluster import Link
from simdist.errors import ArgumentError


def test_a_message_takes_alpha_and_n_beta():
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(8) == 4.0
    assert Link(latency_s=2.0, bytes_per_s=4.0).seconds(0) == 2.0


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "message"),
    [(-1.0, 1.0, "latency_s is -1.0; needs at least 0"), (nan, 1.0, "latency_s is nan"), (0.0, 0, "bytes_per_s is 0;")],
)
def test_refuses_what_no_wire_is(latency_s, bytes_per_s, message):
    with pytest.raises(ArgumentError, match=message):
        Link(latency_s, bytes_per_s)
