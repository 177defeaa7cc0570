"""Regions: what comes out of them. What goes in and out, and what it costs: test_traffic."""

import numpy as np

from simdist.arrays import Meter, metered
from simdist.parallel.tensor import Entrance, Replicated, Sharded


def test_a_run_of_the_tokens_keeps_no_more_memory_than_its_own(spmd):
    def program(comm):
        run = Sharded(comm).leave(np.full((2, 6, 5), 10.0**comm.rank))
        return run, (run if run.base is None else run.base).nbytes

    for run, num_bytes in spmd(program, 3):
        np.testing.assert_array_equal(run, np.full((2, 2, 5), 111.0))
        assert num_bytes == run.nbytes


def test_derivatives_leave_at_an_entrance_as_a_sum_of_copies(spmd):
    def program(comm):
        layer, x, dy = Entrance(Replicated(comm)), np.ones((2, 6, 5)), np.full((2, 6, 5), 10.0**comm.rank)
        y, context = layer.forward(x)
        with metered(meter := Meter()):
            dx, _ = layer.backward_input(context, dy)
        return (y == x).all() and (dy == 10**comm.rank).all(), dx, meter.bytes

    for same, dx, _ in spmd(program, 3):
        assert same and (dx == 111).all()
    assert spmd(program, 1)[0][2] == 2 * 2 * 6 * 5 * 8
