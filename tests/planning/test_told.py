"""Plans as text."""

from types import SimpleNamespace

import pytest

from simdist.planning.told import _bytes, _time, room


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (100e9, "it fits: the fullest rank holds 100 GB, and a device has 100 GB"),
        (101e9, "it does not fit: the fullest rank holds 101 GB"),
    ],
)
def test_whether_a_plan_fits(held, words):
    bench = SimpleNamespace(cluster=SimpleNamespace(device=SimpleNamespace(memory_bytes=100e9)))
    assert room(SimpleNamespace(num_bytes=held), bench).startswith(words)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (_bytes(999.4e6), "999 MB"),
        (_bytes(999.6e6), "1,000 MB"),
        (_bytes(999.7e9), "1,000 GB"),
        (_time(9999.6), "10,000 s"),
        (_time(0.0123456), "12.35 ms"),
        (_time(1.7e-21), "0 ms"),
    ],
)
def test_figures_have_no_exponents(told, words):
    assert told == words
