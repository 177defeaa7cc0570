"""Buckets: the same sums as one all-reduce, sent off in reverse order and hidden behind backward."""

import numpy as np
import pytest

from simdist.arrays import phantom
from simdist.cluster import Cluster, Device, Link, preset
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError
from simdist.nn import Embedding, Layer, Linear, Model, Parameter, Parameters, Sequence, Shape, gpt, mlp
from simdist.parallel.buckets import Buckets
from simdist.trace.statistics import hidden_share

# A device and a wire whose figures make backward of the model below longer than its messages.
SLOW = Cluster("slow", Device("d", 1e9, 1e9, 1e9), Link(1e-5, 1e9), Link(1e-5, 1e9))
WINDOWS = np.random.default_rng(0).integers(0, 256, (12, 9), np.uint8)


def model_on(seed=0):
    model = mlp(context_bytes=8, embedding_width=8, hidden_width=32, hidden_layers=3)
    size = model.parameters.size
    model.parameters.bind(np.zeros(size), np.zeros(size))
    model.parameters.initialize(seed)
    return model


def serial():
    model = model_on()
    _, context = model.forward(WINDOWS)
    model.backward(context, 1 / len(WINDOWS))
    return model.parameters.gradient


@pytest.mark.parametrize("bucket_bytes", [1, 4096, 20_000, 1 << 30])
def test_the_sum_of_all_ranks_is_the_gradient_of_the_whole_batch(spmd, bucket_bytes):
    def program(comm):
        model = model_on()
        buckets = Buckets(model.parameters, comm, bucket_bytes, algorithm="ring")
        for _ in range(2):  # and again, for the next step
            model.parameters.gradient[:] = 0
            _, context = model.forward(WINDOWS[comm.rank :: comm.size])
            model.backward(context, 1 / len(WINDOWS), buckets)
            buckets.finish()
        return model.parameters.gradient

    for gradient in spmd(program, 3):
        np.testing.assert_allclose(gradient, serial(), rtol=0, atol=1e-12)


def test_accumulation_is_reduced_once_at_its_end(spmd):
    def program(comm):
        model = model_on()
        buckets = Buckets(model.parameters, comm, 4096)
        mine = np.split(WINDOWS[comm.rank :: comm.size], 3)
        for i, micro_batch in enumerate(mine):
            _, context = model.forward(micro_batch)
            model.backward(context, 1 / len(WINDOWS), buckets if i == 2 else None)
        buckets.finish()
        return model.parameters.gradient

    for gradient in spmd(program, 2):
        np.testing.assert_allclose(gradient, serial(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bucket_bytes", [1, 4096])
def test_each_rank_sends_what_one_all_reduce_would_send(bucket_bytes):
    def program(comm):
        model = model_on()
        buckets = Buckets(model.parameters, comm, bucket_bytes, algorithm="ring")
        _, context = model.forward(WINDOWS)
        model.backward(context, 1.0, buckets)
        buckets.finish()
        return model.parameters.size

    sizes, spans, _ = run_virtual(program, 2, SLOW)
    sent = sum(s.bytes for s in spans if s.name == "send" and s.rank == 0)
    assert sent == sizes[0] * 8  # 2n(p-1)/p with p = 2
    assert all(s.bytes for s in spans if s.name == "all_reduce ring"), "there is no bucket with nothing in it"


def test_communication_hides_behind_backward():
    def program(comm, bucket_bytes):
        model = model_on()
        buckets = Buckets(model.parameters, comm, bucket_bytes, algorithm="ring")
        _, context = model.forward(WINDOWS)
        model.backward(context, 1.0, buckets)
        backward_s = comm.clock()
        buckets.finish()
        return backward_s, comm.clock()

    def waits(bucket_bytes):
        ends = run_virtual(program, 4, SLOW, (bucket_bytes,))[0]
        return max(end - backward for backward, end in ends)

    assert waits(20_000) < 0.7 * waits(1 << 30)


def test_an_unused_parameter_and_one_that_comes_early_are_reduced_all_the_same(spmd):
    def program(comm):
        a, b, c = (Parameter(name, (2,)) for name in "abc")
        parameters = Parameters([a, b, c])
        parameters.bind(np.zeros(6), np.full(6, 10.0**comm.rank))
        buckets = Buckets(parameters, comm, 1)
        buckets.gradients_complete((b,))
        buckets.gradients_complete((c,))
        buckets.finish()
        return parameters.gradient

    for gradient in spmd(program, 3):
        assert gradient.tolist() == [111.0] * 6


@pytest.mark.parametrize(("bucket_bytes", "sent"), [(1, [16] * 3), (16, [16] * 3), (17, [32, 16]), (33, [48])])
def test_a_bucket_leaves_once_it_is_full(bucket_bytes, sent):
    def program(comm):
        layers = [Parameter(name, (2,)) for name in "abc"]
        parameters = Parameters(layers)
        parameters.bind(np.zeros(6), np.zeros(6))
        buckets = Buckets(parameters, comm, bucket_bytes, algorithm="ring")
        for layer in reversed(layers):
            buckets.gradients_complete((layer,))
        buckets.finish()

    _, spans, _ = run_virtual(program, 2, SLOW)
    assert [s.bytes for s in spans if s.name == "all_reduce ring" and s.rank == 0] == sent


class OnSomeRanks(Layer):
    """A layer that only some ranks use; others pass its input on."""

    def __init__(self, layer, used):
        self.layer, self.used, self.parameters = layer, used, layer.parameters

    def forward(self, x, noise=None):
        return self.layer.forward(x, noise) if self.used else (x, None)

    def backward_input(self, context, dy):
        return self.layer.backward_input(context, dy) if self.used else (dy, None)

    def backward_weight(self, context, pending):
        if self.used:
            self.layer.backward_weight(context, pending)


def branching(rank):
    """A model in which rank 0 alone uses one layer, and nobody another."""
    table = Embedding("table", 256, 4)
    once = OnSomeRanks(Linear("once", 32, 32), rank == 0)
    never = OnSomeRanks(Linear("never", 32, 32), False)
    layers = [table, once, never, Linear("logits", 32, 256)]
    model = Model(Sequence(layers), lambda windows: (windows[:, :-1], windows[:, -1]))
    size = model.parameters.size
    model.parameters.bind(np.zeros(size), np.zeros(size))
    model.parameters.initialize(3)
    return model


def branching_gradient(comm, bucket_bytes):
    model = branching(comm.rank)
    buckets = Buckets(model.parameters, comm, bucket_bytes, algorithm="ring")
    _, context = model.forward(WINDOWS[comm.rank :: comm.size])
    model.backward(context, 1.0, buckets)
    buckets.finish()
    return model.parameters.gradient


@pytest.mark.parametrize("bucket_bytes", [1, 10_000, 1 << 30])
def test_a_parameter_that_one_rank_uses_and_one_that_none_does(spmd, bucket_bytes):
    parts = []
    for rank in range(3):
        alone = branching(rank)
        alone.backward(alone.forward(WINDOWS[rank::3])[1], 1.0)
        parts.append(alone.parameters.gradient)
    spans = alone.parameters.spans
    for gradient in spmd(branching_gradient, 3, bucket_bytes):
        np.testing.assert_allclose(gradient, sum(parts), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(gradient[spans["once.w"]], parts[0][spans["once.w"]])
        assert np.abs(gradient[spans["once.w"]]).max() > 0
        np.testing.assert_array_equal(gradient[spans["never.w"]], 0)


def hollow_step(comm, bucket_bytes):
    """A step of a GPT that nobody could hold here, without numbers."""
    model = gpt(Shape(layers=12, width=1024, heads=16, context=1024))
    size = model.parameters.size
    model.parameters.bind(phantom(size, np.float16), phantom(size, np.float16))
    buckets = Buckets(model.parameters, comm, bucket_bytes, algorithm="ring")
    with comm.span("forward"):
        _, context = model.forward(phantom((4, 1025), np.uint8))
    with comm.span("backward"):
        model.backward(context, 1.0, buckets)
    with comm.span("synchronize gradients"):
        buckets.finish()
    return 2 * size


def test_smaller_buckets_hide_more():
    shares = {}
    for bucket_bytes in (1 << 40, 100 << 20, 25 << 20, 5 << 20):
        sizes, spans, _ = run_virtual(hollow_step, 4, preset("v100"), (bucket_bytes,))
        shares[bucket_bytes] = [hidden_share(spans, rank) for rank in range(4)]
        sent = sum(span.bytes for span in spans if span.name == "send" and span.rank == 0)
        assert sent == pytest.approx(2 * sizes[0] * 3 / 4, rel=1e-4)
    one, large, middle, small = (max(found) for found in shares.values())
    assert one == 0
    assert 0.5 < large < middle < small < 1
    assert small > 0.9
    assert all(max(found) - min(found) < 0.01 for found in shares.values())


def test_a_bucket_of_no_bytes_is_refused(spmd):
    """It would send one empty bucket after the other."""

    def program(comm):
        with pytest.raises(ArgumentError, match="bucket_bytes is 0; needs at least 1"):
            Buckets(Parameters([Parameter("w", (4, 3))]), comm, 0)

    spmd(program, 2)
