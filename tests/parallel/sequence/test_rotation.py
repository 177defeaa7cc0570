"""Rotation: what goes round a ring comes home once from every rank."""

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import Meter, metered
from simdist.cluster import Link, preset
from simdist.parallel.sequence.rotation import rotation, summed_rotation


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_rank_adds_to_every_sum_once_and_all_but_its_first_are_charged(spmd, p):
    """To the sums about block j rank r adds (j + 1) 10**r; a rank adds two sums p-1 times."""

    def program(comm):
        total = np.zeros(6, np.int64)
        with metered(meter := Meter()):
            for owner, block, sums in summed_rotation(np.full(6, comm.rank + 1), comm, total):
                assert (block == owner + 1).all()
                sums += block * 10**comm.rank
        return total.tolist(), meter.flops, meter.bytes

    once = sum(10**r for r in range(p))
    assert spmd(program, p) == [([(r + 1) * once] * 6, 6 * (p - 1), 3 * 48 * (p - 1)) for r in range(p)]


@pytest.mark.parametrize("work_s", [0.0, 0.25, 1.0, 2.0])
def test_waiting_for_a_block_is_not_computing(work_s):
    """A block takes a second to come. The last one is worked on while none comes."""
    p, link = 4, Link(0.0, 1000.0)

    def program(comm):
        with comm.span("forward"):
            for _ in rotation(np.zeros(125), comm):
                comm.compute(work_s)

    trace = sd.run(program, p, cluster=preset("this-machine").with_(inside=link, eager_bytes=0)).trace
    late_s = (p - 1) * max(1.0 - work_s, 0.0)
    for rank in range(p):
        waits = [s.seconds for s in trace if s.rank == rank and s.name == "wait for a block"]
        assert len(waits) == (p - 1 if late_s else 0) and sum(waits) == pytest.approx(late_s)
    told = trace.statistics()[0]
    assert told.computing_s == pytest.approx(p * work_s)
