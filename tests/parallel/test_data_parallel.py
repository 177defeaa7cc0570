"""Training on p ranks equals training on one: the oracle is the same loop without ranks."""

import numpy as np
import pytest

from simdist.collectives import algorithms
from simdist.data import Batches, Corpus
from simdist.nn import mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision

STEPS = 5
TEXT = np.random.default_rng(2).integers(97, 123, size=4000, dtype=np.uint8)

EXACT = Recipe(precision=precision("float64"))


def model():
    return mlp(context_bytes=3, embedding_width=4, hidden_width=8, hidden_layers=1)


def batches(size):
    return Batches(Corpus(TEXT, "letters").split(4, 0.1, 0)[0], size, seed=9)


def serial(size):
    """The weights after some steps of plain SGD on whole batches."""
    net = model()
    net.parameters.bind(np.empty(net.parameters.size), np.zeros(net.parameters.size))
    net.parameters.initialize(1)
    weights, velocity = net.parameters.data, 0.0
    for step in range(STEPS):
        net.parameters.gradient[...] = 0
        windows = batches(size).part(step, 0, 1).windows
        net.backward(net.forward(windows)[1], 1 / size)
        velocity = 0.9 * velocity + net.parameters.gradient
        weights -= 0.5 * velocity
    return weights


def train(comm, algorithm, size):
    replica = DataParallel(model(), comm, EXACT, seed=1, algorithm=algorithm)
    for step in range(STEPS):
        replica.backward(batches(size).part(step, comm.rank, comm.size).windows, 1 / size)
        replica.step(0.5)
    return replica.weights


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("algorithm", ["auto", *algorithms("all_reduce")])
def test_ranks_train_as_one(spmd, p, algorithm):
    expected = serial(10)  # 3 and 4 do not divide it
    replicas = spmd(train, p, algorithm, 10)
    np.testing.assert_allclose(replicas[0], expected, rtol=1e-12, atol=1e-12)
    for other in replicas[1:]:
        np.testing.assert_array_equal(other, replicas[0])


@pytest.mark.parametrize("bucket_bytes", [None, 1000])
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_gradients_are_summed_by_the_algorithm_asked_for(spmd, algorithm, bucket_bytes):
    def program(comm):
        replica = DataParallel(model(), comm, EXACT, seed=1, algorithm=algorithm, bucket_bytes=bucket_bytes)
        replica.backward(batches(4).part(0, comm.rank, comm.size).windows, 0.25)
        return sorted({span.name for span in comm.recorder.spans() if span.name.startswith("all_reduce")})

    assert spmd(program, 2) == [[f"all_reduce {algorithm}"]] * 2


def test_some_ranks_may_have_nothing_to_do(spmd):
    replicas = spmd(train, 4, "ring", 2)
    for replica in replicas:
        np.testing.assert_allclose(replica, serial(2), rtol=1e-12, atol=1e-12)


def losses(comm):
    replica = DataParallel(model(), comm, EXACT, seed=1)
    windows = batches(10).part(0, comm.rank, comm.size).windows
    return replica.backward(windows, 0.1), replica.model.forward(windows)[0]


def test_the_loss_returned_is_that_of_the_own_part(spmd):
    total, again = spmd(losses, 1)[0]
    assert total == again
    parts = spmd(losses, 3)
    assert sum(part for part, _ in parts) == pytest.approx(total, rel=1e-12)


def first_weights(comm):
    return DataParallel(model(), comm, Recipe(), seed=comm.rank).weights


def test_rank_0_gives_the_first_weights(spmd):
    found = spmd(first_weights, 3)
    alone = spmd(first_weights, 1)[0]
    assert alone.dtype == np.float32
    for weights in found:
        np.testing.assert_array_equal(weights, alone)
