"""`simdist train` on real ranks, stopped by signals, and going on from what it left."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import ROOT, needs_mpi

from simdist.cli import main
from simdist.training.checkpoint import steps

LIMIT_S = 60
SMALL = ["--batch=12", "--context=4", "--hidden-width=16", "--validation-windows=40", "--interval=10"]
SMALL += ["--precision=float64", "--optimizer=adamw", "--lr-schedule=constant", "--sample-bytes=5", "--trace-steps=1"]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(b"she sells sea shells on the sea shore; " * 100)
    return tmp_path / "text"


@contextmanager
def train(*words, folder):
    """`simdist train …` in a session of its own, of which nothing is left in the end."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(
        [sys.executable, "-m", "simdist", "train", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()


def end(job):
    """Its exit code, and what it said."""
    output, _ = job.communicate(timeout=LIMIT_S)
    return job.returncode, output


def until(condition, job):
    """Wait for what the job is to do."""
    limit_s = time.monotonic() + LIMIT_S
    while not condition():
        if job.poll() is not None or time.monotonic() > limit_s:
            pytest.fail(f"the job did not do it:\n{end(job)}")
        time.sleep(0.01)


def losses(folder):
    """By step."""
    lines = map(json.loads, (Path(folder) / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: (line["train_loss"], line["validation_loss"], line["learning_rate"]) for line in lines}


def begun(folder):
    return lambda: (folder / "metrics.jsonl").is_file() and (folder / "metrics.jsonl").stat().st_size > 0


@needs_mpi
@pytest.mark.usefixtures("undrawn")
def test_a_job_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path, text):
    a, b, told = tmp_path / "a", tmp_path / "b", [f"--data={text}", *SMALL]
    with train("--ranks=2", "--steps=2000", f"--out={a}", *told, folder=tmp_path) as job:
        until(begun(a), job)
        job.send_signal(signal.SIGUSR1)
        until(lambda: steps(a / "checkpoints"), job)
        job.send_signal(signal.SIGINT)
        code, output = end(job)
    first, last = steps(a / "checkpoints")[0], steps(a / "checkpoints")[-1]
    assert code == 130, output
    assert f"stopped by SIGINT after step {last}" in output
    assert "Traceback" not in output
    assert 0 < first < last < 2000
    assert f"{last} steps of 12 windows" in (a / "report.txt").read_text()
    assert {"loss.png", "memory.png", "timeline.png", "trace.json"} <= {path.name for path in a.iterdir()}
    assert not (a / "samples.txt").exists()

    stop = last + 30
    assert main(["train", f"--steps={stop}", f"--out={b}", *told]) == 0
    with train("--ranks=3", f"--resume={a}", f"--steps={stop}", folder=tmp_path) as job:
        code, output = end(job)
    assert code == 0, output
    assert f"goes on after step {last}, with steps {stop}, was 2000\n" in output
    found, unbroken = losses(a), losses(b)
    assert list(found) == list(unbroken)
    for step, expected in unbroken.items():
        assert found[step] == pytest.approx(expected, rel=1e-12)
    log = (a / "log.txt").read_text()
    assert "stopped by SIGINT" in log and "goes on after" in log
    assert (a / "samples.txt").is_file() and (a / "loss.png").is_file()


@pytest.mark.slow
@needs_mpi
def test_the_latest_run_goes_on_by_another_number_of_ranks(tmp_path, text):
    told = [f"--data={text}", "--steps=40", *SMALL]
    with train(*told, "--out=whole", folder=tmp_path) as job:
        assert end(job)[0] == 0
    with train("--ranks=2", *told, "--checkpoint-every=20", "--keep-checkpoints=0", folder=tmp_path) as job:
        code, output = end(job)
        assert code == 0, output
    run = tmp_path / "runs" / "mlp-2ranks"
    assert steps(run / "checkpoints") == [20, 40]
    (run / "checkpoints" / "step-40").rename(tmp_path / "gone")
    with train("--resume", "--ranks=3", folder=tmp_path) as job:
        code, output = end(job)
        assert code == 0, output
    assert "goes on after step 20\n" in output
    for step, expected in losses(tmp_path / "whole").items():
        assert losses(run)[step] == pytest.approx(expected, rel=1e-12)


def test_one_process_is_stopped_too(tmp_path, text):
    told = [f"--data={text}", "--steps=100000", f"--out={tmp_path / 'a'}", *SMALL]
    with train(*told, folder=tmp_path) as job:
        until(begun(tmp_path / "a"), job)
        job.send_signal(signal.SIGTERM)
        code, output = end(job)
    assert code == 143, output
    (step,) = steps(tmp_path / "a" / "checkpoints")
    assert f"stopped by SIGTERM after step {step}" in output
    with train(*told, folder=tmp_path) as job:
        code, output = end(job)
    assert code == 2
    assert "has checkpoints of an earlier run" in output


@pytest.mark.slow(but=1)
@needs_mpi
@pytest.mark.parametrize("method", ["async", "ad-psgd"])
def test_ranks_without_a_common_step_are_stopped_too(tmp_path, text, method):
    a, told = tmp_path / "a", [f"--data={text}", f"--method={method}", *SMALL]
    with train("--ranks=3", "--steps=100000", f"--out={a}", *told, folder=tmp_path) as job:
        until(lambda: (a / "log.txt").is_file(), job)
        until(lambda: "comes to step 10" in job.stdout.readline(), job)
        job.send_signal(signal.SIGINT)
        code, output = end(job)
    (step,) = steps(a / "checkpoints")
    assert code == 130, output
    assert f"stopped by SIGINT after step {step}; go on with: simdist train --ranks 3 --resume {a}" in output
    assert "Traceback" not in output
    stop = step + 40
    with train("--ranks=3", f"--resume={a}", f"--steps={stop}", folder=tmp_path) as job:
        code, output = end(job)
    assert code == 0, output
    assert f"goes on after step {step}, with steps {stop}, was 100000\n" in output
    assert list(losses(a)) == [1, *range(10, stop, 10), stop]
    assert (a / "samples.txt").is_file() and (a / "waiting.png").is_file()
