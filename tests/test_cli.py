import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simdist import cli
from simdist.cli import VERBS, main
from simdist.errors import WorldUnavailable
from simdist.launch.mpirun import find_mpirun
from simdist.training import Config, read_toml
from simdist.training.config import options

LIMIT_S = 120
SMALL = [
    "--batch=12",
    "--context=4",
    "--hidden-width=16",
    "--validation-windows=40",
    "--interval=2",
    "--sample-bytes=10",
]


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"she sells sea shells on the sea shore; " * 100)
    return str(file)


def command(*words, **variables):
    """Run `python -m simdist …` in a process group of its own: (code, output, errors). Nothing outlives it."""
    root = str(Path(cli.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root} | variables
    job = subprocess.Popen(
        [sys.executable, "-m", "simdist", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = job.communicate(timeout=LIMIT_S)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
    return job.returncode, out, err


def test_without_a_verb_it_lists_them(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize(("words", "expected"), [(["--help"], "verbs:"), (["--version"], "simdist ")])
def test_questions_without_a_verb(words, expected, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    assert end.value.code == 0
    assert f"simdist {verb}" in capsys.readouterr().out


def test_an_unknown_verb_is_refused_with_the_nearest(capsys):
    assert main(["trian"]) == 2
    assert "unknown verb 'trian'; did you mean 'train'?" in capsys.readouterr().err


def test_every_setting_is_an_option(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    out = capsys.readouterr().out
    for name, option in options():
        assert f"--{name.replace('_', '-')}" in out
        assert option.help.split()[0] in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps=0"], "steps is 0; needs at least 1"),
        (["--algorithm=rign"], "did you mean 'ring'"),
        (["--data=/nowhere/text"], "cannot read the data file /nowhere/text: No such file"),
        (["--config=/nowhere/c.toml"], "cannot read the config file /nowhere/c.toml"),
        (["--zero=2", "--compress=top-k"], "compress is top-k, and method zero; compress is for method compressed"),
        (["--zero=1", "--method=ddp"], "zero is 1, and method ddp"),
        (["--zero=3", "--bucket-bytes=9"], "bucket_bytes is 9, and method fsdp"),
        (["--zero=1", "--offload=gradients"], "offload of gradients in stage 1"),
        (["--zero=2", "--algorithm=tree"], "algorithm is tree, and method zero; needs auto or ring"),
        (["--compress=8-bit", "--precision=bf16"], "precision is bf16, and compress 8-bit; needs float32 or float64"),
        (["--batch=8", "--micro-batches=9"], "micro_batches is 9 and global_batch_size 8"),
        (["--momentum=0.5", "--optimizer=adamw"], "momentum is for optimizer sgd, lars"),
        (["--resume=/nowhere"], "cannot read the config file /nowhere/config.toml"),
    ],
)
def test_a_users_mistake_is_one_line(words, message, capsys):
    assert main(["train", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("simdist train: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--momentum=2", "momentum is 2.0"),
        ("--data=/nowhere", "/nowhere: No"),
        ("--model=gpt --width=10", "width is 10 and heads is 4"),
    ],
)
def test_a_mistake_is_found_before_ranks_are_started(words, message, capsys, monkeypatch):
    monkeypatch.delattr("simdist.cli.train.launch_script")
    assert main(["train", "--ranks=2", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_nothing_to_run_is_refused(capsys):
    assert main(["run", "-n", "2"]) == 2
    assert "no script to run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "3", "a.py", "-n", "5"], (3, ["a.py", "-n", "5"])),
        (["a.py"], (4, ["a.py"])),
        (["--ranks=2", "-m", "a.b", "--help"], (2, ["-m", "a.b", "--help"])),
    ],
)
def test_run_hands_over_the_scripts_own_arguments(words, expected, monkeypatch):
    started = []
    monkeypatch.setattr("simdist.cli.run.launch_script", lambda ranks, argv: started.append((ranks, argv)) or 7)
    assert main(["run", *words]) == 7
    assert started == [expected]


def test_train_hands_its_options_to_the_ranks(monkeypatch, text, tmp_path):
    started = []
    monkeypatch.setattr(
        "simdist.cli.train.launch_script", lambda *started_with, heed: started.append((*started_with, heed)) or 7
    )
    (tmp_path / "c.toml").write_text("steps = 3\n")
    given = [f"--config={tmp_path / 'c.toml'}", "--out=-x"]
    heeded = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    assert main(["train", "--ranks", "2", *given, "--lr", "0.5", "--data", text]) == 7
    assert started == [(2, ["-m", "simdist", "train", f"--data={text}", "--learning-rate=0.5", *given], heeded)]


def test_one_rank_trains_and_leaves_its_folder(text, tmp_path, capsys):
    (tmp_path / "c.toml").write_text("steps = 99\nseed = 5\n")
    words = ["--steps=4", "--config", str(tmp_path / "c.toml"), "--data", text, "--out", str(tmp_path / "out")]
    assert main(["train", *words, *SMALL]) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [
        *("config.toml", "log.txt", "loss.png", "metrics.jsonl", "report.txt", "samples.txt"),
        *("timeline.png", "trace.json"),
    ]
    config = Config(**read_toml(tmp_path / "out" / "config.toml"))
    assert (config.steps, config.seed, config.global_batch_size) == (4, 5, 12)
    out = capsys.readouterr().out
    assert "validation loss" in out
    assert len([line for line in out.splitlines() if line.strip()[:1] in "124"]) >= 3


def test_a_run_goes_on_in_its_folder(text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume"]) == 2
    assert "no run under runs has a checkpoint" in capsys.readouterr().err
    told = ["--steps=6", "--data", text, *SMALL, "--sample-bytes=0", "--checkpoint-every=4", "--keep-checkpoints=0"]
    assert main(["train", *told]) == 0
    run = tmp_path / "runs" / "mlp-1rank"
    whole = (run / "metrics.jsonl").read_text().splitlines()
    assert main(["train", "--resume", str(run)]) == 2
    assert "steps is 6, and 6 are done" in capsys.readouterr().err
    shutil.rmtree(run / "checkpoints" / "step-6")
    assert main(["train", "--resume"]) == 0
    out = capsys.readouterr().out
    assert "goes on after step 4\n" in out
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 4, 6]
    assert json.loads(lines[-1])["train_loss"] == json.loads(whole[-1])["train_loss"]
    log = (run / "log.txt").read_text()
    assert all(line in log for line in out.splitlines() if line.strip())
    shutil.rmtree(run / "checkpoints" / "step-6")
    assert main(["train", "--resume", str(run), "--out=else", "--optimizer=adamw"]) == 2
    assert "no tensor 'adamw.m/" in capsys.readouterr().err


def test_ranks_train_from_one_command(text, tmp_path):
    try:
        find_mpirun()
    except WorldUnavailable as reason:
        pytest.skip(str(reason))
    out = tmp_path / "out"
    code, told, errors = command("train", "--ranks=2", "--steps=5", f"--data={text}", f"--out={out}", *SMALL)
    assert code == 0, errors
    assert "2 ranks, ddp: all_reduce" in told
    assert "bytes sent a step, rank 0" in told
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 4
    assert (out / "timeline.png").stat().st_size > 0


def test_a_job_of_another_size_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("simdist.cli.train.in_job", lambda: True)
    assert main(["train", "--ranks=2"]) == 2
    assert "--ranks is 2 inside a job of 1 ranks" in capsys.readouterr().err
