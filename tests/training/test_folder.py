import json

import pytest

from simdist.errors import DataError
from simdist.trace import Span, Trace
from simdist.training import Config, Line, Report, RunFolder, read_toml

LINE = Line(3, 2.5, 2.25, 0.1, 1e5, 0.5, 1000)


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


def test_a_file_is_named_so_that_it_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RunFolder("out", Config(data="text"))
    assert read_toml(tmp_path / "out" / "config.toml")["data"] == str(tmp_path / "text")


def test_a_fresh_folder_is_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [str(RunFolder.fresh("mlp-4ranks", Config()).path) for _ in range(3)]
    assert names == ["runs/mlp-4ranks", "runs/mlp-4ranks-2", "runs/mlp-4ranks-3"]


def test_an_earlier_log_is_replaced(tmp_path):
    RunFolder(tmp_path, Config()).write_line(LINE)
    assert (RunFolder(tmp_path, Config()).path / "metrics.jsonl").read_text() == ""


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"output folder .*file"):
        RunFolder(tmp_path / "file" / "out", Config())
