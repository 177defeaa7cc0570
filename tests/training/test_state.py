"""A run that stops and goes on, elsewhere and otherwise, is the run that never stopped."""

import json
import signal
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkpointing import own_weights, shared
from harness import virtual

import simdist as sd
from simdist.errors import ArgumentError, CheckpointError, CheckpointMismatch, CorruptCheckpoint
from simdist.training import Config, Interrupts, Trainer
from simdist.training.checkpoint import ShardedTensor, read_manifest, save, steps
from simdist.training.state import State, changes

GPT = {"model": "gpt", "layers": 2, "width": 16, "heads": 2, "context_bytes": 12, "dropout": 0.1, "interval": 3}
GPT |= {"precision": "float64", "global_batch_size": 11, "steps": 10, "validation_windows": 20, "warmup_steps": 3}
GPT |= {"learning_rate": 0.01, "clip_norm": 0.5, "weight_decay": 0.1}
CUT = 5  # in the middle of an interval


@pytest.fixture
def settings(text):
    return GPT | {"data": text}


def run(comm, settings, folder, resume=False):
    """A run that writes checkpoints: its lines and its weights, those that other ranks have as nan."""
    trainer = Trainer(comm, Config(**settings), Path(shared(comm, folder)))
    changed = trainer.resume(trainer.checkpoints, CUT) if resume else []
    lines = [list(line[:5]) for line in trainer.run() if line]
    return lines, own_weights(trainer.method), changed


def joined(found):
    """Every rank's part of the weights, put together; ranks that have the same must have the same bits."""
    for _, weights, _ in found:
        for _, others, _ in found:
            both = ~np.isnan(weights) & ~np.isnan(others)
            np.testing.assert_array_equal(weights[both], others[both])
    return np.nanmax([weights for _, weights, _ in found], axis=0)


WAYS = {
    "ddp": {"bucket_bytes": 5000},
    "dp": {"method": "dp"},
    "micro-batches": {"micro_batches": 3},
    "server": {"method": "server"},
    "map-reduce": {"method": "map-reduce"},
    "zero 1": {"zero": 1},
    "zero 2": {"zero": 2},
    "fsdp": {"zero": 3},
    "offload": {"zero": 3, "offload": "parameters"},
}


def hold(spmd, tmp_path, settings, first, then, p, q, exact=False):
    """What a run that stops at CUT on p ranks, one way, and goes on with q, another way, comes to."""
    unbroken = spmd(run, p, settings | first, tmp_path / "unbroken")
    broken = spmd(run, p, settings | first | {"checkpoint_every": CUT}, tmp_path / "broken")
    resumed = spmd(run, q, settings | then, tmp_path / "broken", True)
    expected, found = unbroken[0][0], resumed[0][0]
    assert [line[0] for line in found] == [6, 9, 10]
    for line, before in zip(found, expected[-3:], strict=True):
        assert line == pytest.approx(before, rel=1e-12, abs=1e-12)
    if exact:
        np.testing.assert_array_equal(joined(resumed), joined(unbroken))
        assert found == broken[0][0][-3:], "the run that wrote it goes on in the same way"
        assert found[1:] == expected[-2:]  # the line after the cut adds up in another order
    np.testing.assert_allclose(joined(resumed), joined(unbroken), rtol=1e-12, atol=1e-12)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("p", [2, 4])
def test_the_same_ranks_go_on_with_the_same_bits(spmd, tmp_path, settings, way, p):
    hold(spmd, tmp_path, settings, WAYS[way], WAYS[way], p, p, exact=True)


def test_a_loss_that_is_no_number_can_be_saved(spmd, tmp_path, settings):
    diverging = settings | {"precision": "float32", "learning_rate": 1e12, "warmup_steps": 0, "clip_norm": 0.0}
    with np.errstate(over="ignore", invalid="ignore"):
        unbroken = spmd(run, 2, diverging | {"checkpoint_every": CUT}, tmp_path)[0][0]
        resumed = spmd(run, 2, diverging, tmp_path, True)[0][0]
    assert np.isnan(unbroken[-1][1])
    np.testing.assert_array_equal(resumed, unbroken[-3:])


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(("p", "q"), [(1, 3), (3, 1), (2, 4), (4, 3)])
def test_other_ranks_go_on(spmd, tmp_path, settings, p, q):
    hold(spmd, tmp_path, settings, {}, {}, p, q)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_another_method_goes_on(spmd, tmp_path, settings, way):
    hold(spmd, tmp_path, settings, {}, WAYS[way], 2, 3)
    hold(spmd, tmp_path, settings, WAYS[way], {}, 3, 2)


def test_hybrid_sharding_goes_on(spmd, tmp_path, settings):
    shards = {"zero": 3, "shards": 2}
    hold(spmd, tmp_path / "same", settings, shards, shards, 4, 4, exact=True)
    hold(spmd, tmp_path / "to", settings, {"zero": 1}, shards, 3, 4)
    hold(spmd, tmp_path / "from", settings, shards, {}, 4, 3)


def test_a_stage_without_weights_goes_on(spmd, tmp_path, settings):
    """The second of these, an activation alone."""
    told = {"data": settings["data"], "steps": 10, "interval": 1, "pp": 3, "zero": 1, "micro_batches": 2}
    told |= {"context_bytes": 3, "embedding_width": 3, "hidden_width": 5, "hidden_layers": 1, "clip_norm": 1.0}
    unbroken = spmd(run, 3, told | {"checkpoint_every": CUT}, tmp_path)
    assert not len(unbroken[1][1])
    assert spmd(run, 3, told, tmp_path, True)[0][0] == unbroken[0][0][CUT:]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw8bit", "lars", "lamb", "muon"])
def test_every_rule_goes_on(tmp_path, settings, optimizer):
    told = {"optimizer": optimizer, "learning_rate": 0.01}
    hold(virtual, tmp_path, settings, told, told, 2, 2, exact=True)


def test_muon_goes_on_with_other_shards(tmp_path, settings):
    told = {"optimizer": "muon", "learning_rate": 0.01}
    hold(virtual, tmp_path, settings, told | {"zero": 1}, told | {"zero": 3}, 4, 3)


def test_what_is_otherwise_is_told(tmp_path, settings):
    def stop_and_go_on(comm, change):
        run(comm, settings | {"checkpoint_every": CUT}, tmp_path / "a")
        return run(comm, settings | change, tmp_path / "a", True)[2]

    def told(change):
        return sd.run(stop_and_go_on, 2, args=(change,)).results[0]

    assert told({}) == told({"interval": 4, "checkpoint_every": 2}) == []
    assert told({"learning_rate": 0.02, "seed": 1}) == ["seed 1, was 0", "learning_rate 0.02, was 0.01"]
    (tmp_path / "other").write_bytes((tmp_path / "text").read_bytes())
    assert told({"data": str(tmp_path / "other")}) == []
    assert changes(Config(), "x", State(vars(Config()), "y")) == ["data"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"zero": 1}, ["method zero, was ddp", "zero 1, was 0"]),
        ({"zero": 1}, {}, ["method ddp, was zero", "zero 0, was 1"]),
        ({}, {"compress": "8-bit"}, ["method compressed, was ddp", "compress 8-bit, was None"]),
        ({"compress": "8-bit"}, {}, ["method ddp, was compressed"]),
        ({"bucket_bytes": 100}, {"method": "bsp", "servers": 2}, ["method bsp, was ddp", "servers 2, was None"]),
    ],
)
def test_a_change_of_method_is_told_without_what_follows_from_it(before, after, told):
    assert changes(Config(**after), "x", State(vars(Config(**before)) | {"data": ""}, "x")) == told


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"optimizer": "lamb"}, CheckpointMismatch, "checkpoint is adamw, and that of this run lamb: "),
        ({"precision": "float32"}, CheckpointMismatch, "float32"),
        ({"width": 8}, CheckpointMismatch, "is wanted"),
        ({"steps": CUT}, ArgumentError, "steps is 5, and 5 are done"),
    ],
)
def test_what_cannot_go_on_is_refused_on_all_ranks(spmd, tmp_path, settings, change, error, message):
    def go_on(comm):
        run(comm, settings | {"checkpoint_every": CUT}, tmp_path)
        try:
            run(comm, settings | change, tmp_path, True)
        except error as raised:
            return str(raised)

    for told in spmd(go_on, 2):
        assert message in told


def test_a_checkpoint_without_momentum_is_told_from_one_with_it(tmp_path, settings):
    """Both are of SGD, of which one has no state."""

    def go_on(comm):
        plain = settings | {"optimizer": "sgd", "momentum": 0.0}
        run(comm, plain | {"checkpoint_every": CUT}, tmp_path)
        run(comm, plain | {"momentum": 0.9}, tmp_path, True)

    told = "optimizer of the checkpoint is sgd without momentum, and that of this run sgd: .* no tensor 'sgd.velocity/"
    with pytest.raises(CheckpointMismatch, match=told):
        sd.run(go_on, 2)


def test_a_checkpoint_of_something_else_is_refused(tmp_path, settings):
    def save_other(comm):
        trainer = Trainer(comm, Config(**settings | {"optimizer": "sgd", "momentum": 0.0}))
        vectors = trainer.method.vectors()
        model = trainer.method.model.parameters
        tensors = {p.name: ShardedTensor.whole(p.data) for p in model}
        assert list(vectors) == [""]
        save(tmp_path, comm, 3, tensors, {"mine": 1})
        trainer.resume(tmp_path)

    with pytest.raises(CorruptCheckpoint, match="not one of a training run"):
        sd.run(save_other, 1)
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        sd.run(lambda comm: Trainer(comm, Config(**settings)).resume(tmp_path / "none"), 2)


def rewrite(folder, number, change):
    """Give the checkpoint of a step other words beside its tensors, as if it had been written with these."""
    manifest = read_manifest(folder, number)
    extra = deepcopy(manifest.extra)
    change(extra)
    (folder / f"step-{number}" / "manifest.json").write_bytes(replace(manifest, extra=extra).encode())


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("method", "optimizer.num_steps", -1),
        ("method", "loss_scale.value", "1"),
        ("method", "loss_scale.good_steps", 0.5),
        ("run", "config", "x"),
        ("run", "loss", "x"),
        ("run", "targets", 0.5),
        ("run", "seconds", -1.0),
    ],
)
def test_a_checkpoint_with_other_numbers_is_refused_before_anything_changes(tmp_path, settings, part, name, value):
    def program(comm):
        told = settings | {"precision": "fp16", "zero": 2, "steps": 2}
        run(comm, told | {"checkpoint_every": 1}, tmp_path)
        if comm.rank == 0:
            rewrite(tmp_path, 1, lambda extra: extra[part].update({name: value}))
        comm.barrier()
        trainer = Trainer(comm, Config(**told))
        before = own_weights(trainer.method)
        with pytest.raises(CorruptCheckpoint, match="not one of a training run"):
            trainer.resume(tmp_path, 1)
        np.testing.assert_array_equal(own_weights(trainer.method), before)

    sd.run(program, 2)


def test_only_so_many_are_kept(spmd, tmp_path, settings):
    def keep(comm):
        told = settings | {"checkpoint_every": 3, "keep_checkpoints": 2, "sample_bytes": 0}
        run(comm, told, tmp_path)
        comm.barrier()
        return steps(shared(comm, tmp_path))

    assert spmd(keep, 2) == [[9, 10]] * 2  # the last step has one too


@pytest.mark.parametrize(("number", "after"), [(signal.SIGUSR1, 10), (signal.SIGINT, 4), (signal.SIGTERM, 4)])
def test_a_signal_leaves_a_checkpoint_at_the_end_of_its_step(spmd, tmp_path, settings, number, after):
    def interrupted(comm):
        with Interrupts() as asked:
            trainer = Trainer(comm, Config(**settings), Path(shared(comm, tmp_path)))
            for _ in trainer.run(asked):
                if trainer.done == 4 and comm.rank == comm.size - 1:
                    signal.raise_signal(number)
        comm.barrier()
        return trainer.done, trainer.stopped and int(trainer.stopped), steps(trainer.checkpoints)

    stopped = None if number == signal.SIGUSR1 else int(number)
    assert spmd(interrupted, 3) == [(after, stopped, [4])] * 3


def test_metrics_are_plain_numbers(tmp_path, settings):
    """What a checkpoint keeps beside the weights must come back from JSON as it was."""

    def numbers(comm):
        return Trainer(comm, Config(**settings)).method.numbers()

    found = sd.run(numbers, 2).results
    assert found[0] == found[1] == json.loads(json.dumps(found[0]))
