"""What every method makes sure of after a step."""

import numpy as np
import pytest

from simdist.comm import Mesh
from simdist.errors import ArrayError
from simdist.nn import mlp
from simdist.parallel import DataParallel, Recipe, ZeRO
from simdist.parallel.pipeline import PipeDream, Pipeline, schedule

WINDOWS = np.random.default_rng(0).integers(256, size=(4, 5), dtype=np.uint8)


MAKES = [
    lambda model, comm: DataParallel(model, comm, Recipe(), 0),
    lambda model, comm: ZeRO(model, comm, Recipe(), 0, 2),
    lambda model, comm: ZeRO(model, comm, Recipe(), 0, 3),
    lambda model, comm: Pipeline(model, Mesh(comm, dp=comm.size), Recipe(), 0, schedule("1f1b", 1, 1)),
    lambda model, comm: PipeDream(model, Mesh(comm, dp=comm.size), Recipe(), 0, schedule("pipedream", 1, 1)),
]


@pytest.mark.parametrize("make", MAKES)
def test_weights_that_are_another_array_are_found(spmd, make):
    """As of a layer that constrains them in its forward: the method would go on with those before."""

    def program(comm):
        model = mlp(4, 4, 8, 1)
        method = make(model, comm)
        logits = model.layers.layers[-1]
        forward = logits.forward

        def constrained(x, noise=None):
            logits.w.data = np.minimum(logits.w.data, 0.01)
            return forward(x, noise)

        logits.forward = constrained
        with pytest.raises(ArrayError, match=r"data of logits\.w is another array than before"):
            method.train([WINDOWS], 1 / 4, 0.1)

    spmd(program, 2)


@pytest.mark.parametrize("make", MAKES)
def test_a_gradient_that_is_another_array_is_found(spmd, make):
    """As of a layer that sets it, instead of adding to it: the method would reduce zeros."""

    def program(comm):
        model = mlp(4, 4, 8, 1)
        method = make(model, comm)
        logits = model.layers.layers[-1]
        method.train([WINDOWS], 1 / 4, 0.1)

        def backward_weight(context, pending):
            logits.w.gradient = context.T @ pending

        logits.backward_weight = backward_weight
        with pytest.raises(ArrayError, match=r"gradient of logits\.w is another array than before"):
            method.train([WINDOWS], 1 / 4, 0.1)

    spmd(program, 2)
