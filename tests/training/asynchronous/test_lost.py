"""A worker that dies in the middle of a training run, on virtual ranks. On real ones: test_death."""

import numpy as np
import pytest
from mortal import mortal

import simdist as sd
from simdist.training import Config
from simdist.training.asynchronous.report import report
from simdist.training.asynchronous.run import AsynchronousRun
from simdist.training.checkpoint import read_manifest, steps

SETTINGS = {"precision": "float64", "global_batch_size": 14, "steps": 40, "interval": 5, "validation_windows": 20}
SETTINGS |= {"context_bytes": 3, "embedding_width": 3, "hidden_width": 8, "hidden_layers": 1, "checkpoint_every": 10}
SETTINGS |= {"compute_seconds": 0.002, "learning_rate": 0.5, "warmup_steps": 0}


class Died(Exception):
    """This rank makes no more calls."""


class Fate:
    """In place of the signals that a run heeds: the end of this rank in its step of this number, if it has one."""

    def __init__(self, last_step):
        self.steps_left = last_step

    @property
    def rung(self):
        if self.steps_left is not None:
            if not self.steps_left:
                raise Died
            self.steps_left -= 1
        return False

    def agreed(self, comm):
        return []


def program(comm, settings, root, last_steps, deaths, resumes=False):
    """Train; some die in these steps, by rank. What rank 0 can tell."""
    mortal(comm, deaths, tick_s=1e-3)
    run = AsynchronousRun(comm, Config(**settings), root)
    if resumes:
        run.resume(root)
    try:
        lines = [line for lines in run.run(Fate(last_steps.get(comm.rank))) for line in lines]
    except Died:
        deaths[comm.rank] = comm.clock()
        run.comm.split(None)
        return None
    results = run.results()
    text = "" if results is None else str(report(results, run.text))
    return lines, run.lost, run.comm.size, results, text


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("last_steps", [{1: 15}, {2: 5}, {1: 15, 2: 25}], ids=str)
@pytest.mark.parametrize("method", ["async", "ssp", "backup"])
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_the_others_end_the_run(tmp_path, text, method, last_steps):
    """Of three workers, with batches of 5, 5 and 4 windows; the last of them is slow."""
    servers, dead = min(last_steps), len(last_steps)
    root, ranks, left = tmp_path / "c", servers + 3, servers + 3 - dead
    settings = SETTINGS | {"data": text, "method": method, "servers": servers}
    settings |= {"backups": dead} if method == "backup" else {}
    slow = settings | {"slow": f"{ranks - 1}:3.0"}
    lines, lost, size, results, told = sd.run(program, ranks, args=(slow, root, last_steps, {})).results[0]
    assert (lost, size, results.done) == ([*last_steps], left, [40] * (3 - dead))
    assert [line.step for line in lines] == [1, *range(5, 41, 5)]
    assert lines[-1].validation_loss < lines[0].validation_loss - 0.3
    windows = sum([5, 5, 4][dead:])
    assert lines[-1].tokens_per_s * (lines[-1].seconds - lines[-2].seconds) == pytest.approx(5 * windows)
    assert tuple(results.ranks) == (*range(servers), *range(servers + dead, ranks))
    for worker in results.workers:
        assert [step for step in worker.clocks if step >= 30] == [*range(30, 40)]  # no step goes on without one of them
    assert np.diff(results.workers[-1].times_s[-10:]).min() > 0.0059
    if method != "backup":
        assert results.targets == 40 * windows
    assert f"without which the others went on: {', '.join(map(str, last_steps))}\n" in told
    assert steps(root)[-1] == 40 and read_manifest(root, 40).num_ranks == left

    again = settings | {"steps": 50} | ({"backups": None, "method": "ssp"} if method == "backup" else {})
    later, lost, size, results, _ = sd.run(program, left, args=(again, root, {}, {}, True)).results[0]
    assert (lost, size, results.done) == ([], left, [50] * (3 - dead))
    assert [line.step for line in later] == [45, 50]


@pytest.mark.parametrize(("method", "survives"), [("bsp", False), ("d-psgd", False), ("ssp", True)])
def test_only_some_methods_ask_to_survive_a_death(text, method, survives):
    def asks(comm):
        asked = []
        comm.survive = lambda: asked.append(True)
        AsynchronousRun(comm, Config(**SETTINGS, data=text, method=method))
        return asked == [True]

    assert sd.run(asks, 3).results == [survives] * 3
