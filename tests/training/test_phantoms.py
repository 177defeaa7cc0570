"""A step of a run without numbers costs to the last byte and tick what it costs with them."""

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.errors import ArgumentError
from simdist.training import Config, Trainer
from simdist.training.text import Text

CLUSTER = preset("h100").with_(devices_per_node=2)
SMALL = {"model": "gpt", "layers": 4, "width": 64, "heads": 4, "context_bytes": 32, "global_batch_size": 16}
ONE_STEP = {"steps": 1, "validation_windows": 0, "sample_bytes": 0}


def cost(comm, config, text):
    trainer = Trainer(comm, config, text=text)
    (line,) = trainer.run()
    spans = comm.recorder.spans()
    return trainer.profiler.total, dict(trainer.ledger.peaks), trainer.ledger.peak.total, spans, line


def costs(**settings):
    config = Config(**SMALL | settings)
    return sd.run(cost, 4, cluster=CLUSTER, args=(config, Text(config))).results


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "dp", "optimizer": "lamb", "dropout": 0.1},
        {"micro_batches": 4, "vocabulary": 512},
        {"precision": "fp16"},
        {"zero": 1, "optimizer": "adamw8bit"},
        {"zero": 2, "precision": "bf16", "offload": "gradients"},
        {"zero": 3, "precision": "bf16", "recompute": "full"},
        {"zero": 3, "offload": "parameters", "offload_to": "disk"},
        {"zero": 3, "shards": 2, "micro_batches": 2},
        {"tp": 2, "recompute": "selective"},
        {"tp": 4, "sequence_parallel": True, "dropout": 0.1},
        {"sp": 2},
        {"sp": 4, "ulysses": True},
        {"tp": 2, "flash_attention": True},
        {"sp": 2, "flash_attention": True, "dropout": 0.1, "ulysses": True},
        {"block": "llama", "kv_heads": 2, "tp": 2, "sp": 2},
        {"head_width": 6, "tp": 2, "sp": 2, "ulysses": True},
        {"pp": 4, "micro_batches": 8},
        {"pp": 2, "tp": 2, "schedule": "zb-v", "micro_batches": 4, "logits": "untied"},
        {"pp": 4, "schedule": "chimera", "micro_batches": 4, "zero": 1},
        {"pp": 4, "schedule": "pipedream", "micro_batches": 8},
    ],
    ids=str,
)
def test_it_costs_the_same(settings):
    with_numbers, without = costs(**settings, **ONE_STEP), costs(**settings, device="phantom")
    for known, found in zip(with_numbers, without, strict=True):
        assert found[:-1] == known[:-1]
        assert np.isfinite(known[-1].train_loss)
        assert np.isnan([found[-1].train_loss, found[-1].validation_loss]).all()


def test_experts_take_all_that_they_have_room_for():
    settings = {"experts": 4, "ep": 2, "tp": 2, "top_k": 2, "capacity_factor": 1.0}
    with_numbers, without = costs(**settings, **ONE_STEP), costs(**settings, device="phantom")
    for known, found in zip(with_numbers, without, strict=True):
        assert known[0].seconds <= found[0].seconds < 1.05 * known[0].seconds
        assert known[2] <= found[2] < 1.05 * known[2]


def test_a_model_that_no_machine_here_could_hold():
    config = Config(
        model="gpt", layers=2, width=32768, heads=256, context_bytes=64, vocabulary=131072, global_batch_size=2,
        tp=2, precision="bf16", device="phantom",
    )  # fmt: skip
    (total, peaks, *_), *_ = sd.run(cost, 2, cluster=preset("b200"), args=(config, Text(config))).results
    assert total.steps == 1
    assert peaks["parameters"] > 25e9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "async"}, "method async; needs ddp, dp, zero"),
        ({"compress": "top-k"}, "method compressed; needs"),
        ({"checkpoint_every": 5}, "checkpoint_every 5; there are no numbers for that"),
        ({"check_every": 5}, "check_every 5; there are no numbers"),
        ({"sample_bytes": 7}, "sample_bytes 7; there are no numbers"),
    ],
)
def test_what_hangs_on_numbers(settings, message):
    with pytest.raises(ArgumentError, match=f"device phantom, and {message}"):
        Config(device="phantom", **settings)
