"""ZeRO trains as data parallelism does: as one rank up to rounding, as so many ranks to the bit."""

import gc
import weakref
from itertools import product

import numpy as np
import pytest
from harness import virtual
from zero_training import BUCKET_BYTES, MODELS, adamw, batches, serial, sharded, trained, whole

from simdist.arrays import moved
from simdist.comm.device import use_device
from simdist.errors import ArgumentError, CollectiveMismatch
from simdist.parallel import DataParallel
from simdist.parallel.zero import FSDP, ZeRO

STAGES = [1, 2, 3]


def as_units(zero_stage):
    """How data parallelism has to cut gradients so that its buckets are the stage's units."""
    return {"algorithm": "ring", "bucket_bytes": 1 if zero_stage == 3 else BUCKET_BYTES}


def replicated_gpt(comm, recipe, zero_stage):
    return serial(comm, "gpt", recipe, 4, **as_units(zero_stage))


def sharded_gpt(comm, recipe, zero_stage):
    return sharded(comm, "gpt", recipe, zero_stage, 4, algorithm="ring")


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(("model", "p"), [*product(["mlp", "gpt"], [1, 2, 3, 4, 8]), ("untied", 3)])
@pytest.mark.parametrize("zero_stage", STAGES)
def test_ranks_train_as_one(zero_stage, model, p):
    expected = virtual(serial, 1, model, adamw(), 20)[0]
    for weights in virtual(sharded, p, model, adamw(), zero_stage, 20):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("zero_stage", STAGES)
def test_real_ranks_train_as_one(spmd, p, zero_stage):
    expected = virtual(serial, 1, "gpt", adamw(), 20)[0]
    for weights in spmd(sharded, p, "gpt", adamw(), zero_stage, 20):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("zero_stage", STAGES)
def test_real_ranks_get_the_bits_of_virtual_ones(spmd, zero_stage):
    recipe = adamw("bf16", max_norm=0.5)
    expected = virtual(replicated_gpt, 3, recipe, zero_stage)[0]
    for weights in spmd(sharded_gpt, 3, recipe, zero_stage):
        np.testing.assert_array_equal(weights, expected)


def on_device(comm):
    use_device(comm, "cuda")
    return sharded(comm, "mlp", adamw(), 1, 3)


def test_chunks_are_moved_over_themselves_on_a_device(device):
    """The first unit of this model is smaller than those after it."""
    del device
    expected = virtual(serial, 1, "mlp", adamw(), 3)[0]
    for weights in virtual(on_device, 2):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.slow(but=8)
@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("zero_stage", STAGES)
@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw", "lars", "lamb", "muon"])
def test_every_rule_gives_the_bits_of_data_parallelism(p, zero_stage, rule):
    recipe = adamw("float32", rule)
    expected = virtual(replicated_gpt, p, recipe, zero_stage)[0]
    for weights in virtual(sharded_gpt, p, recipe, zero_stage):
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("zero_stage", STAGES)
@pytest.mark.parametrize("kind", ["float64", "float32", "bf16", "fp16"])
def test_every_precision_gives_the_bits_of_data_parallelism(zero_stage, kind):
    recipe = adamw(kind, max_norm=0.5)
    expected = virtual(replicated_gpt, 4, recipe, zero_stage)[0]
    for weights in virtual(sharded_gpt, 4, recipe, zero_stage):
        np.testing.assert_array_equal(weights, expected)


def norms(comm, zero_stage):
    recipe = adamw("float32", max_norm=0.5)
    method = ZeRO(MODELS["gpt"](), comm, recipe, 1, zero_stage, algorithm="ring", bucket_bytes=BUCKET_BYTES)
    other = DataParallel(MODELS["gpt"](), comm, recipe, 1, **as_units(zero_stage))
    found = []
    for step in range(3):
        trained(method, "gpt", 1, step)
        trained(other, "gpt", 1, step)
        found.append((method.update.norm, other.update.norm))
    return found


@pytest.mark.parametrize("zero_stage", STAGES)
def test_gradients_are_clipped_by_the_same_norm(zero_stage):
    for found in virtual(norms, 3, zero_stage):
        assert all(norm == other > 0.5 for norm, other in found)


@pytest.mark.parametrize("zero_stage", [1, 2])
@pytest.mark.parametrize("p", [1, 3, 4])
def test_8_bit_blocks_of_one_unit_are_those_of_data_parallelism(p, zero_stage):
    recipe = adamw("float64", "adamw8bit")  # a rounding error could tip a code over, were it any larger
    expected = virtual(serial, 1, "mlp", recipe, 4)[0]
    for weights in virtual(in_one_bucket, p, recipe, zero_stage):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


def in_one_bucket(comm, recipe, zero_stage):
    return sharded(comm, "mlp", recipe, zero_stage, 4, bucket_bytes=1 << 30)


@pytest.mark.parametrize("p", [2, 3, 4])
def test_8_bit_blocks_of_a_layer_are_the_same_on_any_number_of_ranks(p):
    recipe = adamw("float64", "adamw8bit")
    expected = virtual(sharded, 1, "gpt", recipe, 3, 4)[0]
    for weights in virtual(sharded, p, "gpt", recipe, 3, 4):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


# -- micro-batches, overflow --------------------------------------------------------------------------


def accumulated(comm, zero_stage, size, shards):
    method = ZeRO(MODELS["gpt"](), comm, adamw(), 1, zero_stage, bucket_bytes=BUCKET_BYTES, shards=shards)
    trained(method, "gpt", 6, size=size, micro_batches=3)
    return whole(method)


def accumulated_by_one(comm, size):
    method = DataParallel(MODELS["gpt"](), comm, adamw(), 1)
    trained(method, "gpt", 6, size=size)
    return whole(method)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("zero_stage", STAGES)
@pytest.mark.parametrize("size", [10, 2])  # with 2 some ranks have nothing to do
@pytest.mark.parametrize("shards", [0, 2])
def test_micro_batches_add_up(spmd, zero_stage, size, shards):
    expected = virtual(accumulated_by_one, 1, size)[0]
    for weights in spmd(accumulated, 4, zero_stage, size, shards):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


def overflowing(comm, zero_stage):
    method = ZeRO(MODELS["mlp"](), comm, adamw("fp16"), 1, zero_stage, bucket_bytes=BUCKET_BYTES)
    trained(method, "mlp", 2)
    before, scale = whole(method), method.update.scale
    windows = batches("mlp").part(2, comm.rank, comm.size).windows
    method.backward(windows, 1e6 if comm.rank == comm.size - 1 else 0.1)
    changed = method.step(0.01)
    after, halved = whole(method), method.update.scale
    trained(method, "mlp", 1, first=2)
    return changed, before, after, whole(method), halved / scale


@pytest.mark.parametrize("zero_stage", STAGES)
def test_an_overflow_on_one_rank_skips_the_step_on_all(spmd, zero_stage):
    for changed, before, after, later, factor in spmd(overflowing, 3, zero_stage):
        assert not changed and factor == 0.5
        np.testing.assert_array_equal(after, before)
        assert np.isfinite(later).all() and (later != before).any()


# -- what else a method does --------------------------------------------------------------------------


def judged(comm, zero_stage):
    method = ZeRO(MODELS["gpt"](), comm, adamw(), 1, zero_stage, bucket_bytes=BUCKET_BYTES)
    trained(method, "gpt", 2)
    windows = batches("gpt").part(0, comm.rank, comm.size).windows
    return method.loss(windows), method.logits(windows[:, 1:])


@pytest.mark.parametrize("zero_stage", STAGES)
def test_losses_and_logits_are_those_of_one_rank(zero_stage):
    loss, logits = virtual(judged, 1, 1)[0]
    found = virtual(judged, 3, zero_stage)
    assert sum(part for part, _ in found) == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(np.concatenate([part for _, part in found]), logits, rtol=0, atol=1e-12)


def begun(comm, zero_stage, kind, rule):
    """Three steps: all vectors, whole, and the numbers; and the weights three steps later."""
    method = ZeRO(MODELS["gpt"](), comm, adamw(kind, rule), 1, zero_stage, bucket_bytes=BUCKET_BYTES, algorithm="ring")
    trained(method, "gpt", 3)
    vectors, numbers = {name: whole(method, name) for name in method.vectors()}, method.numbers()
    trained(method, "gpt", 3, first=3)
    return vectors, numbers, whole(method)


def resumed(comm, zero_stage, kind, rule, vectors, numbers):
    """The other three, by a method that began elsewhere."""
    recipe, cut = adamw(kind, rule), {"algorithm": "ring", "bucket_bytes": BUCKET_BYTES}
    if zero_stage:
        method = ZeRO(MODELS["gpt"](), comm, recipe, 2, zero_stage, **cut)
    else:
        method = DataParallel(MODELS["gpt"](), comm, recipe, 2, **cut)
    own = method.vectors()
    for name, shards in own.items():
        for start, data in shards:
            data[...] = moved(vectors[name][start : start + len(data)], data)
    method.restore(own, numbers)
    trained(method, "gpt", 3, first=3)
    return whole(method)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("before", STAGES)
@pytest.mark.parametrize("after", [0, *STAGES])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_training_goes_on_in_another_stage_on_other_ranks(before, after, p):
    vectors, numbers, expected = virtual(begun, 3, before, "float64", "adamw")[0]
    for weights in virtual(resumed, p, after, "float64", "adamw", vectors, numbers):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "rule"), [("fp16", "lamb"), ("bf16", "adamw"), ("float32", "sgd")])
def test_training_goes_on_to_the_bit_on_as_many_ranks(spmd, kind, rule):
    vectors, numbers, expected = virtual(begun, 3, 1, kind, rule)[0]
    for after in (0, 1, 2):  # whose units are the same
        for weights in spmd(resumed, 3, after, kind, rule, vectors, numbers):
            np.testing.assert_array_equal(weights, expected)


def fsdp(comm):
    method = FSDP(MODELS["mlp"](), comm, adamw(), 1)
    trained(method, "mlp", 2)
    return method.zero_stage, whole(method)


def test_fsdp_is_stage_3():
    expected = virtual(sharded, 3, "mlp", adamw(), 3, 2)[0]
    for zero_stage, weights in virtual(fsdp, 3):
        assert zero_stage == 3
        np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize("options", [{"zero_stage": 0}, {"zero_stage": 4}, {"zero_stage": 1, "bucket_bytes": 0}])
def test_stages_and_buckets_that_there_are_not(spmd, options):
    with pytest.raises(ArgumentError, match=r"zero_stage is \d; needs 1, 2 or 3|bucket_bytes is 0; needs at least 1"):
        spmd(lambda comm: ZeRO(MODELS["mlp"](), comm, adamw(), 1, **options).zero_stage, 2)


def test_all_ranks_must_mean_the_same(spmd):
    with pytest.raises(CollectiveMismatch, match="stage 3 from seed 1"):
        spmd(lambda comm: FSDP(MODELS["mlp"](), comm, adamw(), comm.rank).zero_stage, 2)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_what_is_no_longer_used_is_free_at_once(zero_stage):
    def program(comm):
        method = ZeRO(MODELS["gpt"](), comm, adamw(), 1, zero_stage, bucket_bytes=BUCKET_BYTES)
        trained(method, "gpt", 1)
        gone = weakref.ref(method._gradients)
        del method
        return gone() is None

    gc.disable()
    try:
        assert virtual(program, 2) == [True, True]
    finally:
        gc.enable()
