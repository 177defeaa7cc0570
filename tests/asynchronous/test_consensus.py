import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous.consensus import CONSENSUS, Snapshots, consensus_error, recorded
from simdist.errors import ArgumentError


def test_the_error_is_the_sum_of_squared_distances_to_the_mean():
    x = np.random.default_rng(0).normal(size=(5, 3))
    assert consensus_error(x) == pytest.approx(5 * x.var(axis=0).sum())
    assert consensus_error(np.ones((4, 2))) == 0


def walk(comm, times_s):
    """Rank r holds the value r + k from second k (r + 1) on."""
    snapshots = Snapshots(comm, np.array([float(comm.rank)], np.float32))
    for k in range(1, 4):
        comm.compute(seconds=comm.rank + 1.0)
        snapshots.take(k, np.array([float(comm.rank + k)], np.float32))
    return snapshots.errors(times_s)


def test_an_instant_has_the_last_copy_of_each_rank_until_then():
    run = sd.run(walk, 2, args=([0.0, 1.0, 1.5, 2.0, 99.0],))
    # rank 0 has 0 1 1 2 3, rank 1 has 1 1 1 2 4
    expected = [(0.0, 0.5), (1.0, 0.0), (1.5, 0.0), (2.0, 0.0), (99.0, 0.5)]
    assert run.results == [expected] * 2
    assert recorded(run.trace) == expected
    assert all(s.rank == 0 and s.seconds == 0 for s in run.trace if s.name == CONSENSUS)


def test_without_times_it_goes_by_the_number_of_the_copy():
    assert sd.run(walk, 2, args=(None,)).results[0] == [(0.0, 0.5), (2.0, 0.5), (4.0, 0.5), (6.0, 0.5)]


def test_float32_copies_are_averaged_in_float64(spmd):
    def program(comm):
        return Snapshots(comm, np.array([1e8 + 8 * comm.rank], np.float32)).errors()[0][1]

    for error in spmd(program, 2):
        assert error == 32.0


def test_what_cannot_be_measured_is_refused_on_all(spmd):
    def uneven(comm, times_s):
        snapshots = Snapshots(comm)
        for k in range(comm.rank):
            snapshots.take(k, np.zeros(2))
        return snapshots.errors(times_s)

    for times_s in (None, [0.0]):
        with pytest.raises(ArgumentError, match=r"ranks keep \[0, 1\] copies"):
            spmd(uneven, 2, times_s)
