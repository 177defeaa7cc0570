"""Plans as text."""

from types import SimpleNamespace

import pytest

from simdist.planning.told import room


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (90e9, "it fits: the fullest rank holds 90 GB, and a device has 100 GB"),
        (99e9, "it fits narrowly, and predictions may be 3% low: the fullest rank holds 99 GB"),
        (101e9, "it does not fit: the fullest rank holds 101 GB"),
    ],
)
def test_whether_a_plan_fits(held, words):
    bench = SimpleNamespace(cluster=SimpleNamespace(device=SimpleNamespace(memory_bytes=100e9)))
    assert room(SimpleNamespace(num_bytes=held), bench).startswith(words)
