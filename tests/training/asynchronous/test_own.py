"""An asynchronous method that a program adds: a run knows it, and its checkpoints."""

from copy import deepcopy

import pytest

import simdist as sd
from simdist.asynchronous import d_psgd, local_sgd, one_peer_exponential
from simdist.cli import main
from simdist.errors import ArgumentError
from simdist.parallel import DataParallel
from simdist.training import Config, methods
from simdist.training.asynchronous import methods as asynchronous
from simdist.training.asynchronous.run import AsynchronousRun
from simdist.training.checkpoint import steps

SETTINGS = {"precision": "float64", "global_batch_size": 12, "steps": 12, "interval": 4, "validation_windows": 20}
SETTINGS |= {"context_bytes": 3, "embedding_width": 3, "hidden_width": 8, "hidden_layers": 1, "sample_bytes": 0}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """What a test registers, nobody knows any more afterwards."""
    monkeypatch.setattr(methods, "_METHODS", deepcopy(methods._METHODS))
    own = deepcopy(asynchronous.OWN)
    monkeypatch.setattr(asynchronous, "OWN", own)
    monkeypatch.setattr("simdist.training.asynchronous.peer.OWN", own)


def one_peer(worker, config, asked):
    d_psgd(worker, one_peer_exponential(worker.comm.size), config.steps, asked)


def ran(comm, settings, root=None, resume=None):
    """The lines, the weights, and of which steps there are checkpoints."""
    run = AsynchronousRun(comm, Config(**settings), root)
    if resume:
        run.resume(*resume)
    lines = {line.step: line[1:4] for lines in run.run() for line in lines}
    return lines, run.model.parameters.data, steps(root) if root else []


def test_it_trains_as_when_it_is_called(text):
    methods.named_asynchronous("all")(lambda worker, config, asked: local_sgd(worker, config.steps, 3, asked=asked))
    ours, theirs = (
        sd.run(ran, 3, args=(SETTINGS | {"data": text} | way,)).results[0][:2]
        for way in ({"method": "all"}, {"method": "local-sgd", "local_steps": 3})
    )
    assert ours[0] == {step: pytest.approx(line) for step, line in theirs[0].items()}
    assert ours[1] == pytest.approx(theirs[1], rel=1e-12)


def test_a_run_goes_on_from_its_checkpoint(text, tmp_path):
    methods.named_asynchronous("one-peer")(one_peer)
    settings = SETTINGS | {"data": text, "method": "one-peer", "checkpoint_every": 4, "keep_checkpoints": 0}
    lines, weights, there = sd.run(ran, 4, args=(settings, tmp_path)).results[0]
    assert there[-1] == 12 and len(there) >= 2
    alone = sd.run(ran, 4, args=(settings | {"checkpoint_every": 0},)).results[0]
    assert weights == pytest.approx(alone[1], rel=1e-12)
    later, found, _ = sd.run(ran, 4, args=(settings, None, (tmp_path, there[0]))).results[0]
    assert later == {step: pytest.approx(line) for step, line in lines.items() if step > there[0]}
    assert found == pytest.approx(weights, rel=1e-12)
    with pytest.raises(ArgumentError, match="is of 4 ranks by one-peer, each with weights of its own"):
        sd.run(ran, 2, args=(settings, None, (tmp_path, there[0])))


def test_ranks_may_be_at_different_steps(text, tmp_path):
    """Here they never wait for each other, and the slow one is behind at each checkpoint."""

    def alone(worker, config, asked):
        while worker.done < config.steps and not asked():
            worker.descend(worker.find_gradient(worker.done), worker.done)

    methods.named_asynchronous("alone")(alone)
    settings = SETTINGS | {"data": text, "method": "alone", "slow": "1:3.0", "compute_seconds": 0.01}
    once = sd.run(ran, 2, args=(settings,)).results[0]
    often = sd.run(ran, 2, args=(settings | {"checkpoint_every": 3}, tmp_path)).results[0]
    assert often[1] == pytest.approx(once[1], rel=1e-12)
    assert list(often[0]) == [1, 4, 8, 12]


@pytest.mark.parametrize("made", [0, 5])
def test_one_that_ends_early_is_told(text, made):
    def early(worker, config, asked):
        for step in range(worker.done, made):
            worker.descend(worker.find_gradient(step), step)

    methods.named_asynchronous("early")(early)
    with pytest.raises(
        ArgumentError, match=f"method early ended after {made} steps on rank [01], not asked to; needs 12"
    ):
        sd.run(ran, 2, args=(SETTINGS | {"data": text, "method": "early"},))


@pytest.mark.parametrize(("first", "gradients", "found"), [(1, 1, 11), (0, 2, 24)])
def test_one_whose_steps_have_not_a_gradient_each_is_told(text, first, gradients, found):
    def uneven(worker, config, asked):
        for step in range(first, config.steps):
            for _ in range(gradients):
                g = worker.find_gradient(step)
            worker.descend(g, step)

    methods.named_asynchronous("uneven")(uneven)
    with pytest.raises(ArgumentError, match=f"method uneven found {found} gradients for 12 steps on rank"):
        sd.run(ran, 2, args=(SETTINGS | {"data": text, "method": "uneven"},))


def test_a_command_knows_it(text, tmp_path, capsys):
    methods.named_asynchronous("one-peer")(one_peer)
    words = ["--method=one-peer", "--world=virtual", "--steps=6", "--batch=8", "--context=3", "--hidden-width=8"]
    assert main(["train", *words, "--sample-bytes=9", "--interval=3", f"--data={text}", f"--out={tmp_path}"]) == 0
    told = capsys.readouterr().out
    assert "4 ranks, one-peer\n" in told and "6 steps of each worker" in told
    assert (tmp_path / "consensus.png").exists()


def test_names_and_settings():
    with pytest.raises(ArgumentError, match="method ddp: simdist has its own"):
        methods.named_asynchronous("ddp")
    with pytest.raises(ArgumentError, match="method async: simdist has its own"):
        methods.named_asynchronous("async")
    with pytest.raises(ArgumentError, match="what makes method x is called with"):
        methods.named_asynchronous("x")(lambda worker: None)
    methods.named_asynchronous("x")(one_peer)
    with pytest.raises(ArgumentError, match="local_steps is 2, and method x"):
        Config(method="x", local_steps=2)
    assert Config(method="x").slow == "none"
    methods.named("x")(lambda model, comm, config: DataParallel(model, comm, methods.recipe(config), config.seed))
    assert Config(method="x").slow is None
    methods.named_asynchronous("x")(one_peer)
    assert methods.methods().count("x") == 1 and Config(method="x").check_every is None
