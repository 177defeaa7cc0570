import math

import numpy as np
import pytest
from least_squares import DIM, LeastSquares

import simdist as sd
from simdist.asynchronous import Constant
from simdist.asynchronous.local_sgd import best_local_steps, local_sgd, local_sgd_error, post_local
from simdist.asynchronous.worker import Worker
from simdist.cluster import Cluster, Device, Link
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
    assert [averages for _, averages, *_ in spmd(train, 2, 0, 1)] == [0, 0]


# -- the papers' bound -------------------------------------------------------------------------------


@pytest.mark.parametrize("local_steps", [1, 4, 8])
def test_the_mean_gradient_of_runs_keeps_to_the_bound_in_the_time_that_it_takes(local_steps):
    """On ½‖x‖² with noise, so that L is 1, and the gradient of the mean is the mean itself."""
    p, dim, steps, rate, step_s = 4, 3, 400, 0.1, 0.5

    def program(comm):
        rng, means = np.random.default_rng(comm.rank), []

        def gradient(x, step):
            return 0.0, x + rng.normal(size=dim) / math.sqrt(dim)

        worker = Worker(comm, np.ones(dim), gradient, rate, compute_time=Constant(step_s))
        worker.observe = lambda step, x: means.append(x.copy())
        local_sgd(worker, steps, local_steps, algorithm="ring")
        return means, comm.clock()

    cluster = Cluster("it", Device("it", 1e30, 1e30, 1e30), *[Link(0.01, 1e30)] * 2)
    results = sd.run(program, p, cluster=cluster).results
    average_s = 0.01 * 2 * (p - 1)
    assert results[0][1] == pytest.approx(steps * (step_s + average_s / local_steps), rel=1e-6)
    found = (np.mean([means for means, _ in results], axis=0) ** 2).sum(axis=1).mean()
    bound = local_sgd_error(steps, p, local_steps, rate, excess=dim / 2)
    assert bound / 20 < found <= bound


def test_the_terms_of_the_bound():
    """Of the distance, of noise, and of drift: 4/10, 0.15/4, and 0.0025 · 3 · 4."""
    found = local_sgd_error(100, 4, 5, 0.1, excess=2.0, smoothness=0.5, variance=3.0)
    assert found == pytest.approx(0.4 + 0.0375 + 0.03)


def test_with_the_best_number_of_local_steps_the_bound_is_least():
    given = {"excess": 2.0, "smoothness": 0.5, "variance": 3.0}
    seconds, step_s, average_s, rate = 300, 1.0, 5.0, 0.08

    def error(h):
        return local_sgd_error(seconds / (step_s + average_s / h), 16, h, rate, **given)

    best = best_local_steps(seconds, average_s, rate, **given)
    assert best == pytest.approx(math.sqrt(2 * 2 * 5 / (0.08**3 * 0.5**2 * 3 * 300)))
    assert error(best) < min(error(best * 0.99), error(best * 1.01))
    assert best_local_steps(100 * seconds, average_s, rate, **given) == pytest.approx(best / 10)
    assert best_local_steps(seconds, 0.0, rate, **given) == 1


def test_numbers_for_which_there_is_no_bound():
    with pytest.raises(ArgumentError, match="0 steps on 2 ranks, 1 between averages; needs at least 1 of each"):
        local_sgd_error(0, 2, 1, 0.1, excess=1)
    with pytest.raises(ArgumentError, match="variance is 0; needs more than 0"):
        local_sgd_error(1, 2, 1, 0.1, excess=1, variance=0)
    with pytest.raises(ArgumentError, match="seconds is 0; needs more than 0"):
        best_local_steps(0, 1, 0.1, excess=1)
    with pytest.raises(ArgumentError, match="average_s is -1; needs at least 0"):
        best_local_steps(1, -1, 0.1, excess=1)
