"""Hybrid sharding trains as data parallelism does, and sends between the copies of a shard no more than shards."""

from itertools import product

import numpy as np
import pytest
from harness import virtual
from zero_training import BUCKET_BYTES, MODELS, adamw, batches, serial, sharded, trained, whole

from simdist.errors import ArgumentError, CollectiveMismatch
from simdist.parallel import DataParallel, Offload
from simdist.parallel.zero import ZeRO
from simdist.parallel.zero.formulas import paper_elements
from simdist.parallel.zero.sharing import Sharing

STAGES = [1, 2, 3]


def in_shards(comm, model, recipe, zero_stage, shards, steps):
    return sharded(comm, model, recipe, zero_stage, steps, shards=shards)


def placed(comm, shards):
    sharing = Sharing.of(comm, shards)
    return list(sharing.holders.ranks), sharing.copies and list(sharing.copies.ranks)


def test_neighbours_hold_a_model_between_them():
    assert virtual(placed, 6, 2)[3] == ([2, 3], [1, 3, 5])
    assert virtual(placed, 6, 0)[3] == virtual(placed, 6, 6)[3] == (list(range(6)), None)
    assert virtual(placed, 3, 1)[1] == ([1], [0, 1, 2])


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(
    ("model", "p", "shards"), [*product(["gpt"], [2, 4, 8], [1, 2]), ("mlp", 6, 3), ("untied", 6, 2), ("gpt", 8, 4)]
)
@pytest.mark.parametrize("zero_stage", STAGES)
def test_ranks_train_as_one(zero_stage, model, p, shards):
    expected = virtual(serial, 1, model, adamw(), 20)[0]
    for weights in virtual(in_shards, p, model, adamw(), zero_stage, shards, 20):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("zero_stage", STAGES)
def test_real_ranks_train_as_one(spmd, zero_stage):
    expected = virtual(serial, 1, "gpt", adamw(), 20)[0]
    for weights in spmd(in_shards, 4, "gpt", adamw(), zero_stage, 2, 20):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


@pytest.mark.slow(but=7)
@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw", "adamw8bit", "lars", "lamb", "muon"])
@pytest.mark.parametrize("kind", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("zero_stage", STAGES)
def test_copies_stay_the_same_bits(zero_stage, kind, rule):
    recipe = adamw(kind, rule, max_norm=0.5)
    first, *others = virtual(in_shards, 6, "gpt", recipe, zero_stage, 2, 4)
    assert np.isfinite(first).all()
    for weights in others:
        np.testing.assert_array_equal(weights, first)


def norms(comm, zero_stage, rule):
    """Of clipped gradients, and of the matrices that LARS and LAMB scale by: after that the weights differ."""
    recipe = adamw("float64", rule, max_norm=0.5)
    method = ZeRO(MODELS["gpt"](), comm, recipe, 1, zero_stage, bucket_bytes=BUCKET_BYTES, shards=2)
    other = DataParallel(MODELS["gpt"](), comm, recipe, 1)
    found = []
    for step in range(3):
        trained(method, "gpt", 1, step)
        trained(other, "gpt", 1, step)
        found.append((method.update.norm, other.update.norm))
    return found, whole(method), whole(other)


@pytest.mark.parametrize("rule", ["adamw", "lars", "lamb", "muon"])
@pytest.mark.parametrize("zero_stage", STAGES)
def test_a_norm_counts_each_weight_once(zero_stage, rule):
    for found, weights, expected in virtual(norms, 4, zero_stage, rule):
        assert all(norm == pytest.approx(other, rel=1e-12) and norm > 0.5 for norm, other in found)
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)


# -- overflow, offload -------------------------------------------------------------------


def overflowing(comm, zero_stage):
    method = ZeRO(MODELS["mlp"](), comm, adamw("fp16"), 1, zero_stage, bucket_bytes=BUCKET_BYTES, shards=2)
    trained(method, "mlp", 2)
    before, scale = whole(method), method.update.scale
    windows = batches("mlp").part(2, comm.rank, comm.size).windows
    method.backward(windows, 1e6 if comm.rank == comm.size - 1 else 0.1)
    return method.step(0.01), before, whole(method), method.update.scale / scale


@pytest.mark.parametrize("zero_stage", STAGES)
def test_an_overflow_on_one_rank_skips_the_step_on_all(zero_stage):
    for changed, before, after, factor in virtual(overflowing, 4, zero_stage):
        assert not changed and factor == 0.5
        np.testing.assert_array_equal(after, before)


def elsewhere(comm, zero_stage, what, where, folder):
    offload = Offload(what, where, folder) if what else None
    method = ZeRO(
        MODELS["gpt"](), comm, adamw("bf16"), 1, zero_stage, bucket_bytes=BUCKET_BYTES, offload=offload, shards=2
    )
    trained(method, "gpt", 3, micro_batches=2)
    return whole(method)


@pytest.mark.parametrize("where", ["host", "disk"])
@pytest.mark.parametrize(("zero_stage", "what"), [(2, ["gradients"]), (3, ["optimizer", "gradients", "parameters"])])
def test_what_is_offloaded_gives_the_same_bits(tmp_path, zero_stage, what, where):
    expected = virtual(elsewhere, 4, zero_stage, [], where, tmp_path)
    for weights in virtual(elsewhere, 4, zero_stage, what, where, tmp_path):
        np.testing.assert_array_equal(weights, expected[0])


def ways(comm, micro_batches):
    """The bytes of gradients that a step moves from the device and to it, and of this rank's part."""
    offload, options = Offload(["gradients"]), {"bucket_bytes": BUCKET_BYTES, "shards": 2}
    method = ZeRO(MODELS["gpt"](), comm, adamw("bf16"), 1, 2, offload=offload, **options)
    first = len(comm.recorder.rows)
    method.backward(batches("gpt").part(0, comm.rank, comm.size).windows, 1.0, last=micro_batches == 1)
    for left in reversed(range(micro_batches - 1)):
        method.backward(batches("gpt").part(0, comm.rank, comm.size).windows, 1.0, last=left == 0)
    moves = [s for s in comm.recorder.spans()[first:] if s.name.startswith("offload gradients")]
    down, up = (
        sum(s.bytes for s in moves if s.name.endswith(f" {a} to {b}"))
        for a, b in (("device", "host"), ("host", "device"))
    )
    return down, up, 2 * method.units.holding.size


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_offloaded_gradients_come_up_with_the_last_micro_batch(micro_batches):
    for down, up, own in virtual(ways, 4, micro_batches):
        assert (down, up) == (micro_batches * own, own)


# -- what travels ---------------------------------------------------------------------------------------


def sent_bytes(comm, model, zero_stage, shards, micro_batches):
    """By this rank in one step, to neighbours and to others."""
    options = {"bucket_bytes": BUCKET_BYTES, "algorithm": "ring", "shards": shards}
    method = ZeRO(MODELS[model](), comm, adamw(), 1, zero_stage, **options)
    comm.barrier()
    first = len(comm.recorder.rows)
    trained(method, model, 1, micro_batches=micro_batches)
    sends = [s for s in comm.recorder.spans()[first:] if s.name == "send"]
    near = [s.peer // shards == comm.rank // shards for s in sends]
    return [sum(s.bytes for s, is_near in zip(sends, near, strict=True) if is_near == which) for which in (True, False)]


@pytest.mark.parametrize(("p", "shards"), [(2, 1), (4, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("zero_stage", STAGES)
def test_a_step_sends_what_the_papers_say(zero_stage, model, p, shards):
    size = 8 * MODELS[model]().parameters.size
    within = paper_elements(size, shards, zero_stage)
    for near, far in virtual(sent_bytes, p, model, zero_stage, shards, 1):
        assert (near, far) == (within, paper_elements(size, p, zero_stage, shards) - within)


@pytest.mark.parametrize("zero_stage", STAGES)
def test_copies_add_up_once_a_step(zero_stage):
    size = 8 * MODELS["gpt"]().parameters.size
    within = paper_elements(size, 2, zero_stage, micro_batches=3)
    for near, far in virtual(sent_bytes, 4, "gpt", zero_stage, 2, 3):
        assert (near, far) == (within, paper_elements(size, 4, zero_stage, 2, 3) - within) == (within, size / 2)


# -- what does not go -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [-1, 3, 8])
def test_shards_that_ranks_are_no_multiple_of(spmd, shards):
    with pytest.raises(ArgumentError, match=f"shards is {shards}(, and dp 4; needs a divisor|; needs at least 0)"):
        spmd(in_shards, 4, "mlp", adamw(), 1, shards, 1)


def test_all_ranks_must_mean_the_same(spmd):
    with pytest.raises(CollectiveMismatch, match="from seed 1 in 2 shards"):
        spmd(lambda comm: in_shards(comm, "mlp", adamw(), 3, 1 + comm.rank, 1), 2)
