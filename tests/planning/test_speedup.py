"""Amdahl's and Gustafson's laws, and virtual ranks that share a part of their work."""

from math import inf

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import Link, preset
from simdist.collectives import broadcast
from simdist.errors import ArgumentError
from simdist.planning import amdahl_speedup, gustafson_speedup, karp_flatt_share

AT_ONCE = preset("h100").with_(inside=Link(0.0, inf))


def took(alone_s, shared_s, ranks):
    """How long ranks take for what rank 0 does alone, then for what each does a part of."""

    def program(comm):
        if comm.rank == 0:
            comm.compute(seconds=alone_s)
        broadcast(np.zeros(1), comm)
        comm.compute(seconds=shared_s / comm.size)

    return sd.run(program, ranks, cluster=AT_ONCE).elapsed_s


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("serial", [0, 0.05, 1])
def test_virtual_ranks_keep_both_laws(serial, ranks):
    one_size = took(serial, 1 - serial, 1) / took(serial, 1 - serial, ranks)
    assert one_size == pytest.approx(amdahl_speedup(serial, ranks))
    grown = (1 - serial) * ranks
    one_duration = took(serial, grown, 1) / took(serial, grown, ranks)
    assert one_duration == pytest.approx(gustafson_speedup(serial, ranks))


def test_gustafsons_hypercube():
    """Its jobs have serial shares of 0.4 to 0.8%, and are 1016 to 1021 times as fast."""
    assert [round(gustafson_speedup(s, 1024)) for s in (0.004, 0.008)] == [1020, 1016]
    assert [round(amdahl_speedup(s, 1024)) for s in (0.004, 0.008)] == [201, 111]
    assert amdahl_speedup(0.05, 1e12) == pytest.approx(20)


@pytest.mark.parametrize("ranks", [2, 8, 1024])
@pytest.mark.parametrize("serial", [0, 0.05, 1])
def test_the_metric_of_karp_and_flatt_finds_the_share_again(serial, ranks):
    assert karp_flatt_share(amdahl_speedup(serial, ranks), ranks) == pytest.approx(serial, abs=1e-12)


def test_textbooks_on_karp_and_flatt():
    assert [round(karp_flatt_share(s, p), 3) for s, p in ((1.8, 2), (3.0, 4), (4.7, 8))] == [0.111, 0.111, 0.100]
    for numbers, message in (((0, 2), "speedup is 0; needs more than 0"), ((1, 1), "ranks is 1; needs more than 1")):
        with pytest.raises(ArgumentError, match=message):
            karp_flatt_share(*numbers)


@pytest.mark.parametrize("speedup", [amdahl_speedup, gustafson_speedup])
@pytest.mark.parametrize(
    ("numbers", "message"),
    [((0.1, 0), "ranks is 0; needs at least 1"), ((-0.1, 2), "serial is -0.1; needs from 0 to 1"), ((1.1, 2), "1.1")],
)
def test_what_cannot_be(speedup, numbers, message):
    with pytest.raises(ArgumentError, match=message):
        speedup(*numbers)
