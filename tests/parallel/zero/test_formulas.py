"""The paper's figures, and this implementation's own against what a ledger counts."""

import numpy as np
import pytest
from zero_training import BUCKET_BYTES, MODELS, adamw, trained

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.comm.peers import HEAD_BYTES, ROOM_BYTES
from simdist.errors import ArgumentError
from simdist.nn import Shape, gpt
from simdist.parallel import DataParallel
from simdist.parallel.zero import Offload, ZeRO
from simdist.parallel.zero.formulas import (
    activation_bytes,
    kept,
    offloaded_bytes,
    paper_bytes,
    paper_elements,
    paper_kept,
    plus_plus_bytes,
    plus_plus_elements,
)

# Table 1 of arXiv 1910.02054, 7.5 billion weights, GB.
TABLE_1 = {
    1: (120, 120, 120),
    4: (52.5, 41.3, 30),
    16: (35.6, 21.6, 7.5),
    64: (31.4, 16.6, 1.88),
    256: (30.4, 15.4, 0.47),
    1024: (30.1, 15.1, 0.12),
}

# arXiv 2306.10209: what ZeRO-3 and ZeRO++ send between nodes, in units of the model.
PLUS_PLUS = [({"weight_bits": 16, "gradient_bits": 16, "node_copies": False}, 3.0), ({}, 0.75)]

SHAPE = Shape(layers=2, width=32, heads=2, context=8)


@pytest.mark.parametrize("ranks", TABLE_1)
def test_table_1(ranks):
    for zero_stage, gigabytes in enumerate(TABLE_1[ranks], 1):
        half_a_digit = 0.051 if gigabytes > 2 else 0.0051  # 41.25 and 21.625 are printed rounded
        assert paper_bytes(7.5e9, ranks, zero_stage) / 1e9 == pytest.approx(gigabytes, abs=half_a_digit)


@pytest.mark.parametrize(("how", "models"), PLUS_PLUS)
def test_zero_plus_plus(how, models):
    assert plus_plus_elements(7e9, **how) == models * 7e9


def test_the_second_copy_of_zero_plus_plus():
    """On 1024 GPUs, 16 a node: nine times stage 3, and 114 times less than data parallelism. On one node, 2Ψ/P more."""
    found = plus_plus_bytes(1.0, 1024, 16)
    assert found / paper_bytes(1.0, 1024, 3) == pytest.approx(9, rel=1e-12)
    assert round(paper_bytes(1.0, 1024, 0) / found) == 114
    sizes = {"optimizer_bytes": 8, "weight_bytes": 4, "gradient_bytes": 4}
    assert plus_plus_bytes(80, 8, 8, **sizes) == paper_bytes(80, 8, 3, **sizes) + 4 * 80 / 8
    with pytest.raises(ArgumentError, match="ranks_per_node is 3, and ranks 8; needs a divisor"):
        plus_plus_bytes(1.0, 8, 3)
    with pytest.raises(ArgumentError, match="ranks_per_node is 0"):
        plus_plus_bytes(1.0, 8, 0)


@pytest.mark.parametrize(
    ("ranks", "gigabytes"),
    [(4, ((896, 704, 512), (7000, 5500, 4000))), (64, ((536, 284, 32), (4187, 2218, 250)))],
)
def test_table_1_for_128_billion_and_a_trillion(ranks, gigabytes):
    found = [[paper_bytes(weights, ranks, stage) / 1e9 for stage in (1, 2, 3)] for weights in (128e9, 1e12)]
    for ours, printed in zip(found, gigabytes, strict=True):
        assert ours == pytest.approx(printed, abs=0.76)  # 4187.5 and 2218.75 are cut off


def test_the_figure_of_the_paper():
    assert [paper_bytes(7.5e9, 64, stage) / 1e9 for stage in range(4)] == pytest.approx(
        [120, 31.4, 16.6, 1.88], abs=0.05
    )


@pytest.mark.parametrize(
    ("billions", "gigabytes", "sizes"),
    [
        *((b, gb, {}) for b, gb in ((1, 16), (7, 112), (70, 1120), (405, 6480), (1.5, 24))),
        *((b, gb, {"gradient_bytes": 6}) for b, gb in ((1, 20), (7, 140), (70, 1400), (405, 8100))),
        (65, 780, {"optimizer_bytes": 8}),
        (1, 6, {"weight_bytes": 0, "gradient_bytes": 1, "optimizer_bytes": 2 + 1 + 2}),
        (7, 7 * 10, {"optimizer_bytes": 6}),
    ],
)
def test_one_device_that_has_all(billions, gigabytes, sizes):
    """The Ultra-Scale Playbook, gradients also summed in 4 bytes; GPT-2 in ZeRO's paper; 65B in QLoRA's,
    without masters; FP8-LM (arXiv 2310.18313), whose masters of 16 bits serve as weights; 8-bit Adam.
    """
    assert paper_bytes(billions * 1e9, 1, 0, **sizes) / 1e9 == pytest.approx(gigabytes)


@pytest.mark.parametrize(("weight_bytes", "gradient_bytes", "optimizer_bytes"), [(2, 2, 16), (2, 4, 12), (4, 4, 8)])
@pytest.mark.parametrize("d", [1, 2, 8])
def test_the_distributed_optimizer_of_megatron_core(weight_bytes, gradient_bytes, optimizer_bytes, d):
    """Its guide's table, bytes a weight: 4 + 16/d, 6 + 12/d and 8 + 8/d; stage 1 of ZeRO."""
    sizes = {"optimizer_bytes": optimizer_bytes, "weight_bytes": weight_bytes, "gradient_bytes": gradient_bytes}
    assert paper_bytes(1, d, 1, **sizes) == weight_bytes + gradient_bytes + optimizer_bytes / d


def test_the_largest_models_of_table_2():
    found = [32e9 / paper_bytes(1, 64, stage) / 1e9 for stage in range(4)]
    assert found == pytest.approx([2, 7.6, 14.4, 128], abs=0.05)


def test_offload_keeps_2_of_16_bytes_and_moves_4():
    assert offloaded_bytes(10, 1) == (20, 140, 40)
    with pytest.raises(ArgumentError, match="ranks is 0"):
        offloaded_bytes(10, 0)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_offload_moves_what_the_record_shows(ranks):
    def program(comm):
        offload = Offload(("optimizer", "gradients"))
        method = ZeRO(gpt(SHAPE), comm, adamw("bf16"), 1, 2, offload=offload, memory=phantom)
        method.backward(phantom((1, 9), np.uint8), 1.0)
        method.step(0.001)
        return method.model.parameters.size

    run = sd.run(program, ranks)
    moved = sum(span.bytes for span in run.trace.spans if span.name.startswith("offload"))
    assert moved == ranks * offloaded_bytes(run.results[0], ranks).moved


def test_elements():
    assert [paper_elements(100, 4, stage) for stage in range(4)] == [150, 150, 150, 225]
    assert paper_elements(100, 1, 3) == 0


def test_elements_of_hybrid_sharding():
    """Shards of one are copies of all, and as many shards as ranks are ZeRO; what lies between them is the sum:
    inside of a node as on a node alone, and between nodes an all-reduce of a shard."""
    weights, ranks, node = 1e9, 512, 8
    assert paper_elements(weights, ranks, 3, 1) == paper_elements(weights, ranks, 0) == 2e9 * 511 / 512
    assert paper_elements(weights, ranks, 3, ranks) == paper_elements(weights, ranks, 3) == 3e9 * 511 / 512
    between = paper_elements(weights, ranks, 3, node) - paper_elements(weights, node, 3)
    assert between == pytest.approx(2 * (weights / node) * (ranks / node - 1) / (ranks / node), rel=1e-12)


@pytest.mark.parametrize("arguments", [(1.0, 4, 4), (1.0, 4, -1), (1.0, 0, 1)])
def test_stages_and_ranks_that_there_are_not(arguments):
    with pytest.raises(
        ArgumentError, match=r"zero_stage is .*; needs 0, 1, 2 or 3|(zero_stage|ranks) is .*; needs at least"
    ):
        paper_bytes(*arguments)
    with pytest.raises(ArgumentError, match="micro_batches is 0"):
        paper_elements(1.0, 4, 3, micro_batches=0)


CATEGORIES = ("parameters", "gradients", "optimizer state", "communication")
ROOMS_BYTES = HEAD_BYTES + 2 * ROOM_BYTES


def measured(comm, model, recipe, zero_stage):
    ledger = Ledger()

    def now():
        found = [ledger.now.of(category) for category in CATEGORIES]
        return [*found[:3], found[3] % ROOMS_BYTES]  # where ranks meet in memory they share, rooms stay, of 2 MiB

    with recorded(ledger):
        if zero_stage:
            method = ZeRO(MODELS[model](), comm, recipe, 1, zero_stage, bucket_bytes=BUCKET_BYTES)
        else:
            method = DataParallel(MODELS[model](), comm, recipe, 1)
        found = now()
        trained(method, model, 1)
        assert now() == found  # nothing is left of a step
    return found


@pytest.mark.slow(but=5)
@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["float64", "bf16"])
@pytest.mark.parametrize("rule", ["sgd", "adamw", "adamw8bit", "lars", "lamb", "muon"])
def test_a_ledger_counts_what_is_predicted(zero_stage, kind, rule):
    recipe = adamw(kind, rule)
    for model in ("mlp", "gpt"):
        for rank, found in enumerate(sd.run(measured, 3, args=(model, recipe, zero_stage)).results):
            options = {"rank": rank, "bucket_bytes": BUCKET_BYTES}
            assert found == list(kept(MODELS[model](), recipe, 3, zero_stage, **options))


SHAPE = Shape(layers=37, width=4096, heads=32, context=8)  # 7.45 billion weights


def peak(comm, zero_stage):
    """Bytes a weight that a rank keeps, of a model that is not there: between steps, and at most in a step."""
    ledger = Ledger(comm.clock)
    with recorded(ledger):
        method = ZeRO(gpt(SHAPE), comm, adamw("bf16"), 1, zero_stage, algorithm="ring", memory=phantom)
        ledger.begin()
        if comm.size <= 4:  # it takes its time
            method.backward(phantom((1, 9), np.uint8), 1.0)
            method.step(0.001)
    return sum(ledger.peaks[category] for category in CATEGORIES[:3]) / method.model.parameters.size


LARGE = pytest.mark.slow  # half a minute


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("ranks", [1, 4, 16, 64, *(pytest.param(n, marks=LARGE) for n in (256, 1024))])
def test_table_1_is_what_a_ledger_counts(ranks):
    for zero_stage, gigabytes in enumerate(TABLE_1[ranks], 1):
        half_a_digit = 0.051 if gigabytes > 2 else 0.0051
        for found in sd.run(peak, ranks, args=(zero_stage,)).results:
            assert found * 7.5 == pytest.approx(gigabytes, abs=half_a_digit)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_in_mixed_precision_it_is_the_papers_besides_the_slots(zero_stage, ranks):
    model = MODELS["gpt"]()  # all of whose sizes eight divides
    found = kept(model, adamw("bf16"), ranks, zero_stage)
    assert found.total - found.communication == paper_bytes(model.parameters.size, ranks, zero_stage)
    by_category = paper_kept(adamw("bf16"), model.parameters.size, ranks, zero_stage)
    assert list(by_category.values()) == [found.parameters, found.gradients, found.optimizer_state]


def test_slots_take_two_layers_and_what_is_tied():
    model, recipe = gpt(Shape(layers=24, width=64, heads=4, context=32)), adamw("bf16")
    embedding, block = 64 * (256 + 32), 12 * 64**2 + 13 * 64
    assert kept(model, recipe, 64, 3).communication == 2 * 2 * (embedding + 2 * block)


def test_activations_of_gpt_2_in_the_paper():
    assert round(activation_bytes(48, 1600, 1024, 32) / 1e9) == 60
