import numpy as np
import pytest
from harness import virtual
from least_squares import DIM, LeastSquares

from simdist.asynchronous.diloco import diloco
from simdist.asynchronous.local_sgd import local_sgd
from simdist.asynchronous.worker import Worker
from simdist.collectives import cost
from simdist.errors import ArgumentError
from simdist.optim import SGD, AdamW


def worker(comm, rate=0.05, adamw=False):
    problem = LeastSquares(comm.size, noise=0.1)
    x = problem.start(0)
    return Worker(comm, x, problem.of(comm.rank), rate, optimizer=AdamW(x) if adamw else None)


@pytest.mark.parametrize("h", [1, 3])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_with_an_outer_step_of_plain_sgd_at_rate_one_it_is_local_sgd(spmd, p, h):
    def program(comm):
        ours, theirs = worker(comm), worker(comm)
        diloco(ours, 4, h, outer=SGD(ours.weights, momentum=0.0), outer_rate=1.0)
        local_sgd(theirs, 4 * h, h)
        return ours.weights, theirs.weights

    for ours, theirs in spmd(program, p):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_an_observer_hears_of_the_last_step_of_each_round(spmd):
    def program(comm):
        ours, seen = worker(comm), []
        ours.observe = lambda step, weights: seen.append((step, weights.copy()))
        diloco(ours, 3, 4)
        return seen, ours.weights

    for seen, weights in spmd(program, 2):
        assert [step for step, _ in seen] == [3, 7, 11]
        np.testing.assert_array_equal(seen[-1][1], weights)


def reference(p, rounds, h):
    """The paper's algorithm 1 on one machine: AdamW inside, and outside Nesterov momentum 0.9 at a rate of 0.7."""
    problem = LeastSquares(p, noise=0.1)
    theta, velocity = problem.start(0), np.zeros(DIM)
    m, v = np.zeros((p, DIM)), np.zeros((p, DIM))
    for t in range(rounds):
        x = np.array([theta] * p)
        for step in range(t * h, (t + 1) * h):
            g = np.array([problem.of(rank)(x[rank], step)[1] for rank in range(p)])
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            mean, square = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
            x = x - 0.01 * (mean / (np.sqrt(square) + 1e-8) + 0.01 * x)
        delta = (theta - x).mean(axis=0)
        velocity = 0.9 * velocity + delta
        theta = theta - 0.7 * (delta + 0.9 * velocity)
    return theta


@pytest.mark.parametrize("p", [1, 2, 4])
def test_it_follows_the_paper(spmd, p):
    def program(comm):
        ours = worker(comm, rate=0.01, adamw=True)
        diloco(ours, 4, 5)
        return ours.weights

    for found in spmd(program, p):
        np.testing.assert_allclose(found, reference(p, 4, 5), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_it_steps_as_pytorch_s_optimizers_do(p):
    """On virtual ranks only: each real one would take seconds to import PyTorch."""
    torch = pytest.importorskip("torch")
    rounds, h = 4, 5

    def program(comm):
        ours = worker(comm, rate=0.01, adamw=True)
        diloco(ours, rounds, h)
        return ours.weights

    problem = LeastSquares(p, noise=0.1)
    theta = torch.nn.Parameter(torch.tensor(problem.start(0)))
    outer = torch.optim.SGD([theta], lr=0.7, momentum=0.9, nesterov=True)
    inner = [torch.nn.Parameter(theta.detach().clone()) for _ in range(p)]
    adamws = [torch.optim.AdamW([x], lr=0.01, weight_decay=0.01) for x in inner]
    for t in range(rounds):
        for rank, (x, adamw) in enumerate(zip(inner, adamws, strict=True)):
            with torch.no_grad():
                x.copy_(theta)
            for step in range(t * h, (t + 1) * h):
                x.grad = torch.tensor(problem.of(rank)(x.detach().numpy(), step)[1])
                adamw.step()
        theta.grad = torch.stack([theta.detach() - x.detach() for x in inner]).mean(dim=0)
        outer.step()
    for found in virtual(program, p):
        np.testing.assert_allclose(found, theta.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", [2, 3])
def test_a_round_sends_one_all_reduce(spmd, p):
    def program(comm):
        first = len(comm.recorder.rows)
        diloco(worker(comm), 3, 4, algorithm="ring")
        return sum(s.bytes for s in comm.recorder.spans()[first:] if s.name == "send")

    for rank, sent in enumerate(spmd(program, p)):
        assert sent == 3 * cost("all_reduce", "ring", ranks=p, num_bytes=DIM * 8, itemsize=8, rank=rank).sent_bytes


def test_all_ranks_end_with_the_same_bits(spmd):
    def program(comm):
        ours = worker(comm, adamw=True)
        diloco(ours, 3, 2)
        return ours.weights

    found = spmd(program, 3)
    assert all(x.tobytes() == found[0].tobytes() for x in found)


def test_what_is_refused(spmd):
    with pytest.raises(ArgumentError, match="local_steps is 0"):
        spmd(lambda comm: diloco(worker(comm), 1, 0), 2)
    with pytest.raises(ArgumentError, match="rounds is -1"):
        spmd(lambda comm: diloco(worker(comm), -1, 1), 2)

    def in_the_middle(comm):
        one = worker(comm)
        one.done = 3
        diloco(one, 2, 2)

    with pytest.raises(ArgumentError, match="3 steps are done, and local_steps is 2; needs whole rounds"):
        spmd(in_the_middle, 2)
