"""Buckets: the same sums as one all-reduce, sent off in reverse order and hidden behind backward."""

import numpy as np
import pytest

from simdist.cluster import Cluster, Device, Link
from simdist.comm.virtual.world import run_virtual
from simdist.nn import Parameter, Parameters, mlp
from simdist.parallel.buckets import Buckets

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


def test_each_rank_sends_what_one_all_reduce_would_send():
    def program(comm):
        model = model_on()
        buckets = Buckets(model.parameters, comm, 4096, algorithm="ring")
        _, context = model.forward(WINDOWS)
        model.backward(context, 1.0, buckets)
        buckets.finish()
        return model.parameters.size

    sizes, spans, _ = run_virtual(program, 2, SLOW)
    sent = sum(s.bytes for s in spans if s.name == "send" and s.rank == 0)
    assert sent == sizes[0] * 8  # 2n(p-1)/p with p = 2


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
