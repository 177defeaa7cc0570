"""Runs that are asked to stop: wherever the word comes from, all ranks stop at one cut, and from there they go on."""

import numpy as np
import pytest
from least_squares import LeastSquares

import simdist as sd
from simdist.asynchronous import graphs
from simdist.asynchronous.compute_time import Exponential, Slowed
from simdist.asynchronous.diloco import diloco, nesterov
from simdist.asynchronous.gossip import d_psgd
from simdist.asynchronous.local_sgd import local_sgd
from simdist.asynchronous.mixing import metropolis
from simdist.asynchronous.pairwise import ad_psgd
from simdist.asynchronous.worker import Worker
from simdist.optim import SGD

STEPS = 30
GRAPHS = {
    "ring": graphs.ring,
    "line": lambda p: graphs.Graph.of(p, [(i, i + 1) for i in range(p - 1)]),
    "exponential": graphs.exponential,
    "complete": graphs.complete,
}


def worker_of(comm, times=None, momentum=0.9):
    problem = LeastSquares(comm.size, noise=0.1)
    x = problem.start(comm.rank)
    return Worker(comm, x, problem.of(comm.rank), 0.02, optimizer=SGD(x, momentum), compute_time=times)


def when(worker, rank, step):
    """Whether it is this rank, and has come to this step."""
    return lambda: worker.comm.rank == rank and worker.done >= step


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_the_word_goes_round_with_the_weights(spmd, p, graph):
    """As many steps after it was asked as its word needs, all stop: after the same one, and no message is left."""
    drawn = GRAPHS[graph](p)

    def program(comm, rank, step):
        worker = worker_of(comm, Exponential(1e-4, 3))
        d_psgd(worker, metropolis(drawn), STEPS, when(worker, rank, step))
        stopped = worker.done
        d_psgd(worker, metropolis(drawn), STEPS)
        return stopped, worker.done, worker.weights

    def whole(comm):
        worker = worker_of(comm)
        d_psgd(worker, metropolis(drawn), STEPS)
        return worker.weights

    expected = spmd(whole, p)
    for rank, step in {(0, 0), (p // 2, 7), (p - 1, STEPS - 1)}:
        found = spmd(program, p, rank, step)
        end = min(STEPS, step + max(1, drawn.reach(rank)))
        assert [(stopped, done) for stopped, done, _ in found] == [(end, STEPS)] * p
        np.testing.assert_array_equal([x for _, _, x in found], expected)


def test_the_earliest_of_several_words_counts():
    def program(comm):
        worker, steps = worker_of(comm), {0: 9, 3: 6, 5: 7}
        step = steps.get(comm.rank, STEPS)
        d_psgd(worker, metropolis(graphs.ring(comm.size)), STEPS, lambda: worker.done >= step)
        return worker.done

    assert sd.run(program, 6).results == [6 + 3] * 6


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("way", ["local-sgd", "diloco"])
def test_those_who_average_stop_at_an_average(spmd, p, way):
    def program(comm, asked):
        worker = worker_of(comm)
        worker.weights[...] = 0
        outer, ends = nesterov(worker.weights), []
        for ask in [None] if not asked else [when(worker, p - 1, 3), when(worker, 0, 11), None]:
            if way == "diloco":
                diloco(worker, 4, 5, outer=outer, asked=ask)
            else:
                local_sgd(worker, 20, 5, asked=ask)
            ends.append(worker.done)
        return ends, worker.weights

    whole, stopped = spmd(program, p, False), spmd(program, p, True)
    assert [ends for ends, _ in stopped] == [[5, 15, 20]] * p
    np.testing.assert_array_equal([x for _, x in stopped], [x for _, x in whole])


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rank", [0, 1])
def test_pairs_stop_soon_after_one_is_asked(spmd, p, rank):
    """Every rank at a step of its own; the mean is what it would be if all averagings were whole."""

    def program(comm):
        worker = Worker(comm, np.array([10.0**comm.rank]), lambda w, step: (0.0, 0 * w), 0.1)
        worker.compute_time = Slowed(Exponential(1e-3, 2), {comm.size - 1: 5.0})
        counts, ends = [], []
        for step in (4, 9):
            asked = when(worker, min(rank, comm.size - 1), step)
            counts.append(ad_psgd(worker, graphs.bipartite(comm.size), STEPS, 1, asked))
            ends.append(worker.done)
        return counts, ends, worker.weights[0]

    found = spmd(program, p)
    for k in range(2):
        active = sum(ends[k] - (ends[k - 1] if k else 0) for i, (_, ends, _) in enumerate(found) if i % 2 == 0)
        assert sum(counts[k] for counts, _, _ in found) == (2 * active if p > 1 else 0)
    assert all(0 < first < second or first == second == STEPS for _, (first, second), _ in found)
    assert sum(x for _, _, x in found) == pytest.approx(sum(10.0**i for i in range(p)), rel=1e-12)
    if not spmd.real and rank == 0:  # who is fast
        assert max(ends[1] for _, ends, _ in found) < STEPS


def test_pairs_that_are_asked_at_any_time_all_stop():
    for seed in range(300):
        p = 2 + seed % 4

        def program(comm, seed=seed, p=p):
            worker = Worker(comm, np.array([10.0**comm.rank]), lambda w, step: (0.0, 0 * w), 0.1)
            worker.compute_time = Exponential(1e-3, seed)
            ad_psgd(worker, graphs.bipartite(p), STEPS, seed, when(worker, seed % p, seed % 7))
            return worker.done, worker.weights[0]

        found = sd.run(program, p, record=False).results
        assert sum(x for _, x in found) == pytest.approx(sum(10.0**i for i in range(p)), rel=1e-12)
        assert min(done for done, _ in found) > 0 and max(done for done, _ in found) < STEPS
