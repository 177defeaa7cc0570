"""What the table of strategies says is the same thing: other machinery, the same weights."""

import numpy as np
import pytest
from least_squares import LeastSquares

import simdist as sd
from simdist.asynchronous import Worker, local_sgd
from simdist.asynchronous.parameter_server import ParameterServer, asynchronous, synchronous, train
from simdist.cluster import preset

WORKERS, STEPS, RATE = 4, 12, 0.1
PROBLEM = LeastSquares(WORKERS)
NODES = preset("this-machine").with_(devices_per_node=2)


def one_device():
    x = PROBLEM.start(0)
    for step in range(STEPS):
        x = x - RATE * np.mean([PROBLEM.of(rank)(x, step)[1] for rank in range(WORKERS)], axis=0)
    return x


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical", "torus"])
def test_mirrored_multi_worker_and_tpu_are_one_device(algorithm):
    def program(comm):
        x = PROBLEM.start(0)
        local_sgd(Worker(comm, x, PROBLEM.of(comm.rank), RATE), STEPS, 1, algorithm)
        return x

    for x in sd.run(program, WORKERS, cluster=NODES).results:
        np.testing.assert_allclose(x, one_device(), rtol=1e-12, atol=1e-12)


def served(comm, how):
    problem = PROBLEM.of(max(0, comm.rank - how.num_servers))
    report = train(comm, PROBLEM.start(0), problem, STEPS, RATE, how)
    return report.state.vectors["weights"] if comm.rank < how.num_servers else None


def test_central_storage_is_one_device(spmd):
    found = spmd(served, 1 + WORKERS, ParameterServer(1, synchronous()))[0]
    np.testing.assert_allclose(found, one_device(), rtol=1e-12, atol=1e-12)


def test_the_parameter_server_comes_to_the_same_minimum():
    parts = sd.run(served, 2 + WORKERS, args=(ParameterServer(2, asynchronous()),)).results
    assert PROBLEM.excess(np.concatenate(parts[:2])) < 3 * PROBLEM.excess(one_device())
