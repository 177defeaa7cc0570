"""Elastic averaging against its own algebra, done with NumPy on all ranks' weights at once."""

import numpy as np
import pytest
from least_squares import DIM, LeastSquares

import simdist as sd
from simdist.asynchronous import Worker, easgd, elastic_limit
from simdist.collectives import cost
from simdist.errors import ArgumentError

RATE = 0.05


def train(comm, steps, local_steps=1, beta=0.9, gradients=True, noise=0.0):
    """One rank's weights and centre before the first step and after each."""
    problem = LeastSquares(comm.size, noise=noise)
    gradient = problem.of(comm.rank) if gradients else (lambda x, step: (0.0, np.zeros(DIM)))
    x, centre = problem.start(comm.rank), problem.start(98)
    seen = [(x.copy(), centre.copy())]

    def observe(step, weights):
        seen.append((weights.copy(), centre.copy()))

    easgd(Worker(comm, x, gradient, RATE, observe=observe), centre, steps, local_steps, beta=beta)
    return np.array(seen)


@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_every_iterate_is_that_of_the_equations(spmd, p, local_steps):
    problem, beta = LeastSquares(p, noise=0.1), 0.8
    found = spmd(train, p, 7, local_steps, beta, True, 0.1)
    x, c = np.array([problem.start(r) for r in range(p)]), problem.start(98)
    for step in range(8):
        for rank in range(p):
            np.testing.assert_allclose(found[rank][step], [x[rank], c], rtol=1e-11, atol=1e-12)
        g = np.array([problem.of(r)(x[r], step)[1] for r in range(p)])
        pulled = step % local_steps == 0
        x, c = x - RATE * g - pulled * beta / p * (x - c), c + pulled * beta * (x.mean(axis=0) - c)


@pytest.mark.parametrize("beta", [0.3, 0.9])
@pytest.mark.parametrize("p", [2, 4, 5])
def test_without_gradients_springs_pull_with_equal_force_at_both_ends(spmd, p, beta):
    found = np.array(spmd(train, p, 4, 1, beta, False))  # rank, step, (weights, centre)
    x, c = found[:, :, 0], found[0, :, 1]
    mean = x.mean(axis=0)
    np.testing.assert_allclose(p * mean + c, np.broadcast_to(p * mean[0] + c[0], c.shape), rtol=1e-12)
    alpha = beta / p
    for step in range(4):
        np.testing.assert_allclose(x[:, step + 1] - mean[step + 1], (1 - alpha) * (x[:, step] - mean[step]), atol=1e-13)
        np.testing.assert_allclose(
            mean[step + 1] - c[step + 1], (1 - alpha - beta) * (mean[step] - c[step]), atol=1e-13
        )


@pytest.mark.parametrize("beta", [0.2, 0.9])
def test_it_comes_to_rest_where_the_springs_hold_the_gradients(beta):
    p, problem = 4, LeastSquares(4)
    seen = np.array(sd.run(train, p, args=(2500, 1, beta)).results)
    (x, c), alpha = (seen[:, -1, 0], seen[0, -1, 1]), beta / p
    # The minimum of the sum of all losses and springs, as one system of least squares in the p + 1 vectors.
    stretch, rows = np.sqrt(alpha / RATE), []
    for r in range(p):
        losses, spring = np.zeros((2, p + 1)), np.zeros(p + 1)
        losses[0, r], spring[r], spring[p] = 1, stretch, -stretch
        weight = 1 / np.sqrt(len(problem.b[r]))
        rows.append((np.kron(losses[0], problem.a[r] * weight), problem.b[r] * weight))
        rows.append((np.kron(spring, np.eye(DIM)), np.zeros(DIM)))
    system, right = np.vstack([a for a, _ in rows]), np.concatenate([b for _, b in rows])
    best = np.linalg.lstsq(system, right, rcond=None)[0].reshape(p + 1, DIM)
    np.testing.assert_allclose(x, best[:p], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(c, best[p], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(c, x.mean(axis=0), rtol=1e-8, atol=1e-9)
    assert abs(x - c).max() > 0.1  # though ranks do not agree


@pytest.mark.parametrize("p", [2, 3, 4])
def test_it_sends_one_all_reduce_in_local_steps(spmd, p):
    def program(comm):
        first = len(comm.recorder.rows)
        easgd(Worker(comm, np.zeros(60), lambda w, step: (0.0, w), RATE), np.zeros(60), 7, 3, algorithm="ring")
        return sum(s.bytes for s in comm.recorder.spans()[first:] if s.name == "send")

    each = [cost("all_reduce", "ring", ranks=p, num_bytes=480, rank=r, itemsize=8).sent_bytes for r in range(p)]
    assert spmd(program, p) == [3 * sent for sent in each]


def test_it_stops_before_an_exchange_and_continues(spmd):
    def program(comm, until):
        problem, centre = LeastSquares(comm.size), np.zeros(DIM)
        worker = Worker(comm, problem.start(comm.rank), problem.of(comm.rank), RATE)
        if until:
            easgd(worker, centre, 9, 2, asked=lambda: comm.rank == 1 and worker.done >= until)
            assert worker.done == 4
        easgd(worker, centre, 9, 2)
        return worker.weights.tolist(), centre.tolist()

    assert spmd(program, 3, 3) == spmd(program, 3, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"centre": np.zeros(3)}, r"a centre of float64\(3,\); needs float64\(2,\), as the weights"),
        ({"steps": -1}, "steps is -1"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"beta": 1.5}, "beta is 1.5; needs 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(spmd, given, message):
    def program(comm):
        worker = Worker(comm, np.zeros(2), lambda w, step: (0.0, w), RATE)
        easgd(worker, **({"centre": np.zeros(2), "steps": 1} | given))

    with pytest.raises(ArgumentError, match=message):
        spmd(program, 2)


def growth(step):
    """By how much a step that is repeated lets the largest of all distances grow: at most 1 if it is stable."""
    return abs(np.linalg.eigvals(step)).max()


@pytest.mark.parametrize("p", [1, 2, 3, 8])
@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0, 1.9])
def test_up_to_which_pull_it_is_stable(p, rate):
    def step(beta):
        """Of all ranks' weights and the centre, if a rank's loss is x²."""
        matrix = np.diag([1 - 2 * (rate / 2) - beta / p] * p + [1 - beta])
        matrix[:p, p], matrix[p, :p] = beta / p, beta / p
        return matrix

    beta = elastic_limit(2.0, rate / 2, p)
    assert growth(step(beta)) == pytest.approx(1)
    assert growth(step(0.99 * beta)) < 1 < growth(step(1.01 * beta))


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0, 2.0])
def test_the_papers_limit_of_ranks_that_take_turns(rate):
    alpha = elastic_limit(1.0, rate)
    assert alpha == pytest.approx((4 - 2 * rate) / (4 - rate))  # arXiv 1412.6651, section 4
    for p in (2, 5):
        around = np.eye(p + 1)
        for rank in range(p):
            turn = np.eye(p + 1)
            turn[np.ix_([rank, p], [rank, p])] = [[1 - rate - alpha, alpha], [alpha, 1 - alpha]]
            around = turn @ around
        assert growth(around) <= 1 + 1e-9


def test_rates_at_which_descent_alone_is_not_stable():
    with pytest.raises(ArgumentError, match="rate is 2.5, and curvature 1.0; needs a rate of at most 2"):
        elastic_limit(1.0, 2.5)
    with pytest.raises(ArgumentError, match="curvature is 0"):
        elastic_limit(0.0, 1.0)
