"""Weights that are there only while a layer needs them: nobody reads them later, and they come beneath computing."""

import numpy as np
import pytest
from harness import virtual
from zero_training import MODELS, Poisoned, adamw, sharded, trained, whole

import simdist as sd
from simdist.arrays import phantom
from simdist.cluster import preset
from simdist.errors import ArrayError
from simdist.nn import Shape, gpt
from simdist.parallel.zero import FSDP, ZeRO
from simdist.trace.statistics import hidden_share

H100 = preset("h100")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prefetch", [True, False])
def test_nobody_reads_weights_that_were_released(monkeypatch, model, prefetch):
    expected = virtual(sharded, 3, model, adamw(), 3, 3)[0]
    monkeypatch.setattr("simdist.parallel.zero.zero.GatheredWeights", Poisoned)
    for weights in virtual(poisoned, 3, model, prefetch):
        np.testing.assert_array_equal(weights, expected)


def poisoned(comm, model, prefetch):
    method = FSDP(MODELS[model](), comm, adamw(), 1, prefetch=prefetch)
    assert type(method._weights) is Poisoned
    trained(method, model, 3)
    return whole(method)


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_pass_that_failed_leaves_no_old_weights(prefetch):
    def program(comm, fails):
        method, other = (FSDP(MODELS["gpt"](), comm, adamw(), seed, prefetch=prefetch) for seed in (1, 2))
        if fails:
            with pytest.raises(ArrayError, match="a text of 8 tokens"):
                method.backward(np.zeros((1, 9), np.uint8), 1.0)
        method.restore(other.vectors(), other.numbers())
        return method.loss(np.full((2, 7), 97, np.uint8))

    assert virtual(program, 2, True) == virtual(program, 2, False)


# -- on a modelled cluster, of a model that is not there ------------------------------------------------


def step(comm, zero_stage, options):
    """Of 340 million weights in 16 bits; returns when it began and ended."""
    model = gpt(Shape(layers=12, width=1536, heads=12, context=1024))
    recipe = adamw("bf16")
    method = ZeRO(model, comm, recipe, 1, zero_stage, memory=phantom, bucket_bytes=25 << 20, **options)
    comm.barrier()
    start_s = comm.clock()
    method.backward(phantom((8, 1025), np.uint8), 1.0)
    method.step(0.001)
    return start_s, comm.clock()


def run(zero_stage, **options):
    """The seconds of a step on eight H100, and its record."""
    found = sd.run(step, 8, cluster=H100, args=(zero_stage, options))
    return max(end_s - start_s for start_s, end_s in found.results), found.trace


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_most_of_the_second_stream_is_hidden(zero_stage):
    trace = run(zero_stage)[1]
    for rank in range(8):
        assert hidden_share(trace, rank) > 0.75


def test_weights_gathered_ahead_are_hidden_and_others_are_not():
    ahead_s, ahead = run(3)
    late_s, late = run(3, prefetch=False)
    assert hidden_share(late, 0) < 0.1
    gathers = [s for s in ahead.spans if s.rank == 0 and s.name.startswith("all_gather")]
    assert {s.stream for s in gathers} == {"communication"}
    # The time saved is that of the gathers, but for the first in forward and in backward.
    assert late_s - ahead_s > 0.7 * sum(s.seconds for s in gathers)


def test_a_layer_is_gathered_while_the_one_before_it_is_at_work():
    _, trace = run(3)
    spans = [s for s in trace.spans if s.rank == 0]
    forward = next(s for s in spans if s.name == "forward")
    gathers = [s for s in spans if s.name.startswith("all_gather") and s.start_s < forward.end_s]
    waits = [s for s in spans if s.name.startswith("wait") and forward.start_s <= s.start_s < forward.end_s]
    assert len(gathers) == 12 + 2 + 1  # embedding, blocks, norm; and backward's first, the norm again
    assert len(waits) == 2  # for the embedding, and for the first block, before which it has little to do
