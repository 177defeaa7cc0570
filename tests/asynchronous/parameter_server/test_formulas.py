"""The bound of bounded staleness and runs that keep to it; the traffic of workers that serve and runs that have it."""

from heapq import heapify, heappop, heappush
from math import sqrt

import numpy as np
import pytest
from servers import IDEAL

import simdist as sd
from simdist.asynchronous import Exponential, LogNormal, Slowed
from simdist.asynchronous.parameter_server import (
    BoundedStaleness,
    ParameterServer,
    asynchronous,
    byteps_bytes,
    delayed_rate,
    implicit_momentum,
    mean_staleness,
    server_bytes,
    ssp_rate,
    ssp_regret,
    synchronous,
    train,
)
from simdist.collectives import formula
from simdist.errors import ArgumentError

P, DIM, DISTANCE = 4, 3, 2.0


def absolute_losses(steps):
    """Losses |a·x - b| with ‖a‖ = 1, so that L is 1, whose sum is least at one known point."""
    rng = np.random.default_rng(5)
    a = rng.normal(size=(P, steps, DIM))
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    return a, a @ np.array([1.0, -1.0, 0.5])


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_the_mean_loss_of_a_run_keeps_to_the_bound(staleness):
    steps = 200
    a, b = absolute_losses(steps)

    def program(comm):
        losses, places = [], []

        def gradient(x, step):
            rest = float(a[comm.rank - 1, step] @ x - b[comm.rank - 1, step])
            losses.append(abs(rest))
            places.append(x.copy())
            return abs(rest), np.sign(rest) * a[comm.rank - 1, step]

        def rate(step):  # an update is a P-th of a step of all
            return P * ssp_rate(P * (step + 1), P, staleness, distance=DISTANCE, slope=1.0)

        setup = ParameterServer(1, BoundedStaleness(staleness), compute_time=Exponential(0.01, seed=staleness))
        train(comm, np.zeros(DIM), gradient, steps, rate, setup)
        return losses, places

    found = sd.run(program, P + 1).results[1:]
    losses = np.array([losses for losses, _ in found])
    places = np.concatenate([np.array(places) for _, places in found])
    far = np.linalg.norm(places[:, None, :] - [[1.0, -1.0, 0.5]], axis=-1).max()
    assert far**2 / 2 <= DISTANCE**2  # as the theorem assumes
    bound = ssp_regret(losses.size, P, staleness, distance=DISTANCE, slope=1.0)
    assert bound / 100 < losses.mean() <= bound  # the least mean is 0


def test_the_bound_is_the_papers():
    assert ssp_regret(800, 4, 0, distance=1, slope=1) == pytest.approx(4 * sqrt(2 * 4 / 800))
    one, four = (ssp_regret(1e6, 8, s, distance=3, slope=2) for s in (0, 3))
    assert four == pytest.approx(2 * one)
    assert ssp_regret(4e6, 8, 3, distance=3, slope=2) == pytest.approx(one)
    assert ssp_rate(1, 8, 3, distance=3, slope=2) == pytest.approx(3 / (2 * sqrt(2 * 4 * 8)))
    assert ssp_rate(9, 8, 3, distance=3, slope=2) == pytest.approx(ssp_rate(1, 8, 3, distance=3, slope=2) / 3)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("workers", [2, 4])
def test_asynchronous_runs_move_on_average_as_with_momentum(workers):
    """On x²/2. Once all have read the first weights, each read is of those that the next update made."""
    steps, runs, rate = 12, 200, 0.8

    def places(seed):
        reads = []

        def program(comm):
            def gradient(x, step):
                reads.append((comm.clock(), x[0]))
                return 0.0, x.copy()

            setup = ParameterServer(1, asynchronous(), compute_time=Exponential(seed=seed))
            train(comm, np.ones(1), gradient, steps, workers * rate, setup)

        sd.run(program, workers + 1, cluster=IDEAL)
        return [x for _, x in sorted(reads)][workers - 1 :][:steps]

    found = np.array([places(seed) for seed in range(runs)])
    x = [1.0, 1.0 - rate]
    for _ in range(steps - 2):
        x.append(x[-1] + implicit_momentum(workers) * (x[-1] - x[-2]) - rate / workers * x[-1])
    error = found.std(axis=0) / sqrt(runs)
    assert (np.abs(found.mean(axis=0) - x) <= 4 * error + 1e-6).all()


def test_the_momentum_of_many_workers():
    assert [implicit_momentum(workers) for workers in (1, 4, 16)] == [0, 0.75, 0.9375]
    with pytest.raises(ArgumentError, match="workers is 0; needs at least 1"):
        implicit_momentum(0)


@pytest.mark.parametrize("times", [Exponential(seed=1), Slowed(Exponential(seed=2), {0: 5.0}), LogNormal(seed=3)])
@pytest.mark.parametrize("workers", [1, 3])
def test_asynchronous_updates_are_as_stale_as_the_formula_says(workers, times):
    """Whatever the workers' times are, until the first of them is done."""
    steps = 400

    def program(comm):
        setup = ParameterServer(1, asynchronous(), compute_time=times)
        return train(comm, np.zeros(1), lambda x, step: (0.0, x), steps, 0.1, setup)

    reports = sd.run(program, workers + 1, cluster=IDEAL).results
    [staleness] = [report.counts.staleness for report in reports if hasattr(report, "counts")]
    assert np.mean(staleness[workers:steps]) == pytest.approx(mean_staleness(workers), rel=0.05)


@pytest.mark.parametrize(("gradients", "close_to"), [(30, 1), (2, 15), (1, 30)])
def test_the_staleness_of_softsync(gradients, close_to):
    """arXiv 1511.05950, figure 1: n-softsync on 30 workers, each of which reads again when its gradient has arrived."""
    rng = np.random.default_rng(0)
    arrivals, done = 30_000, [(time, 0) for time in rng.exponential(size=30)]
    heapify(done)
    ages = []
    for arrived in range(arrivals):
        time, version = heappop(done)
        ages.append(arrived // gradients - version)
        heappush(done, (time + rng.exponential(), (arrived + 1) // gradients))
    assert np.mean(ages) == pytest.approx(mean_staleness(30, gradients), rel=0.01)
    assert mean_staleness(30, gradients) == pytest.approx(close_to, rel=0.04)


@pytest.mark.parametrize("delay", [0, 1, 2, 7, 30])
@pytest.mark.parametrize("curvature", [1.0, 12.5])
def test_delayed_gradients_diverge_from_this_rate_on(delay, curvature):
    """By the roots of the recursion's own polynomial, z^(τ+1) - z^τ + ηλ."""

    def largest_root(rate):
        polynomial = np.zeros(delay + 2)
        polynomial[:2] = 1, -1
        polynomial[-1] += rate * curvature
        return abs(np.roots(polynomial)).max()

    rate = delayed_rate(curvature, delay)
    assert largest_root(0.999 * rate) < 1 < largest_root(1.001 * rate)


def test_what_cannot_be_is_refused():
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(ArgumentError, match="is 0; needs at least 1"):
            mean_staleness(*wrong)
    with pytest.raises(ArgumentError, match="0 updates of 1 workers, and staleness 0; needs at least 1, 1 and 0"):
        ssp_regret(0, 1, 0, distance=1, slope=1)
    with pytest.raises(ArgumentError, match="staleness is -1"):
        ssp_rate(1, 1, -1, distance=1, slope=1)
    with pytest.raises(ArgumentError, match="slope is 0; needs more than 0"):
        ssp_rate(1, 1, 0, distance=1, slope=0)
    with pytest.raises(ArgumentError, match="curvature is 0; needs more than 0"):
        delayed_rate(0, 1)
    with pytest.raises(ArgumentError, match="delay is -1; needs at least 0"):
        delayed_rate(1, -1)


@pytest.mark.parametrize(("n", "k"), [(2, 0), (4, 0), (5, 0), (2, 1), (3, 1), (4, 2), (5, 3), (3, 3), (4, 4), (1, 1)])
def test_every_link_carries_what_the_formula_says(n, k):
    whole = max(1, n * n + k * n - 2 * k)  # so many items that all parts are whole
    served = byteps_bytes(8 * whole, n, k)
    of = [int(served.worker_bytes) // 8] * n + [int(served.server_bytes) // 8] * k
    assert sum(of) == whole
    start = np.cumsum([0, *of])

    def program(comm):
        mine = slice(start[comm.rank], start[comm.rank + 1])
        gradient = np.full(whole, 10.0**comm.rank)
        others = [comm.empty(of[comm.rank], np.float64) for _ in range(n)]
        requests = [comm.irecv(others[i], i) for i in range(n) if i != comm.rank and of[comm.rank]]
        if comm.rank < n:
            others[comm.rank][...] = gradient[mine]
            parts = [(slice(start[i], start[i + 1]), i) for i in range(n + k) if i != comm.rank and of[i]]
            requests += [comm.isend(gradient[part], i) for part, i in parts]
        for request in requests:
            request.wait()
        total = np.sum(others, axis=0)
        replies = [comm.isend(total, i) for i in range(n) if i != comm.rank and of[comm.rank]]
        if comm.rank < n:
            gradient[mine] = total
            replies += [comm.irecv(gradient[part], i) for part, i in parts]
        for reply in replies:
            reply.wait()
        spans = comm.recorder.spans()
        return gradient, [sum(s.bytes for s in spans if s.name == name) for name in ("send", "recv")]

    for rank, (gradient, moved) in enumerate(sd.run(program, n + k).results):
        if rank < n:
            assert (gradient == sum(10.0**i for i in range(n))).all()
        assert moved == [served.link_bytes] * 2


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (4, 1), (8, 2), (3, 4)])
def test_the_busiest_link_of_a_run_carries_what_the_formula_says(workers, servers):
    keys, steps = 12_000, 5

    def program(comm):
        setup = ParameterServer(servers, synchronous())
        train(comm, np.zeros(keys), lambda x, step: (0.0, x), steps, 0.1, setup)
        return [sum(s.bytes for s in comm.recorder.spans() if s.name == name) for name in ("send", "recv")]

    found = sd.run(program, servers + workers).results
    served = server_bytes(8 * keys, workers, servers)
    assert max(map(min, found)) == pytest.approx(steps * served.link_bytes, rel=0.01)
    assert max(map(max, found)) == pytest.approx((steps + 1) * served.link_bytes, rel=0.01)  # the last weights, too
    assert served.server_bytes * servers == 8 * keys


def test_servers_relieve_the_links_from_an_all_reduce_to_one_array():
    n, m = 8, 1e9
    assert byteps_bytes(m, n).link_bytes == pytest.approx(formula("all_reduce", "ring", ranks=n, num_bytes=m).bytes)
    assert byteps_bytes(m, n, n) == (0, m / n, m)
    found = [byteps_bytes(m, n, k).link_bytes for k in range(n + 1)]
    assert found == sorted(found, reverse=True)
    assert server_bytes(m, n, n).link_bytes == m
    assert server_bytes(m, n).link_bytes == n * m  # a single one, to which all send
    with pytest.raises(ArgumentError, match="9 servers of 8 workers"):
        byteps_bytes(m, 8, 9)
    with pytest.raises(ArgumentError, match="servers is 0; needs at least 1"):
        server_bytes(m, 8, 0)
