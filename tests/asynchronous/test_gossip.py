"""Gossip against its own algebra: X ← X W - γ G, done with NumPy on all ranks' weights at once."""

from itertools import pairwise

import numpy as np
import pytest
from least_squares import DIM, LeastSquares

import simdist as sd
from simdist.asynchronous.compute_time import Exponential
from simdist.asynchronous.consensus import Snapshots, consensus_error
from simdist.asynchronous.gossip import Neighbourhood, d_psgd
from simdist.asynchronous.graphs import Graph, complete, exponential, ring, torus
from simdist.asynchronous.mixing import Mixing, circulant, metropolis, one_peer_exponential
from simdist.asynchronous.worker import Worker
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError

RATE = 0.05
GRAPHS = {
    "ring": ring,
    "exponential": exponential,
    "complete": complete,
    "line": lambda p: Graph.of(p, [(i, i + 1) for i in range(p - 1)]),
    "torus": lambda p: torus(2 if p % 2 == 0 else 1, p // 2 if p % 2 == 0 else p),
}


def train(comm, graph, steps, noise=0.0, gradients=True):
    """One rank's weights before the first step and after each."""
    problem = LeastSquares(comm.size, noise=noise)
    gradient = problem.of(comm.rank) if gradients else (lambda x, step: (0.0, np.zeros(DIM)))
    x = problem.start(comm.rank)
    seen = [x.copy()]
    worker = Worker(comm, x, gradient, RATE, observe=lambda step, weights: seen.append(weights.copy()))
    d_psgd(worker, metropolis(GRAPHS[graph](comm.size)), steps)
    return np.array(seen), len(worker.losses)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_every_iterate_is_that_of_the_matrix_form(spmd, p, graph):
    steps, problem = 6, LeastSquares(p, noise=0.1)
    found = np.array([seen for seen, _ in spmd(train, p, graph, steps, 0.1)])  # rank, step, weight
    x, w = np.array([problem.start(r) for r in range(p)]), metropolis(GRAPHS[graph](p)).weights
    for step in range(steps + 1):
        np.testing.assert_allclose(found[:, step], x, rtol=1e-12, atol=1e-13)
        x = w @ x - RATE * np.array([problem.of(r)(x[r], step)[1] for r in range(p)])


@pytest.mark.parametrize("graph", ["ring", "exponential"])
@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_the_mean_follows_sgd_on_the_averaged_gradients(spmd, p, graph):
    problem = LeastSquares(p, noise=0.1)
    found = np.array([seen for seen, _ in spmd(train, p, graph, 8, 0.1)])
    for step in range(8):
        g = np.mean([problem.of(r)(found[r, step], step)[1] for r in range(p)], axis=0)
        np.testing.assert_allclose(found[:, step + 1].mean(axis=0), found[:, step].mean(axis=0) - RATE * g, atol=1e-12)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_without_gradients_ranks_agree_as_fast_as_the_eigenvalues_say(spmd, p, graph):
    found = np.array([seen for seen, _ in spmd(train, p, graph, 5, 0.0, False)])
    errors = [consensus_error(found[:, k]) for k in range(6)]
    bound = metropolis(GRAPHS[graph](p)).contraction
    for before, after in pairwise(errors):
        assert after <= bound * before * (1 + 1e-9) + 1e-25
    np.testing.assert_allclose(found[:, 5].mean(axis=0), found[:, 0].mean(axis=0), atol=1e-14)


@pytest.mark.parametrize("p", [4, 5, 8])
def test_the_bound_is_met_by_the_eigenvector(spmd, p):
    mixing = metropolis(ring(p))
    values, vectors = np.linalg.eigh(mixing.weights)
    worst = int(np.argmax(np.where(np.isclose(values, 1), 0, np.abs(values))))

    def program(comm):
        x = np.full(3, vectors[comm.rank, worst])
        seen, neighbourhood = [x.copy()], Neighbourhood(mixing, comm, x)
        for _ in range(4):
            neighbourhood.begin(x)
            neighbourhood.finish(x)
            seen.append(x.copy())
        return np.array(seen)

    found = np.array(spmd(program, p))
    errors = [consensus_error(found[:, k]) for k in range(5)]
    for before, after in pairwise(errors):
        assert after / before == pytest.approx(mixing.contraction, rel=1e-9)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_the_mean_as_mixing_is_an_all_reduce(spmd, p):
    def program(comm):
        x = np.random.default_rng(comm.rank).normal(size=11)
        y = x.copy()
        neighbourhood = Neighbourhood(Mixing(np.full((p, p), 1 / p)), comm, x)
        neighbourhood.begin(x)
        neighbourhood.finish(x)
        all_reduce(y, comm)
        return x, y / p

    for x, mean in spmd(program, p):
        np.testing.assert_allclose(x, mean, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_a_step_sends_the_weights_to_each_neighbour_and_nothing_else(spmd, p, graph):
    def program(comm):
        first = len(comm.recorder.rows)
        train(comm, graph, 3)
        spans = comm.recorder.spans()[first:]
        sent = [(s.peer, s.bytes) for s in spans if s.name == "send"]
        return sorted(sent), sum(s.name == "recv" for s in spans)

    for rank, (sent, received) in enumerate(spmd(program, p)):
        expected = sorted([(j, DIM * 8) for j in GRAPHS[graph](p).neighbours[rank]] * 3)
        assert [tuple(message) for message in sent] == expected
        assert received == len(expected)


# -- edges with a direction, and several matrices in turn ----------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 4, 8, 16])
def test_one_peer_a_step_gives_the_mean_in_lg_p_steps_of_one_message(spmd, p):
    turns = one_peer_exponential(p)

    def program(comm):
        x = np.array([float(comm.rank), 4.0**comm.rank])
        first = len(comm.recorder.rows)
        d_psgd(Worker(comm, x, lambda w, step: (0.0, np.zeros(2)), RATE), turns, p.bit_length() - 1)
        return x.tolist(), [(s.peer, s.bytes) for s in comm.recorder.spans()[first:] if s.name == "send"]

    mean = [(p - 1) / 2, sum(4.0**rank for rank in range(p)) / p]
    for rank, (x, sent) in enumerate(spmd(program, p)):
        assert x == mean
        assert [tuple(message) for message in sent] == [((rank - 2**k) % p, 16) for k in range(p.bit_length() - 1)]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_directed_turns_are_those_of_the_matrix_form_and_continue_where_they_stopped(spmd, p):
    problem, turns = LeastSquares(p, noise=0.1), [*one_peer_exponential(p), circulant(p, [1, 2])]

    def program(comm):
        worker = Worker(comm, problem.start(comm.rank), problem.of(comm.rank), RATE)
        for until in (2, 5, 6):
            d_psgd(worker, turns, until)
        return worker.weights

    x = np.array([problem.start(r) for r in range(p)])
    for step in range(6):
        w = turns[step % len(turns)].weights
        x = w @ x - RATE * np.array([problem.of(r)(x[r], step)[1] for r in range(p)])
    np.testing.assert_allclose(spmd(program, p), x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize(("p", "rank"), [(2, 0), (3, 1), (8, 0), (8, 5), (11, 10)])
def test_asked_at_any_step_all_stop_together_after_the_fewest_that_tell_all(p, rank, first):
    turns = one_peer_exponential(p)

    def program(comm):
        worker = Worker(comm, np.zeros(1), lambda w, step: (0.0, np.zeros(1)), RATE)
        d_psgd(worker, turns, 30, asked=lambda: comm.rank == rank and worker.done >= first)
        return worker.done

    assert sd.run(program, p).results == [first + (p - 1).bit_length()] * p


def test_without_a_matrix_there_is_no_turn():
    with pytest.raises(ArgumentError, match="mixing matrices is 0; needs at least 1"):
        sd.run(lambda comm: d_psgd(Worker(comm, np.zeros(1), lambda w, step: (0.0, w), RATE), [], 1), 2)


@pytest.mark.parametrize(
    ("mixing", "kind"),
    [(np.eye(2), "an ndarray"), ([np.eye(2)], "an ndarray"), (ring(2), "a Graph")],
    ids=["matrix", "matrices", "graph"],
)
def test_what_is_no_mixing_is_refused(mixing, kind):
    with pytest.raises(ArgumentError, match=f"mixing is {kind}; needs a Mixing"):
        sd.run(lambda comm: d_psgd(Worker(comm, np.zeros(1), lambda w, step: (0.0, w), RATE), mixing, 1), 2)


def test_large_weights_do_not_block(spmd):
    def program(comm):
        x = np.full(100_000, float(comm.rank))
        d_psgd(Worker(comm, x, lambda w, step: (0.0, np.ones_like(w)), 0.5), metropolis(ring(comm.size)), 2)
        return float(x.min()), float(x.max())

    assert spmd(program, 3) == [(0.0, 0.0)] * 3


def test_weights_travel_while_the_gradient_is_found():
    def program(comm):
        x = np.zeros(1 << 15)
        worker = Worker(comm, x, lambda w, step: (0.0, w), 0.1, compute_time=Exponential(1.0, seed=1))
        d_psgd(worker, metropolis(ring(comm.size)), 1)
        return comm.clock()

    times = Exponential(1.0, seed=1)
    slowest = max(times.seconds(rank, 0) for rank in range(4))
    assert sd.run(program, 4).elapsed_s < slowest + 1e-3


def test_it_comes_near_the_minimum_of_all():
    def program(comm, p):
        problem = LeastSquares(p)
        x = problem.start(comm.rank)
        d_psgd(Worker(comm, x, problem.of(comm.rank), lambda step: 0.3 / (1 + step / 50)), metropolis(ring(p)), 500)
        return x

    found = np.mean(sd.run(program, 5, args=(5,)).results, axis=0)
    assert LeastSquares(5).excess(found) < 1e-4


def test_a_mixing_for_other_ranks_is_refused_on_all(spmd):
    with pytest.raises(ArgumentError, match="a mixing matrix for 3 ranks on rank . of 2"):
        spmd(lambda comm: Neighbourhood(metropolis(ring(3)), comm, np.zeros(1)), 2)
    with pytest.raises(ArgumentError, match="steps is -1"):
        spmd(train, 2, "ring", -1)


# -- the consensus error ------------------------------------------------------------------------------


def measured(comm):
    problem = LeastSquares(comm.size)
    x = problem.start(comm.rank)
    snapshots = Snapshots(comm, x)
    worker = Worker(comm, x, problem.of(comm.rank), RATE, observe=snapshots.take)
    first = len(comm.recorder.rows)
    d_psgd(worker, metropolis(ring(comm.size)), 6)
    sent = sum(s.name == "send" for s in comm.recorder.spans()[first:])
    return snapshots.errors(), sent


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_snapshots_give_the_error_of_each_step_and_no_traffic_before(spmd, p):
    iterates = np.array([seen for seen, _ in spmd(train, p, "ring", 6)])
    for errors, sent in spmd(measured, p):
        assert sent == 6 * len(ring(p).neighbours[0])
        expected = [consensus_error(iterates[:, k]) for k in range(7)]
        np.testing.assert_allclose([error for _, error in errors], expected, rtol=1e-10, atol=1e-25)
        times = [time for time, _ in errors]
        assert times == sorted(times)
