import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simdist.errors import ArgumentError, CheckpointError, DataError
from simdist.trace import Span, Trace
from simdist.training import Config, Line, Report, RunFolder, history, newest_run, read_toml

LINE = Line(3, 2.5, 2.25, 0.1, 1.5, 1e5, 0.5, 1000)


def test_a_run_leaves_its_files(tmp_path):
    config = Config(steps=3)
    folder = RunFolder(tmp_path / "a" / "b", config)
    folder.write_line(LINE)
    folder.write_line(LINE._replace(step=6))
    folder.write_end(Report(["it ran"], []), Trace([Span(0, "main", "step", 0.0, 1.0)], 1))
    assert Config(**read_toml(folder.path / "config.toml")) == config
    lines = [json.loads(text) for text in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [LINE._asdict(), LINE._replace(step=6)._asdict()]
    assert (folder.path / "report.txt").read_text() == "it ran\n"
    assert len(Trace.load(folder.path / "trace.json")) == 1


def test_a_run_that_goes_on_begins_without_the_results_of_the_one_before(tmp_path):
    """It may be stopped before it has any: they would be taken for its own."""
    folder = RunFolder(tmp_path, Config())
    folder.write_samples([(b"a", b"b")])
    folder.write_end(Report(["it ran"], []), Trace([Span(0, "main", "step", 0.0, 1.0)], 1))
    for name in ("loss.png", "staleness.png", "of_my_own.png"):
        (tmp_path / name).touch()
    folder.close()
    RunFolder(tmp_path, Config(), [LINE], again=True)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["config.toml", "log.txt", "metrics.jsonl", "of_my_own.png"]


def test_a_file_is_named_so_that_it_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RunFolder("out", Config(data="text"))
    assert read_toml(tmp_path / "out" / "config.toml")["data"] == str(tmp_path / "text")


def test_a_fresh_folder_is_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [str(RunFolder.fresh("mlp-4ranks", Config()).path) for _ in range(3)]
    assert names == ["runs/mlp-4ranks", "runs/mlp-4ranks-2", "runs/mlp-4ranks-3"]


def test_nor_is_that_of_two_runs_that_start_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "exists", lambda path: False)  # which another may change just then
    assert len({RunFolder.fresh("mlp-4ranks", Config()).path for _ in range(3)}) == 3


@pytest.mark.parametrize("make", [lambda: Path("runs").touch(), lambda: Path("runs").symlink_to("nowhere")])
def test_where_there_can_be_none_it_is_told(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    make()
    with pytest.raises(DataError, match="cannot make a folder in runs: File exists"):
        RunFolder.fresh("mlp-4ranks", Config())


def test_a_folder_whose_name_is_no_text_is_told_in_the_log(tmp_path):
    RunFolder(tmp_path / "caf\udce9", Config()).say("in caf\udce9")
    assert (tmp_path / "caf\udce9" / "log.txt").read_text() == "in caf?\n"


def test_an_earlier_log_is_replaced(tmp_path):
    RunFolder(tmp_path, Config()).write_line(LINE)
    assert (RunFolder(tmp_path, Config()).path / "metrics.jsonl").read_text() == ""


def test_what_another_run_left_to_go_on_from_is_not_mixed_with_this_one(tmp_path):
    (tmp_path / "checkpoints" / "step-3").mkdir(parents=True)
    with pytest.raises(ArgumentError, match="has checkpoints of an earlier run"):
        RunFolder(tmp_path, Config())
    RunFolder(tmp_path, Config(), [LINE], again=True)


def test_the_results_of_another_run_are_not_replaced(tmp_path):
    RunFolder(tmp_path, Config()).write_end(Report(["it ran"], []), Trace([], 1))
    with pytest.raises(ArgumentError, match="has the report of an earlier run: name another folder, or remove this"):
        RunFolder(tmp_path, Config(steps=3))
    assert (tmp_path / "report.txt").read_text() == "it ran\n"
    assert Config(**read_toml(tmp_path / "config.toml")) == Config()
    RunFolder(tmp_path, Config(), again=True)


def test_a_run_that_still_goes_on_is_not_disturbed(tmp_path):
    program = (
        "import sys; from simdist.training import Config, RunFolder; "
        "folder = RunFolder(sys.argv[1], Config(steps=3)); folder.say('first'); print('ready', flush=True); input()"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        for again in (False, True):
            with pytest.raises(ArgumentError, match=f"{tmp_path} is being written by another run: wait for its end"):
                RunFolder(tmp_path, Config(steps=9), again=again)
        assert Config(**read_toml(tmp_path / "config.toml")).steps == 3
        assert (tmp_path / "log.txt").read_text() == "first\n"
        other.communicate("\n")
    mine = RunFolder(tmp_path, Config(steps=9))
    with pytest.raises(ArgumentError, match="is being written by another run"):
        RunFolder(tmp_path, Config())
    mine.close()
    RunFolder(tmp_path, Config())


def test_a_run_goes_on_with_its_lines_and_its_log(tmp_path):
    first = RunFolder(tmp_path, Config())
    for step in (3, 6, 9):
        first.write_line(LINE._replace(step=step, train_loss=math.nan if step == 6 else 2.5))
    first.say("hello")
    with (tmp_path / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps(LINE._asdict() | {"step": "4"}) + "\n")  # someone's own
        metrics.write('{"step": 1')  # it died here
    lines, log = history(tmp_path, 6)
    assert [line.step for line in lines] == [3, 6]
    assert math.isnan(lines[1].train_loss)
    second = RunFolder(tmp_path / "b", Config(), lines, log)
    second.say("again")
    assert (second.path / "log.txt").read_text() == "hello\nagain\n"
    assert [json.loads(text)["step"] for text in (second.path / "metrics.jsonl").read_text().splitlines()] == [3, 6]
    with (tmp_path / "metrics.jsonl").open("a") as metrics:
        metrics.write("\n" + "[" * 100_000)  # no run's
    assert len(history(tmp_path, 6)[0]) == 2
    assert history(tmp_path / "none", 9) == ([], "")


def test_the_newest_run_is_that_of_the_latest_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match=r"no run under .*: checkpoint_every writes them; resume any other"):
        newest_run(tmp_path)
    for age, name in enumerate(["b/checkpoints/step-2", "c/checkpoints/step-1", "a/checkpoints/step-9"]):
        (tmp_path / name).mkdir(parents=True)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "d" / "checkpoints" / "step-3.tmp").mkdir(parents=True)  # now: of a run that crashed while writing it
    assert newest_run(tmp_path) == tmp_path / "b"


def test_samples_are_text_whatever_the_bytes(tmp_path):
    RunFolder(tmp_path, Config()).write_samples([(b"to be ", b"or not"), (b"\xff", "ü".encode())])
    text = (tmp_path / "samples.txt").read_text(encoding="utf-8")
    assert "to be \n--- goes on ---\nor not\n" in text
    assert "\ufffd\n--- goes on ---\nü" in text


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"output folder .*file"):
        RunFolder(tmp_path / "file" / "out", Config())


def test_what_cannot_be_written_names_the_folder(tmp_path):
    folder = RunFolder(tmp_path, Config())
    for name in ("log.txt", "metrics.jsonl", "samples.txt"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to("/dev/full")
    line = Line(1, 2.0, 2.0, 0.1, 0.0, 1.0, 0.0, 0)
    for write in (
        lambda: folder.say("x"),
        lambda: folder.write_line(line),
        lambda: folder.write_samples([(b"a", b"b")]),
    ):
        with pytest.raises(DataError, match=f"output folder {tmp_path}: No space left on device"):
            write()
