"""A worker that is killed in the middle of a training run, on real ranks: the others end it, and leave checkpoints."""

import json

import pytest
from jobs import job, needs_ulfm

from simdist.training.checkpoint import read_manifest, steps

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import simdist as sd
from simdist.training import Config
from simdist.training.asynchronous.report import report
from simdist.training.asynchronous.run import AsynchronousRun

def tell(step, loss):
    if step == 10:
        os.kill(os.getpid(), signal.SIGKILL)

settings, root = json.loads(sys.argv[1]), Path(sys.argv[2])
run = AsynchronousRun(sd.world(), Config(**settings), root, tell=None if "--resume" in sys.argv else tell)
if "--resume" in sys.argv:
    run.resume(root)
lines = [list(line[:3]) for lines in run.run() for line in lines]
results = run.results()
if results:
    report(results, run.text)
    print("told " + json.dumps([lines, run.lost, run.comm.size, results.done]))
"""

SETTINGS = {"precision": "float64", "global_batch_size": 12, "steps": 40, "interval": 5, "validation_windows": 20}
SETTINGS |= {"context_bytes": 3, "embedding_width": 3, "hidden_width": 8, "hidden_layers": 1, "checkpoint_every": 20}
SETTINGS |= {"compute_seconds": 0.002, "learning_rate": 1.0, "warmup_steps": 0}


@needs_ulfm
@pytest.mark.parametrize("method", ["async", "ssp", "backup"])
def test_the_others_end_the_run(tmp_path, text, method):
    (tmp_path / "script.py").write_text(SCRIPT)
    settings = json.dumps(SETTINGS | {"data": text, "method": method})
    code, output = job(4, "--survive", tmp_path / "script.py", settings, tmp_path / "c")
    assert code == 0, output
    lines, lost, left, done = told(output)
    assert (lost, left, done) == ([1], 3, [40, 40])
    assert [line[0] for line in lines] == [1, *range(5, 41, 5)]
    assert lines[-1][2] < lines[0][2] - 0.3
    assert steps(tmp_path / "c") == [20, 40] and read_manifest(tmp_path / "c", 20).num_ranks == 3
    assert "rank 1 of 4" in output
    assert "the job was ended" not in output  # by the launcher, after it had waited for the ranks in vain

    (tmp_path / "c" / "step-40").rename(tmp_path / "gone")
    code, output = job(3, tmp_path / "script.py", settings, tmp_path / "c", "--resume")
    assert code == 0, output
    later, *rest = told(output)
    assert rest == [[], 3, [40, 40]] and [line[0] for line in later] == [25, 30, 35, 40]


def told(output):
    """What the script says."""
    return json.loads(next(line for line in output.splitlines() if line.startswith("told "))[5:])
