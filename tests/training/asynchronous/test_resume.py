"""Asynchronous runs that stop and go on: from one cut of all ranks, with the trajectory of a run that did not stop."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkpointing import shared

import simdist as sd
from simdist.errors import ArgumentError, CheckpointError, CheckpointMismatch, CorruptCheckpoint
from simdist.training import Config, Interrupts, Trainer
from simdist.training.asynchronous.methods import ASYNCHRONOUS
from simdist.training.asynchronous.run import AsynchronousRun
from simdist.training.checkpoint import export, read_manifest, steps
from simdist.training.trainer import Line

SETTINGS = {"precision": "float64", "global_batch_size": 12, "steps": 24, "interval": 5, "validation_windows": 20}
SETTINGS |= {"context_bytes": 3, "embedding_width": 3, "hidden_width": 8, "hidden_layers": 1, "sample_bytes": 0}
SETTINGS |= {"compute_time": "exponential", "compute_seconds": 0.01, "slow": "2:3.0", "checkpoint_every": 8}
SETTINGS |= {"keep_checkpoints": 0, "rate_schedule": "constant"}
WAYS = {method: {"method": method} for method in ASYNCHRONOUS} | {
    "bsp adamw": {"method": "bsp", "servers": 2, "optimizer": "adamw"},
    "ad-psgd adam": {"method": "ad-psgd", "optimizer": "adam", "learning_rate": 0.01},
    "async momentum": {"method": "async", "momentum": 0.9, "servers": 2},
    "local-sgd": {"method": "local-sgd", "local_steps": 3},
    "post-local": {"method": "post-local", "local_steps": 3, "switch_share": 0.3, "optimizer": "adam"},
    "diloco": {"method": "diloco", "local_steps": 4},
}
IN_STEP = ("bsp", "bsp adamw", "d-psgd", "local-sgd", "post-local", "diloco")


def trained(comm, settings, root=None, resume=None, step=None):
    """The run's lines by step, the weights that it ends with, and of which steps it has left checkpoints."""
    root = root and Path(shared(comm, root))
    run = AsynchronousRun(comm, Config(**settings), root)
    if resume:
        run.resume(Path(shared(comm, resume)), step)
    lines = [list(line) for lines in run.run() for line in lines]
    return {line[0]: line[1:4] for line in lines}, run.model.parameters.data, steps(root) if root else []


def alike(found, expected):
    """Lines, all but to the bit."""
    assert found == {mark: pytest.approx(line, rel=1e-12) for mark, line in expected.items()}


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_as_one_that_did_not_stop(spmd, tmp_path, text, way):
    settings = SETTINGS | {"data": text} | WAYS[way]
    unbroken, weights, there = spmd(trained, 4, settings, tmp_path / "a")[0]
    assert len(there) >= 3 and there[-1] == 24
    if "ad-psgd" not in way and "local" not in way:
        assert there == [8, 16, 24]
    if way in IN_STEP:
        alone, expected, _ = spmd(trained, 4, settings | {"checkpoint_every": 0})[0]
        alike(unbroken, alone)
        assert weights == pytest.approx(expected, rel=1e-12)
    for step in there[:-1]:
        later, found, _ = spmd(trained, 4, settings, tmp_path / f"b{step}", tmp_path / "a", step)[0]
        assert list(later) == [mark for mark in unbroken if mark > step]
        if way in IN_STEP or not spmd.real:
            alike(later, {mark: unbroken[mark] for mark in later})
            assert found == pytest.approx(weights, rel=1e-12)


@pytest.mark.parametrize(("first", "then"), [("bsp", "bsp"), ("bsp", "ddp"), ("ddp", "bsp")])
def test_the_layers_own_losses_are_those_of_a_run_with_a_common_step(tmp_path, text, first, then):
    """Also of the steps between a line and a checkpoint, written by either."""
    settings = {"data": text, "model": "gpt", "layers": 1, "width": 8, "heads": 2, "context_bytes": 6, "experts": 2}
    settings |= {"precision": "float64", "global_batch_size": 6, "steps": 8, "interval": 5, "validation_windows": 0}
    settings |= {"clip_norm": 0.0, "checkpoint_every": 3}

    def program(comm, method, resume=None):
        config = Config(**settings | {"method": method})
        make = Trainer if method == "ddp" else AsynchronousRun
        run = make(comm, config, checkpoints=tmp_path)
        if resume:
            run.resume(tmp_path, resume)
        found = [line for lines in run.run() for line in (lines if isinstance(lines, list) else [lines]) if line]
        return {line.step: line.auxiliary_loss for line in found if isinstance(line, Line)}

    alone = sd.run(program, 1, args=("ddp",)).results[0]
    ranks = {"bsp": 4, "ddp": 3}
    unbroken = sd.run(program, ranks[first], args=(first,)).results[0]
    later = sd.run(program, ranks[then], args=(then, 3)).results[0]
    assert min(alone.values()) > 0.01
    assert unbroken == pytest.approx(alone, rel=1e-9)
    assert later == pytest.approx({step: alone[step] for step in (5, 8)}, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("done", []),
        ("done", [-1, 2]),
        ("optimizer_steps", []),
        ("optimizer_steps", [0.5]),
        ("judged", [[-1, 2.0]]),
        ("logged_s", "x"),
        ("tallies", [[3, [1.0, 2]]]),
        ("tallies", [[3, [1.0, "x", 0.0, 0, 0, 0.0, 0]]]),
    ],
)
def test_a_cut_with_other_numbers_is_refused_before_anything_changes(tmp_path, text, name, value):
    settings = SETTINGS | {"data": text, "method": "async", "slow": "none", "steps": 2, "checkpoint_every": 1}

    def program(comm):
        list(AsynchronousRun(comm, Config(**settings), tmp_path).run())
        if comm.rank == 0:
            manifest = read_manifest(tmp_path, 1)
            extra = manifest.extra | {"asynchronous": manifest.extra["asynchronous"] | {name: value}}
            (tmp_path / "step-1" / "manifest.json").write_bytes(replace(manifest, extra=extra).encode())
        comm.barrier()
        run = AsynchronousRun(comm, Config(**settings))
        before = run.model.parameters.data.copy()
        with pytest.raises(CorruptCheckpoint, match="not one of a training run"):
            run.resume(tmp_path, 1)
        np.testing.assert_array_equal(run.model.parameters.data, before)

    sd.run(program, 3)


@pytest.mark.parametrize("method", ["async", "d-psgd"])
def test_a_run_that_diverges_leaves_checkpoints(tmp_path, text, method):
    settings = SETTINGS | {"data": text, "method": method, "precision": "float32", "learning_rate": 1e11}
    with np.errstate(over="ignore", invalid="ignore"):
        unbroken, _, there = sd.run(trained, 4, args=(settings, tmp_path / "a")).results[0]
        resumed, _, _ = sd.run(trained, 4, args=(settings, None, tmp_path / "a", 8)).results[0]
    assert there == [8, 16, 24] and np.isnan(unbroken[24][0])
    assert list(resumed) == [10, 15, 20, 24] and np.isnan(resumed[10][0])


def interrupted(comm, settings, root, number):
    """A run in which one rank gets a signal when it comes to step 5; whether that ended it, and what it left."""

    def tell(step, loss):
        if step == 5:
            os.kill(os.getpid(), number)

    root = Path(shared(comm, root))
    with Interrupts() as asked:
        run = AsynchronousRun(comm, Config(**settings), root, tell=tell)
        lines = [list(line) for lines in run.run(asked) for line in lines]
    return {line[0]: line[1:4] for line in lines}, int(run.stopped or 0), run.done, steps(root)


def timed(comm, settings, root, resume=None):
    """By step of its lines, how long the run had taken."""
    run = AsynchronousRun(comm, Config(**settings), root)
    if resume:
        run.resume(root, resume)
    return {line.step: line.seconds for lines in run.run() for line in lines}


@pytest.mark.parametrize("method", ["bsp", "local-sgd"])
def test_the_time_before_counts(tmp_path, text, method):
    settings = SETTINGS | {"data": text} | WAYS[method]
    unbroken = sd.run(timed, 4, args=(settings, tmp_path)).results[0]
    later = sd.run(timed, 4, args=(settings, tmp_path, steps(tmp_path)[0])).results[0]
    assert later == {mark: pytest.approx(unbroken[mark], rel=1e-3) for mark in later}


def test_speed_counts_no_steps_whose_time_is_not_known(tmp_path, text):
    """Those since the last line of a run with a common step, although their losses count."""
    settings = SETTINGS | {"data": text, "slow": "none", "compute_time": "constant"}
    common = {name: x for name, x in settings.items() if not name.startswith("compute") and name != "slow"}

    def program(comm):
        for _ in Trainer(comm, Config(**common), tmp_path).run():
            continue
        run = AsynchronousRun(comm, Config(**settings | {"method": "bsp", "momentum": 0.9}))
        run.resume(tmp_path, 8)
        return [line.tokens_per_s for lines in run.run() for line in lines if line.step in (10, 15)]

    first, second = sd.run(program, 3).results[0]
    assert first == pytest.approx(second, rel=0.1)


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("way", [way for way in WAYS if " " not in way])
def test_a_signal_to_one_rank_stops_all_at_a_cut(spmd, tmp_path, text, way, number):
    settings = SETTINGS | {"data": text, "checkpoint_every": 0} | WAYS[way]
    found, stopped, done, there = spmd(interrupted, 4, settings, tmp_path / "a", number)[0]
    assert stopped == (number if number == signal.SIGINT else 0)
    assert there == [done] if stopped else len(there) == 1 and done == 24
    assert list(found) == [mark for mark in (1, 5, 10, 15, 20, 24) if mark <= done]
    if way in IN_STEP:
        whole, weights, _ = spmd(trained, 4, settings)[0]
        later, ends, _ = spmd(trained, 4, settings, None, tmp_path / "a")[0]
        alike(found | later, whole)
        assert ends == pytest.approx(weights, rel=1e-12)
        assert list(later) == [mark for mark in whole if mark > there[0]]


@pytest.mark.slow(but=3)
@pytest.mark.parametrize(
    ("way", "p", "later", "q"),
    [
        ({"method": "bsp"}, 4, {"method": "bsp", "servers": 2}, 5),
        ({"method": "bsp"}, 3, {"method": "bsp"}, 4),
        ({"method": "bsp"}, 3, {"method": "local-sgd", "local_steps": 1}, 2),
        ({"method": "local-sgd", "local_steps": 1}, 2, {"method": "bsp"}, 4),
        ({"method": "bsp"}, 3, {"method": "ddp"}, 2),
        ({"method": "ddp"}, 2, {"method": "bsp", "servers": 2}, 4),
        ({"method": "ddp"}, 3, {"method": "post-local", "switch_share": 0.99}, 2),
    ],
)
def test_ranks_may_be_others_and_so_may_the_method(tmp_path, text, way, p, later, q):
    """All of these are the same SGD of the whole batch."""
    alike_ways = SETTINGS | {"data": text, "momentum": 0.0, "slow": "none"}
    for name in ("compute_time", "compute_seconds", "slow"):
        alike_ways.pop(name)

    def any_run(comm, settings, root, resume=None):
        if settings["method"] in ASYNCHRONOUS:
            return trained(comm, settings, root, resume, 8 if resume else None)[0]
        trainer = Trainer(comm, Config(**settings), root)
        if resume:
            trainer.resume(resume, 8)
        return {line[0]: list(line[1:4]) for line in trainer.run() if line}

    whole = sd.run(any_run, 1, args=(alike_ways | {"method": "ddp"}, tmp_path / "whole")).results[0]
    sd.run(any_run, p, args=(alike_ways | way, tmp_path / "a"))
    found = sd.run(any_run, q, args=(alike_ways | later, tmp_path / "b", tmp_path / "a")).results[0]
    assert list(found) == [10, 15, 20, 24]
    alike(found, {mark: whole[mark] for mark in found})  # the line of step 10 is of steps since 5


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    ("way", "p", "later", "q", "error", "message"),
    [
        ({"method": "async"}, 4, {}, 3, ArgumentError, r"is of 3 workers that were \d+ steps apart by async; .* has 2"),
        ({"method": "d-psgd"}, 3, {}, 4, ArgumentError, "is of 3 ranks by d-psgd, each with weights .* run has 4"),
        ({"method": "d-psgd"}, 3, {"method": "local-sgd"}, 3, ArgumentError, "whose ranks have weights of their own"),
        ({"method": "d-psgd"}, 3, {"method": "bsp"}, 3, ArgumentError, "each with weights of its own; .* in common"),
        ({"method": "local-sgd"}, 3, {}, 2, ArgumentError, "each with an optimizer's state of its own; .* has 2"),
        ({"method": "ad-psgd"}, 3, {"method": "d-psgd"}, 3, ArgumentError, "steps; d-psgd needs as many of all"),
        (
            {"method": "diloco", "local_steps": 4},
            2,
            {"local_steps": 6},
            2,
            ArgumentError,
            "8 steps are done, and local",
        ),
        (
            *({"method": "bsp"}, 3, {"optimizer": "adamw"}, 3, CheckpointMismatch),
            "the optimizer of the checkpoint is sgd, and that of this run adamw: .* no tensor 'adamw.m/",
        ),
        (
            *({"method": "local-sgd"}, 3, {"method": "ddp"}, 2, ArgumentError),
            "is of 3 ranks by local-sgd, each with an optimizer's state of its own; this run's have it in common",
        ),
        ({"method": "d-psgd"}, 3, {"method": "ddp"}, 3, ArgumentError, "by d-psgd, each with weights of its own; this"),
        ({"method": "bsp"}, 3, {"hidden_width": 9}, 3, CheckpointMismatch, "is wanted"),
        ({"method": "bsp"}, 3, {"steps": 8}, 3, ArgumentError, "steps is 8, and 8 are done"),
    ],
)
def test_what_a_run_cannot_go_on_from_is_refused_on_all(tmp_path, text, way, p, later, q, error, message):
    settings = SETTINGS | {"data": text, "slow": "none"}
    sd.run(trained, p, args=(settings | ({"slow": "2:3.0"} if p > 2 else {}) | way, tmp_path / "a"))
    told = settings | way | later
    if told["method"] == "ddp":
        told = {name: told[name] for name in told if name not in ("slow", "compute_time", "compute_seconds")}

    def program(comm):
        try:
            if told["method"] == "ddp":
                Trainer(comm, Config(**told)).resume(tmp_path / "a", 8)
            else:
                trained(comm, told, None, tmp_path / "a", steps(tmp_path / "a")[0])
        except error as found:
            return str(found)

    for words in sd.run(program, q).results:
        assert words is not None and re.search(message, words), words


def test_there_has_to_be_one(tmp_path, text):
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        sd.run(trained, 3, args=(SETTINGS | {"data": text, "method": "async"}, None, tmp_path / "a"))


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("method", ["bsp", "ssp", "d-psgd", "local-sgd"])
def test_one_model_can_be_taken_out(tmp_path, text, method):
    """The servers' weights, or the mean of all; and nothing is in the checkpoint twice."""
    settings = SETTINGS | {"data": text, "checkpoint_every": 24} | WAYS[method]
    _, weights, _ = sd.run(trained, 4, args=(settings, tmp_path / "a")).results[0]
    export(tmp_path / "a", tmp_path / "model.safetensors")
    data = (tmp_path / "model.safetensors").read_bytes()
    found = data[8 + int.from_bytes(data[:8], "little") :]
    assert sum(np.frombuffer(found)) == pytest.approx(sum(weights), rel=1e-12) and len(found) == weights.nbytes
    manifest = read_manifest(tmp_path / "a")
    copies = {"bsp": 2, "ssp": 1, "d-psgd": 1 + 4 * 2, "local-sgd": 1 + 4}[method]  # with velocities
    assert sum(np.prod(info.shape, dtype=int) for info in manifest.tensors.values()) == copies * len(weights)
