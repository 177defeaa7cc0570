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


def program(comm, settings, root, last_step, deaths):
    """Train, or go on from a checkpoint; the first worker dies before this step. What rank 0 can tell."""

    def tell(step, loss):
        if step == last_step:
            raise Died

    mortal(comm, deaths, tick_s=1e-3)
    run = AsynchronousRun(comm, Config(**settings), root, tell=tell)
    if last_step is None:
        run.resume(root)
    try:
        lines = [line for lines in run.run() for line in lines]
    except Died:
        deaths[comm.rank] = comm.clock()
        comm.split(None)
        return None
    story = run.story()
    text = "" if story is None else str(report(story, run.text))
    return lines, run.lost, run.comm.size, story, text


@pytest.mark.parametrize(("servers", "last_step"), [(1, 15), (2, 5)])
@pytest.mark.parametrize("method", ["async", "ssp", "backup"])
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_the_others_end_the_run(tmp_path, method, servers, last_step):
    """Of three workers, with batches of 5, 5 and 4 windows; the last of them is slow."""
    (tmp_path / "text").write_bytes(b"the quick brown fox jumps over the lazy dog; " * 200)
    root, ranks = tmp_path / "c", servers + 3
    settings = SETTINGS | {"data": str(tmp_path / "text"), "method": method, "servers": servers}
    slow = settings | {"slow": f"{ranks - 1}:3.0"}
    lines, lost, left, story, text = sd.run(program, ranks, args=(slow, root, last_step, {})).results[0]
    assert (lost, left, story.done) == ([servers], ranks - 1, [40, 40])
    assert [line.step for line in lines] == [1, *range(5, 41, 5)]
    assert lines[-1].validation_loss < lines[0].validation_loss - 0.3
    assert lines[-1].tokens_per_s * (lines[-1].seconds - lines[-2].seconds) == pytest.approx(5 * (5 + 4))
    assert story.all_ranks == (*range(servers), servers + 1, servers + 2)
    for doing, _ in story.workers:
        assert [step for step in doing.clocks if step >= 20] == [*range(20, 40)]  # no step goes on without one of them
    assert np.diff(story.workers[1][0].times_s[-20:]).min() > 0.0059
    if method != "backup":
        assert story.targets == 40 * (5 + 4)
    assert f"without which the others went on: {servers}\n" in text
    assert steps(root)[-1] == 40 and read_manifest(root, 40).num_ranks == ranks - 1

    again = settings | {"steps": 50}
    later, lost, left, story, _ = sd.run(program, ranks - 1, args=(again, root, None, {})).results[0]
    assert (lost, left, story.done) == ([], ranks - 1, [50, 50])
    assert [line.step for line in later] == [45, 50]
