"""A method that a program adds: the ranks vote, and a whole run knows it, on virtual ranks and on real ones."""

import re
import signal
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from jobs import needs_mpi

from simdist.cli import training_job
from simdist.errors import ArgumentError, ReplicaDrift, UnknownNameError
from simdist.nn import mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision
from simdist.training import Config, Trainer, methods
from simdist.training.text import Text

EXAMPLE = "simdist.examples.own_method"
WINDOWS = np.random.default_rng(0).integers(256, size=(9, 5), dtype=np.uint8)
RECIPE = Recipe(momentum=0.0, precision=precision("float64"))


@pytest.fixture
def example(monkeypatch):
    """The module, whose method nobody knows any more afterwards."""
    monkeypatch.setattr(methods, "_METHODS", deepcopy(methods._METHODS))
    monkeypatch.delitem(sys.modules, EXAMPLE, raising=False)
    yield import_module(EXAMPLE)
    del sys.modules[EXAMPLE]


def gradient(comm, kind, part):
    """What a method leaves in its gradient of a part of the windows."""
    method = kind(mlp(4, 4, 8, 1), comm, RECIPE, 0)
    method.backward(np.array_split(WINDOWS, part[1])[comm.rank if part[0] is None else part[0]], 1 / WINDOWS.size)
    return method.gradient.copy()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_sign_of_most_ranks(example, spmd, p):
    ballots = [spmd(gradient, 1, DataParallel, (r, p))[0] > 0 for r in range(p)]
    for voted in spmd(gradient, p, example.MajorityVote, (None, p)):
        assert np.array_equal(voted, np.sign(2 * np.sum(ballots, axis=0) - p))


def test_a_config_knows_it_and_what_it_has_no_use_for(example):
    assert Config(method="majority-vote").check_every == 0
    with pytest.raises(ArgumentError, match="bucket_bytes is 8, and method majority-vote; bucket_bytes is"):
        Config(method="majority-vote", bucket_bytes=8)
    with pytest.raises(ArgumentError, match="tp 2, and method majority-vote; needs ddp"):
        Config(method="majority-vote", model="gpt", tp=2)


def drifting(model, comm, config):
    """Data parallelism that does not reduce."""
    method = DataParallel(model, comm, methods.recipe(config), config.seed)
    method.reduce = lambda: None
    return method


def test_its_copies_can_be_compared(example, spmd):
    config = Config(method="majority-vote", check_every=2, hidden_width=8)
    text = Text(replace(config, data=__file__))

    def trained(comm, method):
        trainer = Trainer(comm, replace(config, method=method, steps=2, validation_windows=0), text=text)
        try:
            return [line.step for line in trainer.run() if line]
        except ReplicaDrift as error:
            return str(error)

    assert spmd(trained, 2, "majority-vote") == [[1, 2]] * 2
    methods.named("drifting")(drifting)
    assert all("the weights of rank 1" in told for told in spmd(trained, 2, "drifting"))


def test_what_is_no_method(example, spmd):
    methods.named("none")(lambda model, comm, config: None)

    def distributed(comm):
        with pytest.raises(ArgumentError, match="what makes none returns None; needs a Method"):
            methods.distribute(mlp(4, 4, 8, 1), comm, Config(method="none"))

    spmd(distributed, 2)


def test_how_a_run_goes_on_that_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMDIST_PROGRAM", EXAMPLE)
    folder, comm = SimpleNamespace(path=tmp_path), SimpleNamespace(size=2)
    told = training_job.TrainingJob(Config())._stopped(signal.SIGINT, 3, folder, comm)
    assert told.endswith(f"; go on with: python -m {EXAMPLE} train --ranks 2 --resume {tmp_path}")


def test_nobody_knows_it_otherwise():
    with pytest.raises(UnknownNameError, match="unknown method 'majority-vote'"):
        Config(method="majority-vote")


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("where", "row"),
    [
        (["--world=virtual", "--cluster=h100"], "bytes sent a step, rank 0 ({0}) \\1 {0}\n"),
        pytest.param(
            [], "bytes moved through shared memory a step, rank 0 ([\\d,]+) \\1 by messages {0}\n", marks=needs_mpi
        ),
    ],
)
def test_a_run(where, row, tmp_path):
    (tmp_path / "text").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 200)
    words = ["--ranks=3", "--method=majority-vote", "--learning-rate=0.01", "--momentum=0", "--steps=60"]
    size = ["--context=4", "--embedding-width=4", "--hidden-width=16", "--hidden-layers=1", "--batch=30"]
    told = ["train", *where, *words, *size, f"--data={tmp_path / 'text'}", f"--out={tmp_path / 'run'}"]
    done = subprocess.run([sys.executable, "-m", EXAMPLE, *told], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 ranks, majority-vote: all_gather" in done.stdout
    ballot_bytes = -(-int(re.search(r"mlp, ([\d,]+) parameters", done.stdout)[1].replace(",", "")) // 8)
    assert re.search(row.format(f"{2 * ballot_bytes:,}"), re.sub(" +", " ", done.stdout))
