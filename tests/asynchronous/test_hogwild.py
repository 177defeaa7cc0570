"""Hogwild on sparse logistic regression: each example has few of many features."""

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous.compute_time import Constant, Exponential
from simdist.asynchronous.hogwild import Hogwild
from simdist.cluster import preset
from simdist.errors import ArgumentError

SIZE, RATE = 120, 0.5


class Sparse:
    """Examples of `features` features each, drawn from a range of keys, one a step.

    The label is the sign of a plane that is known; the loss is that of logistic regression.
    """

    def __init__(self, rank, first=0, last=SIZE, features=4):
        self.rank, self.first, self.last, self.features = rank, first, last, features
        self.plane = np.random.default_rng(9).normal(size=SIZE)

    def example(self, step):
        rng = np.random.default_rng([self.rank, step])
        e = np.sort(rng.choice(np.arange(self.first, self.last), self.features, replace=False))
        x = rng.normal(size=self.features)
        return e, x, 1.0 if x @ self.plane[e] > 0 else -1.0

    def keys(self, step):
        return self.example(step)[0]

    def gradient(self, weights, step):
        _, x, y = self.example(step)
        margin = y * float(x @ weights)
        return float(np.log1p(np.exp(-margin))), -y / (1 + np.exp(margin)) * x


def serial(objectives, steps, start):
    x = start.copy()
    for objective in objectives:
        for step in range(steps):
            e = objective.keys(step)
            x[e] -= RATE * objective.gradient(x[e], step)[1]
    return x


def own_range(rank, p):
    return Sparse(rank, rank * SIZE // p, (rank + 1) * SIZE // p)


def program(comm, steps, disjoint, times):
    objective = own_range(comm.rank, comm.size) if disjoint else Sparse(comm.rank)
    start = np.linspace(0, 1, SIZE) if comm.rank == 0 else np.zeros(SIZE)
    hogwild = Hogwild(comm, start)
    touches = hogwild.train(objective, steps, RATE, compute_time=times)
    return hogwild.weights.copy(), touches


@pytest.mark.one_node
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_disjoint_keys_give_the_bits_of_one_rank(spmd, p):
    found = spmd(program, p, 60, True, Exponential(1e-5, seed=p))
    expected = serial([own_range(r, p) for r in range(p)], 60, np.linspace(0, 1, SIZE))
    for x, (losses, num_keys, conflicts) in found:
        np.testing.assert_array_equal(x, expected)
        assert len(losses) == 60 and num_keys == 240 and conflicts == 0


def test_one_rank_is_serial_whatever_it_touches(spmd):
    ((x, (_, _, conflicts)),) = spmd(program, 1, 50, False, Constant())
    np.testing.assert_array_equal(x, serial([Sparse(0)], 50, np.linspace(0, 1, SIZE)))
    assert conflicts == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("p", [2, 3, 8])
def test_conflicts_are_the_pairs_of_steps_that_overlap_and_share_a_key(p, seed):
    run = sd.run(program, p, args=(25, False, Exponential(1e-3, seed=seed)))
    steps = {(rank, k): [] for rank in range(p) for k in range(25)}
    for rank in range(p):
        spans = [s for s in run.trace if s.rank == rank and s.name == "hogwild step"]
        for k, span in enumerate(spans):
            steps[rank, k] = (span.start_s, span.end_s, set(Sparse(rank).keys(k).tolist()))
    expected = 0
    for (rank, _), (start, end, keys) in steps.items():
        for (other, _), (start2, end2, keys2) in steps.items():
            if rank < other and start < end2 and start2 < end:
                expected += len(keys & keys2)
    assert sum(touches.conflicts for _, touches in run.results) == expected > 0


def test_a_sparse_problem_is_learned_as_well_as_by_one_rank():
    def loss(x):
        return np.mean([Sparse(99).gradient(x[Sparse(99).keys(k)], k)[0] for k in range(200)])

    one = sd.run(program, 1, args=(2000, False, Constant(1e-3)), record=False).results[0][0]
    many = sd.run(program, 8, args=(250, False, Exponential(1e-3)), record=False).results[0][0]
    assert loss(many) < 0.6 * loss(np.linspace(0, 1, SIZE))
    assert loss(many) == pytest.approx(loss(one), rel=0.1)


@pytest.mark.one_node
def test_ranks_see_each_other_s_steps(spmd):
    def program(comm):
        class Turns:
            def keys(self, step):
                return np.array([0, 1 + comm.rank])

            def gradient(self, weights, step):
                return 0.0, np.array([0.0, 1.0])

        hogwild = Hogwild(comm, np.zeros(1 + comm.size))
        for _ in range(3):
            hogwild.train(Turns(), 5, -1.0)
        return hogwild.weights.copy()

    for p in (2, 3):
        for x in spmd(program, p):
            assert x.tolist() == [0.0] + [15.0] * p


def test_it_is_the_same_every_time():
    runs = [sd.run(program, 5, args=(40, False, Exponential(1e-3, seed=3))) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].results[0][0], runs[1].results[0][0])
    assert runs[0].trace.spans == runs[1].trace.spans


def test_an_observer_sees_the_weights_after_each_step(spmd):
    def observed(comm):
        one, seen = Hogwild(comm, np.zeros(SIZE)), []
        one.train(Sparse(0), 3, RATE, observe=lambda step, weights: seen.append((step, weights.copy())))
        return seen

    found = spmd(observed, 1)[0]
    assert [step for step, _ in found] == [0, 1, 2]
    for step, weights in found:
        np.testing.assert_array_equal(weights, serial([Sparse(0)], step + 1, np.zeros(SIZE)))


def test_ranks_of_two_nodes_are_refused():
    with pytest.raises(ArgumentError, match="4 ranks on 2 nodes have no shared memory"):
        sd.run(lambda comm: Hogwild(comm, np.zeros(3)), 4, cluster=preset("this-machine").with_(devices_per_node=2))


@pytest.mark.one_node
@pytest.mark.parametrize("keys", [[1, 1], [2, 1], [-1, 3], [0, SIZE]])
def test_keys_must_ascend_inside_the_vector(spmd, keys):
    class Wrong(Sparse):
        def keys(self, step):
            return np.array(keys)

    with pytest.raises(ArgumentError, match=r"need to ascend, from 0 to 119"):
        spmd(lambda comm: Hogwild(comm, np.zeros(SIZE)).train(Wrong(comm.rank), 1, RATE), 2)


def test_a_step_may_have_no_keys():
    class Empty(Sparse):
        def keys(self, step):
            return np.arange(0)

        def gradient(self, weights, step):
            return 0.5, weights

    (touches,) = sd.run(lambda comm: Hogwild(comm, np.zeros(3)).train(Empty(0), 2, RATE), 1).results
    assert touches == ([0.5, 0.5], 0, 0)
