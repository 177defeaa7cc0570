import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import needs_mpi

from simdist import cli
from simdist.cli import VERBS, main
from simdist.errors import WorldUnavailable
from simdist.launch.mpirun import find_mpirun
from simdist.parallel.pipeline import Schedule
from simdist.training import Config, Trainer, read_toml
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], "verbs:"),
        (["--version"], "simdist "),
        (["help"], "verbs:"),
        (["help", "plot"], "usage: simdist plot"),
    ],
)
def test_questions_without_a_verb(words, expected, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert expected in capsys.readouterr().out


def test_what_the_terminal_has_no_letters_for_ends_nothing():
    """The model's own bytes, of which many are no text, and the ellipsis of the help."""
    code, out, err = command(PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "simdist VERB ?" in out


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_verb_has_help_also_in_narrow_terminals(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert f"simdist {verb}" in out
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.parametrize("verb", ["", "train", "plan", "predict"])
def test_the_commands_that_the_help_begins_with_can_be_executed(verb, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("simdist.cli.train.launch_script", lambda ranks, argv, **_: 0)
    with pytest.raises(SystemExit):
        main([*verb.split(), "--help"])
    told = " ".join(capsys.readouterr().out.split())
    pattern = rf"For example: simdist ({verb} .*?)\. " if verb else r"`simdist ([a-z][^`]*)`"
    commands = re.findall(pattern, told)
    assert commands
    for command in commands:
        assert main(command.split()) == 0, command


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
    models = dict(options())["model"].names
    assert len(models) > 100 and f"{models[-1]}; {len(models)} in all" in out
    assert models[0] in out and models[len(models) // 2] not in out  # too many to read


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps=0"], "steps is 0; needs at least 1"),
        (["--algorithm=rign"], "did you mean 'ring'"),
        (["--data=/nowhere/text"], "cannot read the data file /nowhere/text: No such file"),
        (["--data=/dev/zero"], "the data file /dev/zero is a device or a pipe; needs a regular file"),
        (["--config=/nowhere/c.toml"], "cannot read the config file /nowhere/c.toml"),
        (["--zero=2", "--compress=top-k"], "compress is top-k, and method zero; compress is for method compressed"),
        (["--zero=1", "--method=ddp"], "zero is 1, and method ddp"),
        (["--zero=3", "--bucket-bytes=9"], "bucket_bytes is 9, and method fsdp"),
        (["--world=virtual", "--ranks=4", "--zero=3", "--shards=3"], "shards is 3, and dp 4; needs a divisor of that"),
        (["--shards=2"], "shards is 2, and method ddp; shards is for method zero, fsdp, pipeline"),
        (["--pp=2", "--zero=1", "--check-every=2"], "check_every is 2, and zero 1; needs whole copies, and zero 0"),
        (["--pp=2", "--shards=1"], "shards is 1, and zero 0; needs zero 1 to 3"),
        (["--zero=1", "--offload=gradients"], "offload of gradients in stage 1"),
        (["--zero=2", "--algorithm=tree"], "algorithm is tree, and method zero; needs auto or ring"),
        (["--compress=8-bit", "--precision=bf16"], "precision is bf16, and compress 8-bit; needs float32 or float64"),
        (["--batch=8", "--micro-batches=9"], "micro_batches is 9 and global_batch_size 8"),
        (["--momentum=0.5", "--optimizer=adamw"], "momentum is for optimizer sgd, lars"),
        (["--resume=/nowhere"], "cannot read the config file /nowhere/config.toml"),
        (["--staleness=2"], "staleness is 2, and method ddp; staleness is for method ssp"),
        (["--method=ssp", "--backups=1"], "backups is 1, and method ssp; backups is for method backup"),
        (["--method=ssp", "--zero=1"], "zero is 1, and method ssp"),
        (["--method=bsp", "--algorithm=ring"], "algorithm is ring, and method bsp"),
        (["--method=bsp", "--graph=ring"], "graph is ring, and method bsp; graph is for method d-psgd, ad-psgd"),
        (["--method=d-psgd", "--graph=rung"], "unknown graph 'rung'; did you mean 'ring'"),
        (["--method=ssp", "--slow=2"], "slow is '2'; needs rank:factor, such as 2:4.0"),
        (["--method=ssp", "--slow=2:0"], "rank 2 cannot be slow by the factor 0.0"),
        (["--method=async", "--compute-time=exponential"], "compute_seconds 0.0; needs more than 0"),
        (["--method=ssp", "--precision=bf16"], "precision is bf16, and method ssp; needs float32 or float64"),
        (["--method=ssp", "--micro-batches=2"], "micro_batches is 2, and method ssp, which needs 1"),
        (["--method=ssp", "--model=gpt", "--dropout=0.1"], "dropout is 0.1, and method ssp"),
        (["--method=bsp", "--servers=2", "--optimizer=lamb"], "optimizer is lamb on 2 servers"),
        (["--method=diloco", "--steps=50"], "steps is 50 and local_steps 20; needs whole rounds"),
        (["--method=local-sgd", "--local-steps=0"], "local_steps is 0; needs at least 1"),
        (["--world=virtual", "--cluster=h1000"], "unknown cluster 'h1000'; did you mean 'h100'"),
        (["--cluster=h100"], "cluster is h100; that is for --world virtual"),
        (["--world=virtual", "--ranks=0"], "ranks is 0; needs a whole number of at least 1"),
        (["--world=virtual", "--method=async", "--survive"], "survive is on, and world virtual"),
        (["--method=async", "--dp=2"], "dp is 2, and method async, which needs 0"),
        (["--method=async", "--slow=1:2,1:3"], "slow is '1:2,1:3', which names rank 1 twice"),
        (["--hidden-width=9999999999"], "of this mlp has shape (9999999999, 9999999999): needs 799,999,999,840.0 GB"),
        (["--batch=1000000000000000000000000000000"], "needs at least 1 and less than 1,099,511,627,776"),
        (["--resume="], "cannot read the config file config.toml"),
        (["--config="], "cannot read the config file ."),
        (["--out="], "out is empty; needs the name of a folder"),
        (["--world=virtual", "--cluster="], "unknown cluster ''"),
        (["--sample-bytes=1000000000000"], "sample_bytes is 1000000000000; needs at least 0 and less than 1,048,576"),
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
        ("--data=/dev/null", "the data file /dev/null is a device or a pipe; needs a regular file"),
        ("--model=gpt --width=10", "width is 10 and heads is 4"),
        ("--method=ssp --servers=2", "servers is 2 on 2 ranks"),
        ("--pp=3", "pp 3 = 3 ranks, but there are 2"),
        ("--pp=2 --method=server", "pp is 2, and method server; pp is for method pipeline"),
        ("--pp=2 --schedule=1f2b", "unknown schedule '1f2b'; did you mean '1f1b'"),
        ("--pp=2 --dp=2 --schedule=pipedream --zero=1", "zero 1, and schedule pipedream, whose stages update"),
        ("--method=d-psgd --slow=2:4", "slow names rank 2; those that work are ranks 0 to 1"),
    ],
)
def test_a_mistake_is_found_before_ranks_are_started(words, message, capsys, monkeypatch):
    monkeypatch.delattr("simdist.cli.train.launch_script")
    assert main(["train", "--ranks=2", *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["plot", "x", "--out=--"], ["plot", "x", "--against=--"]])
def test_two_dashes_are_no_value(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err == f"simdist plot: {words[-1].partition('=')[0]} is '--'; needs a value\n"


@pytest.mark.parametrize("words", [["bench", "--ranks=--"], ["run", "--ranks=--"], ["train", "--steps=--"]])
def test_two_dashes_are_no_number(words, capsys):
    try:
        code = main(words)
    except SystemExit as end:  # a newer argparse takes them for the value, which is not a number
        code = end.code
    assert code == 2
    assert words[-1].partition("=")[0] in (err := capsys.readouterr().err) and "'--'" in err


def test_nothing_to_run_is_refused(capsys):
    assert main(["run", "-n", "2"]) == 2
    assert "no script to run" in capsys.readouterr().err
    assert main(["run", "-n", "2", "-m", "nowhere.at.all"]) == 2
    assert "no module to run: nowhere.at.all" in capsys.readouterr().err


def test_two_dashes_before_a_script_are_no_part_of_it(monkeypatch):
    monkeypatch.setattr(
        "simdist.cli.run.launch_script", lambda ranks, argv, survive: argv == ["a.py", "--", "-x"] and 7
    )
    assert main(["run", "-n", "2", "--", "a.py", "--", "-x"]) == 7
    assert main(["run", "-n", "2", "a.py", "--", "-x"]) == 7


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "3", "a.py", "-n", "5"], (3, ["a.py", "-n", "5"], False)),
        (["--survive", "a.py", "--survive"], (4, ["a.py", "--survive"], True)),
        (["--ranks=2", "-m", "a.b", "--help"], (2, ["-m", "a.b", "--help"], False)),
    ],
)
def test_run_hands_over_the_scripts_own_arguments(words, expected, monkeypatch):
    started = []
    monkeypatch.setattr(
        "simdist.cli.run.launch_script", lambda *started_with, survive: started.append((*started_with, survive)) or 7
    )
    assert main(["run", *words]) == 7
    assert started == [expected]


def test_train_hands_its_options_to_the_ranks(monkeypatch, text, tmp_path):
    started = []
    monkeypatch.setattr(
        "simdist.cli.train.launch_script",
        lambda *started_with, heed, survive: started.append((*started_with, heed, survive)) or 7,
    )
    (tmp_path / "c.toml").write_text("steps = 3\n")
    given = [f"--config={tmp_path / 'c.toml'}", "--out=-x"]
    heeded = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    assert main(["train", "--ranks", "2", *given, "--lr", "0.5", "--data", text]) == 7
    assert started == [(2, ["-m", "simdist", "train", f"--data={text}", "--learning-rate=0.5", *given], heeded, False)]


def test_one_rank_trains_and_leaves_its_folder(text, tmp_path, capsys):
    (tmp_path / "c.toml").write_text("steps = 99\nseed = 5\n")
    words = ["--steps=4", "--config", str(tmp_path / "c.toml"), "--data", text, "--out", str(tmp_path / "out")]
    assert main(["train", *words, *SMALL]) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [
        *("config.toml", "log.txt", "loss.png", "loss_by_time.png", "memory.png", "metrics.jsonl", "report.txt"),
        *("samples.txt", "timeline.png", "trace.json"),
    ]
    config = Config(**read_toml(tmp_path / "out" / "config.toml"))
    assert (config.steps, config.seed, config.global_batch_size) == (4, 5, 12)
    out = capsys.readouterr().out
    assert "validation loss" in out
    assert len([line for line in out.splitlines() if line.strip()[:1] in "124"]) >= 3


@pytest.mark.parametrize("method", ["ddp", "async"])
@pytest.mark.usefixtures("undrawn")
def test_a_run_without_validation_says_nothing_of_it(text, tmp_path, capsys, method):
    words = ["--world=virtual", "--ranks=2", f"--method={method}", "--data", text, "--out", str(tmp_path)]
    assert main(["train", *words, "--steps=4", *SMALL, "--validation-windows=0"]) == 0
    out = capsys.readouterr().out
    assert "tokens/s" in out
    assert not re.search(r"valid\.|validation (loss|text)|\bnan\b", out)


@pytest.mark.parametrize("method", ["ddp", "async"])
def test_a_run_whose_files_cannot_be_written_has_shown_its_results(text, tmp_path, capsys, method):
    (tmp_path / "run" / "trace.json").mkdir(parents=True)
    words = [f"--method={method}", "--data", text, "--out", str(tmp_path / "run"), "--steps=4", *SMALL]
    assert main(["train", "--world", "virtual", "--ranks", "2", *words]) == 2
    out, err = capsys.readouterr()
    assert "cannot write the trace" in err
    assert re.search(r"^validation loss +\d", out, re.MULTILINE)
    assert "it writes" in out


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("method", ["ddp", "async", "local-sgd"])
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_diverges_says_once_in_which_step(text, tmp_path, capsys, method):
    words = [f"--method={method}", "--data", text, "--out", str(tmp_path / "run"), "--learning-rate=1e10", "--steps=9"]
    words += SMALL
    assert main(["train", "--world", "virtual", "--ranks", "2", *words]) == 0
    told = re.findall(r"the loss of step (\d+) is not finite", capsys.readouterr().out)
    assert len(told) == 1
    assert 2 <= int(told[0]) <= 4


@pytest.mark.usefixtures("undrawn")
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
    assert "checkpoints every 4 steps; from the last one go on with: simdist train --resume runs/mlp-1rank\n" in out
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 4, 6]
    assert json.loads(lines[-1])["train_loss"] == json.loads(whole[-1])["train_loss"]
    log = (run / "log.txt").read_text()
    assert all(line in log for line in out.splitlines() if line.strip())
    shutil.rmtree(run / "checkpoints" / "step-6")
    shutil.copytree(run, "other")
    assert main(["train", "--resume", str(run), "--out=other"]) == 2
    assert "other has checkpoints of an earlier run" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--out=else"]) == 0
    assert len((tmp_path / "else" / "metrics.jsonl").read_text().splitlines()) == 4
    assert main(["train", "--resume", str(run), "--out=else", "--optimizer=adamw"]) == 2
    assert "the optimizer of the checkpoint is sgd, and that of this run adamw: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_virtual_ranks_go_on_on_what_they_were_on(text, tmp_path, capsys):
    words = ["--world=virtual", "--ranks=3", f"--out={tmp_path}"]
    told = [f"--data={text}", *SMALL, "--checkpoint-every=2", "--steps=2"]
    assert main(["train", *words, "--cluster=a100", *told]) == 0
    assert main(["train", *words, f"--resume={tmp_path}", "--steps=4"]) == 0
    assert capsys.readouterr().out.count("times those of a model of a100") == 2
    assert main(["train", *words, f"--resume={tmp_path}", "--steps=6", "--cluster=h100"]) == 0
    assert "times those of a model of h100" in capsys.readouterr().out


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


def test_a_pipeline_leaves_its_schedule(text, tmp_path, capsys):
    words = ["--world=virtual", "--ranks=4", "--pp=2", "--schedule=zb-h1", "--micro-batches=4", "--steps=3"]
    assert main(["train", *words, "--data", text, "--out", str(tmp_path), *SMALL]) == 0
    out = capsys.readouterr().out
    assert "4 ranks, dp 2 x pp 2, zb-h1: " in out and "pipeline: bubble of the makespan" in out
    assert (tmp_path / "schedule.png").stat().st_size > 10_000


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("name", ["zb-h1", "zb-v", "pipedream-2bw"])
@pytest.mark.usefixtures("undrawn")
def test_a_schedule_of_ones_own_is_drawn_and_then_trained_with(name, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["--pp=2", "--micro-batches=4"]
    told = [*line, "--world=virtual", "--ranks=2", "--steps=3", "--data", text, *SMALL, "--hidden-layers=3"]
    assert main(["plot", "schedule", name, "--stages=2", "--micro-batches=4", "--text"]) == 0
    Path("mine.txt").write_text(capsys.readouterr().out.partition(f"{name}: makespan")[0])
    assert main(["plot", "schedule", "mine.txt"]) == 0
    assert main(["train", *told, f"--schedule={name}", "--out=named"]) == 0
    assert main(["train", *told, "--schedule=mine.txt", "--out=read", "--checkpoint-every=3"]) == 0
    assert "2 ranks, dp 1 x pp 2, mine.txt" in capsys.readouterr().out
    named, read = (Path(out, "metrics.jsonl").read_text().splitlines() for out in ("named", "read"))
    losses = [[json.loads(line)["train_loss"] for line in lines] for lines in (named, read)]
    assert losses[0] == losses[1]
    Path("mine.txt").write_text("F0\n")  # the run has its own copy
    monkeypatch.chdir(tmp_path / "read")
    assert main(["train", "--world=virtual", "--ranks=2", "--resume=.", "--steps=4"]) == 0
    out = capsys.readouterr().out
    assert "2 ranks, dp 1 x pp 2, schedule.txt" in out
    assert "goes on after step 3, with steps 4, was 3\n" in out
    Path("other.txt").write_text("# the same rows\n" + Path("schedule.txt").read_text())
    assert main(["train", "--world=virtual", "--ranks=2", "--resume=.", "--steps=5", "--schedule=other.txt"]) == 0
    assert "goes on after step 4, with steps 5, was 4\n" in capsys.readouterr().out
    Path("other.txt").write_text("F0 F1 F2 F3 B0 B1 B2 B3\n" * 2)
    assert main(["train", "--world=virtual", "--ranks=2", "--resume=.", "--steps=6", "--schedule=other.txt"]) == 0
    assert re.search(r"with steps 6, was 5; .*schedule of rows \w{8}, was of rows", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "rows", "fault"),
    [
        ("--micro-batches=2", "F0 F1 B0 B1\nF0 B0 F1 B1\n", "mine.txt is a schedule of 2 ranks and 2 micro-batches; "),
        ("--pp=2 --micro-batches=3", "F0 F1 B0 B1\nF0 B0 F1 B1\n", "2 stages and 3 micro-batches are"),
        ("--pp=2 --micro-batches=2", "F0 F1 B0 B1\nF0 B0 F1\n", "micro-batch 1 needs F1 and B1"),
        ("--pp=2 --micro-batches=2 --chunks=2", "F0 F1 B0 B1\nF0 B0 F1 B1\n", "chunks is for schedule"),
        ("--pp=2 --micro-batches=2", "F0 X1\n", "'X1' in the row of rank 0 is no action"),
        ("--pp=2 --schedule=nowhere.txt", "", "cannot read the schedule nowhere.txt"),
    ],
)
def test_schedules_of_ones_own_that_cannot_be(words, rows, fault, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text(rows)
    told = ["--world=virtual", "--ranks=2", "--data", text, *SMALL, "--schedule=mine.txt"]
    assert main(["train", *told, *words.split()]) == 2
    assert fault in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "text"]


@pytest.mark.usefixtures("undrawn")
def test_virtual_ranks_train_on_a_cluster_that_is_not_there(text, tmp_path, capsys):
    words = ["--world=virtual", "--ranks=16", "--cluster=h100", "--steps=4", "--data", text, "--out", str(tmp_path)]
    assert main(["train", *words, *SMALL]) == 0
    out = capsys.readouterr().out
    assert "16 ranks, ddp" in out and "times those of a model of h100" in out
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert 0 < lines[0]["seconds"] < lines[-1]["seconds"] < 0.01
    assert lines[0]["gradient_norm"] is None  # of a gradient that is not clipped
    # And again, on what the run says that it was on.
    (tmp_path / "cluster.toml").rename(tmp_path / "ours.toml")
    assert main(["train", *words, *SMALL]) == 2
    assert "has the report of an earlier run" in capsys.readouterr().err
    ours = [f"--cluster={tmp_path / 'ours.toml'}", f"--out={tmp_path / 'again'}"]
    assert main(["train", *words, *ours, *SMALL]) == 0
    again = [json.loads(line) for line in (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()]
    assert again == lines


def test_what_a_model_would_cost_that_is_too_big_to_hold(text, tmp_path, capsys):
    words = ["--world=virtual", "--ranks=2", "--cluster=a100", "--device=phantom", "--data", text]
    model = ["--model=gpt", "--layers=3", "--width=24576", "--heads=8", "--context=32", "--tp=2", "--vocabulary=50000"]
    assert main(["train", *words, *model, "--batch=1", "--precision=bf16", "--out", str(tmp_path / "big")]) == 0
    out = capsys.readouterr().out
    assert "MFU" in out and "TFLOP/s a rank" in out
    assert not any(word in out for word in ("validation loss", "diverged", "nan"))
    assert re.search(r"it does not fit: rank [01], the fullest, holds [\d.]+ GB, and a device has 80 GB", out)
    left = {path.name for path in (tmp_path / "big").iterdir()}
    assert {"memory.png", "timeline.png"} <= left and not {"loss.png", "samples.txt", "checkpoints"} & left
    for wrong in (["--world=mpi"], ["--resume", str(tmp_path / "big")]):
        assert main(["train", *words, *wrong]) == 2
        assert "device phantom, and " in capsys.readouterr().err


@needs_mpi
def test_after_sigterm_nothing_is_left_of_the_jobs_that_a_command_started(tmp_path):
    """It killed the command at once, and the folder of its job stayed."""
    command = [sys.executable, "-m", "simdist", "bench", "--ranks=2", "--repeats=100000"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as process:
        for _ in range(600):  # a minute at most
            if list(tmp_path.glob("simdist-*/board")):
                break
            time.sleep(0.1)
        process.terminate()
        try:
            assert process.communicate(timeout=60)[1] == b"simdist bench: ended by SIGTERM\n"
        finally:
            process.kill()
    assert process.returncode == 143
    assert not list(tmp_path.iterdir())


def test_a_step_of_phantoms_need_not_be_waited_for(tmp_path):
    out = tmp_path / "out"
    words = ["train", "--world=virtual", "--ranks=8", "--device=phantom", "--model=gpt", "--layers=500", "--tp=4"]
    command = [sys.executable, "-m", "simdist", *words, "--micro-batches=16", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(600):  # a minute at most
            if (out / "log.txt").exists():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=60)[1].endswith("simdist train: interrupted\n")
        finally:
            process.kill()
    assert process.returncode == 130


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("words", "pictures"),
    [
        (["--method=ssp", "--staleness=3", "--slow=2:4.0"], {"staleness.png"}),
        (["--method=backup", "--compute-time=exponential"], {"staleness.png"}),
        (["--method=d-psgd", "--graph=complete"], {"consensus.png"}),
        (["--method=diloco", "--local-steps=2"], set()),
    ],
)
def test_ranks_that_need_not_wait_tell_who_waited(text, tmp_path, capsys, words, pictures):
    told = ["--world=virtual", "--steps=12", "--compute-seconds=0.01", "--data", text, "--out", str(tmp_path)]
    assert main(["train", *told, *words, *SMALL]) == 0
    out = capsys.readouterr().out
    assert "waited for others and their messages: rank 0 " in out and "rank 3 " in out
    found = {path.name for path in tmp_path.iterdir()}
    always = {"loss.png", "loss_by_time.png", "timeline.png", "waiting.png", "trace.json", "report.txt", "samples.txt"}
    assert found >= always | pictures
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 7
    log = (tmp_path / "log.txt").read_text()
    assert "validation loss" in log and "waited for others" in log


@pytest.mark.slow
def test_a_slow_rank_of_a_real_job(text, tmp_path):
    try:
        find_mpirun()
    except WorldUnavailable as reason:
        pytest.skip(str(reason))
    words = ["--method=ssp", "--staleness=3", "--slow=2:4.0", "--staleness-aware", f"--out={tmp_path / 'out'}"]
    code, told, errors = command("train", "--ranks=4", "--steps=20", f"--data={text}", *words, *SMALL)
    assert code == 0, errors
    assert (
        "waited for others and their messages: rank 0 " in told and "1 server, 3 workers at most 3 steps apart" in told
    )
    assert not errors.strip(), errors
    assert (tmp_path / "out" / "waiting.png").stat().st_size > 0


@pytest.mark.usefixtures("undrawn")
def test_an_asynchronous_report_has_the_experts_auxiliary_loss(text, tmp_path):
    words = ["--world=virtual", "--ranks=3", "--method=async", "--steps=3", "--model=gpt", "--layers=1", "--width=16"]
    words += ["--heads=2", "--context=16", "--experts=2", "--sample-bytes=0", "--data", text]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    told = f"\nexperts: auxiliary loss {last['auxiliary_loss']:.4f} nats a byte, beside the loss\n"
    assert last["auxiliary_loss"] > 0 and told in (tmp_path / "run" / "report.txt").read_text()


@pytest.mark.usefixtures("undrawn")
def test_an_asynchronous_run_goes_on(text, tmp_path, capsys):
    words = ["--world=virtual", "--method=async", "--steps=6", "--checkpoint-every=2", "--data", text]
    folder = tmp_path / "my run"
    assert main(["train", *words, "--out", str(folder), *SMALL]) == 0
    capsys.readouterr()
    assert main(["train", "--world=virtual", "--resume", str(folder), "--steps=9"]) == 0
    told = capsys.readouterr().out
    assert "goes on after step 6, with steps 9, was 6\n" in told and "9 steps of each worker" in told
    assert f"go on with: simdist train --world virtual --ranks 4 --resume '{folder}'\n" in told
    lines = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == sorted(set(lines)) and lines[0] == 1 and lines[-1] == 9


@pytest.mark.usefixtures("undrawn")
def test_a_run_on_one_virtual_rank_goes_on_with_one(text, tmp_path, capsys):
    words = ["--world=virtual", "--ranks=1", "--steps=2", "--checkpoint-every=2", "--sample-bytes=0", "--data", text]
    assert main(["train", *words, "--out", str(tmp_path), *SMALL]) == 0
    assert f"go on with: simdist train --world virtual --ranks 1 --resume {tmp_path}\n" in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
def test_a_run_stopped_in_its_last_step_is_not_to_be_resumed(text, tmp_path, capsys, monkeypatch):
    train = Trainer._step

    def interrupted(trainer, part):
        train(trainer, part)
        if trainer.done == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    words = ["--world=virtual", "--ranks=1", "--steps=2", "--data", text, "--out", str(tmp_path)]
    assert main(["train", *words, *SMALL]) == 130
    assert "\nstopped by SIGINT after step 2, the last\n" in capsys.readouterr().out
    assert main(["train", "--world=virtual", "--ranks=1", "--resume", str(tmp_path)]) == 2
    assert "steps is 2, and 2 are done" in capsys.readouterr().err


def test_only_some_methods_survive_a_death(text, tmp_path, capsys):
    assert main(["train", "--survive", "--ranks=3", "--method=bsp", "--data", text, "--out", str(tmp_path)]) == 2
    assert "survive is on, and method bsp; needs async, ssp, backup" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_that_cannot_be_is_told_once_in_a_line(text, tmp_path):
    try:
        find_mpirun()
    except WorldUnavailable as reason:
        pytest.skip(str(reason))
    for method in ("ddp", "d-psgd"):
        words = [f"--method={method}", "--steps=1", f"--data={text}", f"--out={text}", *SMALL]
        code, told, errors = command("train", "--ranks=2", *words)
        assert code == 2 and not told
        line = f"rank 0: cannot write to the output folder {text}: File exists"
        own = [each for each in errors.splitlines() if each.startswith("simdist")]  # Open MPI's launcher has its words
        assert own == [f"simdist train: {line}"]
        assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "--stpes", "5"], "train: unknown option '--stpes'; did you mean '--steps'?"),
        (["train", "--gpus", "4"], "train: unknown option '--gpus'; did you mean '--ranks'?"),
        (["train", "--seq-length=64"], "train: unknown option '--seq-length'; did you mean '--context'?"),
        (["train", "--cp", "2"], "train: unknown option '--cp'; did you mean '--sp'?"),
        (["train", "--vocab-size=64"], "train: unknown option '--vocab-size'; did you mean '--vocabulary'?"),
        (["train", "--nnodes=2"], "train: unknown option '--nnodes'; did you mean '--ranks'?"),
        (["train", "--step=5"], "train: unknown option '--step'; did you mean '--steps'?"),
        (["plot", "x.json", "--rnak", "3"], "plot: unknown option '--rnak'; did you mean '--ranks'?"),
        (["run", "--quick", "-n", "2", "x.py"], "run: unknown option '--quick'. There are: --help, --ranks, --survive"),
        (["doctor", "now"], "doctor: unexpected 'now'\nusage: simdist doctor [-h]"),
    ],
)
def test_an_option_that_does_not_exist_is_told_with_the_nearest(words, told, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err == f"simdist {told}\n"


def test_an_error_in_an_extension_is_told_with_its_line(capsys, monkeypatch):
    """What simdist refuses may have been made many lines before, by a file that simdist does not name otherwise."""

    def execute(args):
        Schedule("mine", [["F0"]])

    monkeypatch.setattr("simdist.cli.train.execute", execute)
    assert main(["train"]) == 2
    told, where = capsys.readouterr().err.splitlines()
    assert told.startswith("simdist train: row 0 of schedule mine is ['F0']")
    assert where == f"  in {__file__}, line {execute.__code__.co_firstlineno + 1}"


def test_an_interrupt_is_no_traceback(capsys, monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("simdist.cli.train.execute", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "simdist train: interrupted\n"


@pytest.mark.parametrize("words", [["--help"], ["plot", "schedule", "1f1b", "--text"]])
def test_where_nobody_reads_on_it_ends_without_a_word(words):
    assert unread(*words) == (141, "")


def test_nor_does_a_job_say_anything(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time, simdist as sd; sd.world(); print(1, flush=True); time.sleep(60)")
    try:
        kind = find_mpirun().kind
    except WorldUnavailable as reason:
        pytest.skip(str(reason))
    if kind == "openmpi":
        pytest.skip("Open MPI's launcher tells of it")
    assert unread("run", "-n", "2", str(script)) == (141, "")


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("where", [["--world=virtual"], pytest.param([], marks=needs_mpi)])
def test_streams_that_are_closed_stop_nothing(where, text, tmp_path):
    words = ["train", *where, "--ranks=2", "--steps=2", "--data", text, "--out", str(tmp_path / "run"), *SMALL]
    command = shlex.join([sys.executable, "-m", "simdist", *words])
    subprocess.run(f"exec {command} <&- >&- 2>&-", shell=True, timeout=LIMIT_S, check=True)
    assert "validation loss" in (tmp_path / "run" / "report.txt").read_text()


def unread(*words):
    """Run `python -m simdist …` with its output into a pipe that nobody reads from: (code, errors)."""
    read, write = os.pipe()
    os.close(read)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "simdist", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, timeout=LIMIT_S)
    os.close(write)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_the_output_is_a_line():
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "simdist", "plot", "schedule", "1f1b", "--text"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (2, "simdist plot: cannot write: No space left on device\n")
