import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous.compute_time import Constant
from simdist.asynchronous.worker import Worker
from simdist.errors import ArrayError
from simdist.optim import SGD


def slope(weights, step):
    return float(step), np.full_like(weights, step + 1.0)


def test_it_steps_by_its_gradient_and_rate():
    def program(comm):
        x = np.zeros(3)
        worker = Worker(comm, x, slope, lambda step: 0.5**step, compute_time=Constant(2.0))
        for step in range(3):
            worker.descend(worker.find_gradient(step), step)
        return x, worker.losses, worker.times_s

    ((x, losses, times_s),) = sd.run(program, 1).results
    np.testing.assert_allclose(x, -(1 + 2 / 2 + 3 / 4), rtol=1e-15)
    assert losses == [0.0, 1.0, 2.0]
    assert times_s == pytest.approx([2.0, 4.0, 6.0], rel=1e-6)


def test_any_optimizer_will_do(spmd):
    def program(comm):
        x = np.zeros(3)
        worker = Worker(comm, x, slope, 1.0, optimizer=SGD(x, momentum=0.5))
        for step in range(2):
            worker.descend(worker.find_gradient(0), step)
        return x

    assert spmd(program, 1)[0].tolist() == [-2.5] * 3


@pytest.mark.parametrize("wrong", [np.zeros((2, 2)), np.zeros(8)[::2]])
def test_weights_must_be_one_vector(spmd, wrong):
    with pytest.raises(ArrayError, match="weights of shape"):
        spmd(lambda comm: Worker(comm, wrong, slope, 0.1), 2)


def test_new_weights_are_values_in_the_same_array():
    def program(comm):
        weights = np.ones(3)
        worker = Worker(comm, weights, lambda weights, step: (0.0, weights), 0.1)
        worker.weights *= 2
        assert weights.tolist() == [2, 2, 2] and worker.weights is weights
        with pytest.raises(ArrayError, match="another array of weights on rank 0; needs new values"):
            worker.weights = weights - 1

    sd.run(program, 1)
