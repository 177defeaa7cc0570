import math

import numpy as np
import pytest
from least_squares import DIM, LeastSquares

from simdist.asynchronous.local_sgd import local_sgd, post_local
from simdist.asynchronous.worker import Worker
from simdist.collectives import all_reduce, cost
from simdist.errors import ArgumentError
from simdist.optim import SGD

RATE = 0.05


def train(comm, steps, local_steps, momentum=0.0):
    problem = LeastSquares(comm.size, noise=0.1)
    x = problem.start(0)
    seen = []
    worker = Worker(
        comm,
        x,
        problem.of(comm.rank),
        RATE,
        optimizer=SGD(x, momentum),
        observe=lambda step, weights: seen.append(weights.copy()),
    )
    first = len(comm.recorder.rows)
    averages = local_sgd(worker, steps, local_steps, algorithm="ring")
    sent = [s.bytes for s in comm.recorder.spans()[first:] if s.name == "send"]
    return np.array(seen), averages, sum(sent), len(sent)


def data_parallel(comm, steps):
    problem = LeastSquares(comm.size, noise=0.1)
    x = problem.start(0)
    for step in range(steps):
        g = problem.of(comm.rank)(x, step)[1]
        all_reduce(g, comm)
        x -= RATE * g / comm.size
    return x


def reference(p, steps, period, momentum=0.0):
    """All ranks' weights after each step, one rank after the other, averaged where period(step) says so."""
    problem, since = LeastSquares(p, noise=0.1), 0
    x, v, seen = np.array([problem.start(0)] * p), np.zeros((p, DIM)), []
    for step in range(steps):
        v = momentum * v + np.array([problem.of(r)(x[r], step)[1] for r in range(p)])
        x, since = x - RATE * v, since + 1
        if since >= period(step) or step == steps - 1:
            x, since = np.array([x.mean(axis=0)] * p), 0
        seen.append(x)
    return np.array(seen)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_with_one_local_step_it_is_data_parallelism(spmd, p):
    expected = spmd(data_parallel, p, 10)[0]
    for seen, averages, _, _ in spmd(train, p, 10, 1):
        np.testing.assert_allclose(seen[-1], expected, rtol=1e-12, atol=1e-12)
        assert averages == 10


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("h", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_every_iterate_is_that_of_ranks_one_after_another(spmd, p, h, momentum):
    expected = reference(p, 8, lambda step: h, momentum)
    for rank, (seen, averages, _, _) in enumerate(spmd(train, p, 8, h, momentum)):
        np.testing.assert_allclose(seen, expected[:, rank], rtol=1e-12, atol=1e-12)
        assert averages == math.ceil(8 / h)


@pytest.mark.parametrize("p", [2, 3, 8])
def test_it_sends_one_all_reduce_an_average(spmd, p):
    for rank, (_, averages, num_bytes, messages) in enumerate(spmd(train, p, 8, 3)):
        each = cost("all_reduce", "ring", ranks=p, num_bytes=DIM * 8, itemsize=8, rank=rank)
        assert (num_bytes, messages) == (averages * each.sent_bytes, averages * each.messages)


def test_post_local_averages_every_step_at_first(spmd):
    def program(comm):
        return train(comm, 12, post_local(4, 4))[:2]

    for rank, (seen, averages) in enumerate(spmd(program, 3)):
        assert averages == 6  # after steps 0 to 3, and after 7 and 11
        np.testing.assert_allclose(seen, reference(3, 12, post_local(4, 4))[:, rank], rtol=1e-12, atol=1e-12)


def test_what_is_refused(spmd):
    with pytest.raises(ArgumentError, match="local_steps is 0 at step 0"):
        spmd(train, 2, 3, 0)
    with pytest.raises(ArgumentError, match="steps is -3"):
        spmd(train, 2, -3, 1)
