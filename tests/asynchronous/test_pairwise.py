from itertools import pairwise

import numpy as np
import pytest
from least_squares import DIM, LeastSquares

import simdist as sd
from simdist.asynchronous.compute_time import Exponential, LogNormal, Slowed
from simdist.asynchronous.consensus import Snapshots, recorded
from simdist.asynchronous.graphs import Graph, bipartite, complete, ring
from simdist.asynchronous.pairwise import ad_psgd
from simdist.asynchronous.worker import Worker
from simdist.cluster import preset
from simdist.errors import ArgumentError


def still(weights, step):
    """No gradient: only the averaging is left."""
    return 0.0, np.zeros_like(weights)


def average_only(comm, steps, seed):
    x = np.arange(4.0) + 10.0**comm.rank
    worker = Worker(comm, x, still, 0.1, compute_time=Exponential(1e-4, seed))
    return x, ad_psgd(worker, bipartite(comm.size), steps, seed)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_averaging_leaves_the_mean_alone(spmd, p):
    found = spmd(average_only, p, 6, 1)
    before = np.array([np.arange(4.0) + 10.0**rank for rank in range(p)])
    after = np.array([x for x, _ in found])
    np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0), rtol=1e-12)
    active = [count for rank, (_, count) in enumerate(found) if rank % 2 == 0]
    passive = [count for rank, (_, count) in enumerate(found) if rank % 2 == 1]
    assert active == [6 if p > 1 else 0] * len(active)
    assert sum(passive) == sum(active)


@pytest.mark.parametrize("p", [2, 3, 5])
def test_every_averaging_is_two_messages(spmd, p):
    def program(comm):
        first = len(comm.recorder.rows)
        _, count = average_only(comm, 3, 0)
        sent = [s.bytes for s in comm.recorder.spans()[first:] if s.name == "send"]
        return count, sum(sent), len(sent)

    for rank, (count, num_bytes, messages) in enumerate(spmd(program, p)):
        assert num_bytes == 4 * 8 * count
        assert messages == count + (0 if rank % 2 else p // 2)  # and an active rank tells each neighbour that it leaves


def test_who_goes_on_asks_whom_it_would_have_asked(spmd):
    def program(comm, stops):
        worker, rows = Worker(comm, np.ones(4), still, 0.1), len(comm.recorder.rows)
        counts = [ad_psgd(worker, bipartite(comm.size), steps, 7) for steps in stops]
        assert comm.rank % 2 or counts == [after - before for before, after in pairwise([0, *stops])]
        return [s.peer for s in comm.recorder.spans()[rows:] if s.name == "send" and s.bytes]

    whole, parts = (spmd(program, 7, stops)[::2] for stops in ([24], [5, 5, 16, 24]))
    assert parts == whole
    assert all(set(asked) == {1, 3, 5} for asked in whole)


def test_a_thousand_schedules_end_and_keep_the_mean():
    graphs = [ring(4), bipartite(5), Graph.of(5, [(0, 1), (1, 2), (2, 3), (3, 4)]), bipartite(3)]
    orders = set()
    for seed in range(1000):
        graph = graphs[seed % len(graphs)]

        def program(comm, graph=graph, seed=seed):
            x = np.array([10.0**comm.rank])
            worker = Worker(comm, x, still, 0.1, compute_time=Exponential(1e-3, seed))
            return x[0], ad_psgd(worker, graph, 3, seed), [round(t, 12) for t in worker.times_s]

        results = sd.run(program, graph.size, record=False).results
        assert sum(x for x, _, _ in results) == pytest.approx(sum(10.0**r for r in range(graph.size)), rel=1e-12)
        assert sum(count for _, count, _ in results) == 2 * 3 * graph.sides().count(0)
        times = [(t, rank) for rank, (_, _, found) in enumerate(results) for t in found]
        orders.add((seed % len(graphs), tuple(rank for _, rank in sorted(times))))
    assert len(orders) > 900


def descend(comm, steps, times):
    problem = LeastSquares(comm.size)
    x = problem.start(comm.rank)
    worker = Worker(comm, x, problem.of(comm.rank), lambda step: 0.3 / (1 + step / 20), compute_time=times)
    snapshots = Snapshots(comm, x)
    worker.observe = snapshots.take
    ad_psgd(worker, bipartite(comm.size), steps)
    end_s = comm.clock()
    return x, end_s, snapshots.errors([0.0, end_s / 2, end_s]) if steps < 100 else []


@pytest.mark.parametrize("p", [2, 4, 5])
def test_it_comes_near_the_minimum_of_all(p):
    results = sd.run(descend, p, args=(800, LogNormal(1e-3, 0.5)), record=False).results
    found = np.mean([x for x, _, _ in results], axis=0)
    assert LeastSquares(p).excess(found) < 1e-3


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_so_do_real_ranks(spmd, p):
    found = np.mean([x for x, _, _ in spmd(descend, p, 300, Exponential(0.0))], axis=0)
    assert LeastSquares(p).excess(found) < 0.03


def test_it_is_the_same_every_time():
    def run():
        return sd.run(descend, 5, args=(40, Exponential(1e-3, seed=4)))

    first, second = run(), run()
    assert [x.tolist() for x, _, _ in first.results] == [x.tolist() for x, _, _ in second.results]
    assert first.trace.spans == second.trace.spans


def replayed(trace, p, rate):
    """The weights of all ranks, by one process that does what the record says, in the order of its times."""
    problem, found = LeastSquares(p), []
    x, g = [problem.start(rank) for rank in range(p)], [np.zeros(DIM)] * p
    steps, asking = [0] * p, {}
    for s in trace:
        if s.name == "recv" and s.stream == "averaging" and s.bytes:
            asking.setdefault(s.rank, []).append(s.peer)
        elif s.name in ("pairwise step", "update", "update (mix)"):  # a step begins with a copy of the weights
            found.append((s.start_s, s.name != "update", s.name, s.rank))
    for _, _, name, rank in sorted(found):
        if name == "pairwise step":
            g[rank] = problem.of(rank)(x[rank], steps[rank])[1].copy()
            steps[rank] += 1
        elif name == "update":
            x[rank] = x[rank] - rate * g[rank]
        else:
            other = asking[rank].pop(0)
            x[rank] = x[other] = (x[rank] + x[other]) / 2
    return x


@pytest.mark.parametrize("eager_bytes", [0, 1 << 20])
@pytest.mark.parametrize("p", [2, 3, 5, 6])
def test_weights_are_averaged_and_descend_in_the_order_of_the_record(p, eager_bytes):
    """Also where a message ends later than it is known to: then the stream that averages comes back too early."""

    def program(comm, seed):
        problem = LeastSquares(comm.size)
        x = problem.start(comm.rank)
        times = Exponential(1e-5, seed)
        ad_psgd(Worker(comm, x, problem.of(comm.rank), 0.1, compute_time=times), bipartite(comm.size), 12, seed)
        return x

    cluster = preset("this-machine").with_(eager_bytes=eager_bytes)
    for seed in range(10):
        run = sd.run(program, p, args=(seed,), cluster=cluster)
        np.testing.assert_allclose(run.results, replayed(run.trace, p, 0.1), rtol=1e-12, atol=1e-14)


def test_a_slow_rank_holds_up_nobody():
    def program(comm):
        times = Slowed(Exponential(1e-2, seed=2), {comm.size - 1: 20.0})
        worker = Worker(comm, np.zeros(3), still, 0.1, compute_time=times)
        ad_psgd(worker, bipartite(comm.size), 20)
        return worker.times_s[-1]

    found = sd.run(program, 6).results  # the last rank is passive
    assert max(found[:-1]) < 0.5 < found[-1]


def test_the_consensus_error_is_on_the_record_by_time():
    run = sd.run(descend, 4, args=(40, Exponential(1e-3, seed=4)))
    told = run.results[0][2]
    assert recorded(run.trace) == [tuple(found) for found in told] and len(told) == 3
    assert all(found == told for _, _, found in run.results)
    starts = np.array([LeastSquares(4).start(rank) for rank in range(4)])
    assert told[0] == (0.0, pytest.approx(((starts - starts.mean(axis=0)) ** 2).sum()))
    assert told[1][1] < told[0][1]


def test_what_is_not_bipartite_is_refused_on_all(spmd):
    def program(comm, graph, seed=0):
        ad_psgd(Worker(comm, np.zeros(DIM), still, 0.1), graph, 1, seed)

    with pytest.raises(ArgumentError, match="not bipartite"):
        spmd(program, 3, complete(3))
    with pytest.raises(ArgumentError, match="a graph of 2 ranks on rank . of 3"):
        spmd(program, 3, ring(2))
    with pytest.raises(ArgumentError, match="seed is -1; needs at least 0"):
        spmd(program, 2, ring(2), -1)
