"""What every method makes sure of after a step, or after one that failed."""

from dataclasses import replace

import numpy as np
import pytest
from harness import virtual

from simdist.comm import Mesh
from simdist.errors import ArrayError, MessageMismatch, UnmatchedMessage
from simdist.nn import mlp
from simdist.parallel import Centralized, DataParallel, MapReduce, Recipe, ZeRO
from simdist.parallel.pipeline import PipeDream, Pipeline, Weights, schedule

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


UPDATED_ONCE = replace(schedule("1f1b", 1, 2), weights=Weights("2bw", group=2))
IN_PARTS = [
    lambda model, comm: DataParallel(model, comm, Recipe("adam"), 0),
    lambda model, comm: DataParallel(model, comm, Recipe("adam"), 0, bucket_bytes=100),
    lambda model, comm: Centralized(model, comm, Recipe("adam"), 0),
    lambda model, comm: MapReduce(model, comm, Recipe("adam"), 0),
    lambda model, comm: ZeRO(model, comm, Recipe("adam"), 0, 1, bucket_bytes=100),
    lambda model, comm: ZeRO(model, comm, Recipe("adam"), 0, 2, bucket_bytes=300),
    lambda model, comm: ZeRO(model, comm, Recipe("adam"), 0, 3),
    lambda model, comm: Pipeline(model, Mesh(comm, dp=2), Recipe("adam"), 0, schedule("zb-h1", 1, 2)),
    lambda model, comm: Pipeline(model, Mesh(comm, dp=2), Recipe("adam"), 0, schedule("1f1b", 1, 2), zero_stage=3),
    lambda model, comm: PipeDream(model, Mesh(comm, dp=2), Recipe("adam"), 0, UPDATED_ONCE),
]


@pytest.mark.parametrize("make", IN_PARTS)
def test_a_step_that_failed_leaves_nothing_to_the_next(spmd, make):
    """One whose second micro-batch is no text, and one in the midst of whose last backward a layer fails."""

    def trained(comm, fails):
        model = mlp(4, 4, 8, 2)
        method = make(model, comm)
        layer = model.layers.layers[2]
        backward_input, calls = layer.backward_input, []

        def failing(context, dy):
            calls.append(dy)
            if len(calls) == 2:
                raise ZeroDivisionError
            return backward_input(context, dy)

        if fails:
            with pytest.raises(ArrayError, match="needs uint8"):
                method.train([WINDOWS, WINDOWS / 2], 1 / 8, 0.1)
            layer.backward_input = failing
            with pytest.raises(ZeroDivisionError):
                method.train([WINDOWS, WINDOWS], 1 / 8, 0.1)
        method.train([WINDOWS, WINDOWS[:2]], 1 / 6, 0.1)
        return [shard.data.copy() for shard in method.vectors()[""]]

    def program(comm):
        return trained(comm, fails=False), trained(comm, fails=True)

    for never, once in spmd(program, 2):
        for own, same in zip(never, once, strict=True):
            np.testing.assert_array_equal(same, own)


def test_a_pipeline_that_failed_goes_on_from_its_newest_weights(spmd):
    """Not from the older ones of the micro-batch that failed."""

    def program(comm):
        row = schedule("pipedream-2bw", 1, 3)
        method = PipeDream(mlp(4, 4, 8, 1), Mesh(comm, dp=comm.size), Recipe("sgd"), 0, row)
        stage, calls = method.share.stages[0], []
        forward = stage.forward

        def failing(*args):
            calls.append(args)
            if len(calls) == 3:
                raise ZeroDivisionError
            return forward(*args)

        stage.forward = failing
        with pytest.raises(ZeroDivisionError):
            method.train([WINDOWS] * 3, 1 / 4, 0.1)
        stage.forward = forward
        method.zero_gradients()
        fresh = DataParallel(mlp(4, 4, 8, 1), comm, Recipe("sgd"), 0)
        fresh.weights[...] = method.weights
        return method.loss(WINDOWS), fresh.loss(WINDOWS)

    for own, newest in spmd(program, 2):
        assert own == newest


def test_a_pipeline_that_failed_between_ranks_refuses_to_go_on():
    """It fails on both, at another place of the row: what one has sent the other has not received."""

    def program(comm):
        method = Pipeline(mlp(4, 4, 8, 2), Mesh(comm, pp=2), Recipe("sgd"), 0, schedule("1f1b", 2, 4))
        stage, calls = method.share.stages[0], []
        backward = stage.backward

        def failing(*args):
            calls.append(args)
            if len(calls) == 1 + comm.rank:
                raise ZeroDivisionError
            return backward(*args)

        stage.backward = failing
        with pytest.raises(ZeroDivisionError):
            method.train([WINDOWS] * 4, 1 / 16, 0.1)
        with pytest.raises(MessageMismatch, match=f"1f1b failed on rank {comm.rank} of 2 before: messages of that run"):
            method.train([WINDOWS] * 4, 1 / 16, 0.1)

    with pytest.warns(UnmatchedMessage, match="never"):
        virtual(program, 2)
