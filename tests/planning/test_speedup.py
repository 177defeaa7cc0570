"""Amdahl's, Gustafson's and Gunther's laws, and virtual ranks that share a part of their work."""

from math import inf

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import Link, preset
from simdist.collectives import broadcast
from simdist.errors import ArgumentError
from simdist.planning import (
    amdahl_speedup,
    gustafson_speedup,
    isoefficient_work,
    karp_flatt_share,
    sun_ni_speedup,
    universal_ranks,
    universal_speedup,
)

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
    grown = (1 - serial) * ranks**1.5  # of matrices
    one_memory = took(serial, grown, 1) / took(serial, grown, ranks)
    assert one_memory == pytest.approx(sun_ni_speedup(serial, ranks, ranks**1.5))


def test_gustafsons_hypercube():
    """Its jobs have serial shares of 0.4 to 0.8%, and are 1016 to 1021 times as fast."""
    assert [round(gustafson_speedup(s, 1024)) for s in (0.004, 0.008)] == [1020, 1016]
    assert [round(amdahl_speedup(s, 1024)) for s in (0.004, 0.008)] == [201, 111]
    assert amdahl_speedup(0.05, 1e12) == pytest.approx(20) == amdahl_speedup(0.05, inf)
    assert gustafson_speedup(0.05, inf) == inf, "it was inf - inf"
    assert amdahl_speedup(0, inf) == universal_speedup(0, 0, inf) == inf
    assert universal_speedup(0.05, 0, inf) == pytest.approx(20)
    assert universal_speedup(0.05, 1e-9, inf) == 0


@pytest.mark.parametrize(
    ("work", "span", "ranks", "seconds"), [(2048, 1, 32, 65), (1024, 8, 32, 40), (2048, 1, 512, 5), (1024, 8, 512, 10)]
)
def test_brents_theorem(work, span, ranks, seconds):
    """The textbook's chess program, ★Socrates, before and after a change that made it slower on 512 processors."""
    assert round(work / amdahl_speedup(span / work, ranks)) == seconds


@pytest.mark.parametrize("ranks", [1, 8, 1024])
@pytest.mark.parametrize("serial", [0, 0.05, 1])
def test_the_law_of_sun_and_ni_has_both_as_its_cases(serial, ranks):
    assert sun_ni_speedup(serial, ranks, 1) == pytest.approx(amdahl_speedup(serial, ranks))
    assert sun_ni_speedup(serial, ranks, ranks) == pytest.approx(gustafson_speedup(serial, ranks))
    assert sun_ni_speedup(serial, ranks, ranks**1.5) >= gustafson_speedup(serial, ranks) - 1e-9


@pytest.mark.parametrize("ranks", [2, 8, 1024])
@pytest.mark.parametrize("serial", [0, 0.05, 1])
def test_the_metric_of_karp_and_flatt_finds_the_share_again(serial, ranks):
    assert karp_flatt_share(amdahl_speedup(serial, ranks), ranks) == pytest.approx(serial, abs=1e-12)


def test_textbooks_on_karp_and_flatt():
    assert [round(karp_flatt_share(s, p), 3) for s, p in ((1.8, 2), (3.0, 4), (4.7, 8))] == [0.111, 0.111, 0.100]
    constant, growing = (1.82, 2.50, 3.08, 3.57, 4.00, 4.38, 4.71), (1.87, 2.61, 3.23, 3.73, 4.14, 4.46, 4.71)
    ranks = range(2, 9)  # of Quinn's two tables: a tenth is serial, and a little more the more ranks there are
    assert list(map(karp_flatt_share, constant, ranks)) == pytest.approx([0.1] * 7, abs=1.2e-3)
    expected = [0.070, 0.075, 0.079, 0.085, 0.090, 0.095, 0.100]
    assert list(map(karp_flatt_share, growing, ranks)) == pytest.approx(expected, abs=6e-4)
    for numbers, message in (((0, 2), "speedup is 0; needs more than 0"), ((1, 1), "ranks is 1; needs more than 1")):
        with pytest.raises(ArgumentError, match=message):
            karp_flatt_share(*numbers)


@pytest.mark.parametrize(("serial", "crosstalk", "most"), [(0.03, 0.0001, 98.5), (0.0, 0.01, 10), (0.5, 0.02, 5)])
def test_the_universal_law_is_amdahls_and_falls_by_crosstalk(serial, crosstalk, most):
    """C(N) = N / (1 + α(N-1) + βN(N-1)), which is highest at √((1-α)/β)."""
    assert universal_speedup(serial, 0, 64) == pytest.approx(amdahl_speedup(serial, 64))
    assert universal_ranks(serial, crosstalk) == pytest.approx(most, abs=0.02)
    found = [universal_speedup(serial, crosstalk, ranks) for ranks in range(1, 1000)]
    assert abs(1 + np.argmax(found) - most) <= 1
    assert universal_ranks(serial, 0) == inf
    assert universal_speedup(serial, crosstalk, np.int32(1 << 17)) == universal_speedup(serial, crosstalk, 1 << 17)
    with pytest.raises(ArgumentError, match="crosstalk is -1; needs at least 0"):
        universal_speedup(serial, -1, 2)


def test_crosstalk_is_what_ranks_spend_with_each_other():
    """Each rank spends κ with each of p - 1 others, for p ranks' share of the work: p (p-1) κ on one."""
    serial, crosstalk = 0.1, 0.01
    for p in (2, 5, 20):
        alone_s, shared_s = serial, (1 - serial) / p
        assert 1 / universal_speedup(serial, crosstalk, p) == pytest.approx(alone_s + shared_s + crosstalk * (p - 1))


@pytest.mark.parametrize("column", [(64, 0.80, 0.57, 0.33, 0.17), (192, 0.92, 0.80, 0.60, 0.38)])
def test_the_work_that_keeps_ranks_busy(column):
    """The textbook's efficiencies of adding n numbers on 4, 8, 16 and 32 ranks, with T_o = 2 p lg p."""
    n, *efficiencies = column
    for p, efficiency in zip((4, 8, 16, 32), efficiencies, strict=True):
        overhead = 2 * p * np.log2(p)
        assert n / (n + overhead) == pytest.approx(efficiency, abs=0.0051)
        assert isoefficient_work(overhead, n / (n + overhead)) == pytest.approx(n)
    assert [isoefficient_work(2 * p * np.log2(p), 0.8) for p in (4, 8, 16)] == pytest.approx([64, 192, 512])
    with pytest.raises(ArgumentError, match="efficiency is 1; needs at least 0 and less than 1"):
        isoefficient_work(1, 1)


@pytest.mark.parametrize("speedup", [amdahl_speedup, gustafson_speedup])
@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0.1, 0), "ranks is 0; needs at least 1"),
        ((-0.1, 2), "serial is -0.1; needs at least 0"),
        ((1.1, 2), "1.1; needs from 0"),
    ],
)
def test_what_cannot_be(speedup, numbers, message):
    with pytest.raises(ArgumentError, match=message):
        speedup(*numbers)
    with pytest.raises(ArgumentError, match="growth is 0.5; needs at least 1"):
        sun_ni_speedup(0.1, 4, 0.5)
