"""The bound of bounded staleness, and runs that keep to it."""

from math import sqrt

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous import Exponential
from simdist.asynchronous.parameter_server import BoundedStaleness, ParameterServer, ssp_rate, ssp_regret, train
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


def test_what_cannot_be_is_refused():
    with pytest.raises(ArgumentError, match="0 updates of 1 workers, and staleness 0; needs at least 1, 1 and 0"):
        ssp_regret(0, 1, 0, distance=1, slope=1)
    with pytest.raises(ArgumentError, match="staleness -1"):
        ssp_rate(1, 1, -1, distance=1, slope=1)
    with pytest.raises(ArgumentError, match="slope is 0; needs more than 0"):
        ssp_rate(1, 1, 0, distance=1, slope=0)
