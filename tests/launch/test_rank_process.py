"""A script or module on one rank, which needs no launcher; what a task leaves for its parent."""

import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from jobs import ROOT

from simdist.errors import RankFailed
from simdist.launch.pickling import unpacked
from simdist.launch.rank_process import Task

TELL = "import os, sys, near; print(__name__, __file__, sys.argv[1:], sys.modules['__main__'].__name__, near.where)"


@pytest.fixture
def folder(tmp_path):
    """A folder with a script, and a module, which imports one beside it; there is another one on the path."""
    for name in ("here", "path"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "near.py").write_text(f"where = {name!r}")
    (tmp_path / "here" / "tell.py").write_text(TELL)
    return tmp_path


def rank_process(folder, place, *words, **variables):
    known = {"PYTHONPATH": os.pathsep.join([str(folder / "path"), str(ROOT)])}
    command = [sys.executable, "-m", "simdist.launch.rank_process", *words]
    return subprocess.run(
        command, cwd=folder / place, env=os.environ | known | variables, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("place", ["", "here"])
def test_a_script_runs_as_under_python(folder, place):
    script = os.path.relpath(folder / "here" / "tell.py", folder / place)
    found = rank_process(folder, place, script, "--a", "b")
    assert (found.stdout, found.stderr) == (f"__main__ {script} ['--a', 'b'] __main__ here\n", "")


def test_a_module_runs_as_under_python(folder):
    found = rank_process(folder, "here", "-m", "tell", "--a", "b")
    assert (found.stdout, found.stderr) == (f"__main__ {folder}/here/tell.py ['--a', 'b'] __main__ here\n", "")


def test_the_scripts_folder_is_not_searched_where_python_would_not(folder):
    found = rank_process(folder, "here", "tell.py", PYTHONSAFEPATH="1")
    assert (found.stdout, found.stderr) == ("__main__ tell.py [] __main__ path\n", "")


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("raise SystemExit('why')", 1), ("1 / 0", 1), ("", 0)])
def test_its_exit_code_is_the_processes(folder, end, code):
    (folder / "here" / "end.py").write_text(f"import sys\n{end}")
    assert rank_process(folder, "here", "end.py").returncode == code


class Mute(Exception):
    """An exception whose message fails."""

    def __str__(self):
        return self.words


@pytest.fixture
def task(tmp_path):
    """The task of rank 1 of 3, in a folder of its own, whose failures a guard would heed."""
    watchdog = SimpleNamespace(rank=1, size=3)
    return Task(SimpleNamespace(watchdog=watchdog), tmp_path)


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (ValueError("no"), "ValueError: no"),
        (Mute(), "Mute, whose message cannot be shown"),
        (ValueError(sys._getframe()), "ValueError: <frame .*> .which cannot be pickled: .*"),
    ],
)
def test_any_failure_is_left_for_the_parent(task, tmp_path, error, summary):
    task.leave_failure(error, "trace")
    told = json.loads((tmp_path / "rank-1.failure.json").read_text())
    assert (told["rank"], told["trace"]) == (1, "trace") and re.fullmatch(summary, told["summary"], re.DOTALL)
    assert 0 <= time.monotonic() - told["at_s"] < 60.0
    pickled = tmp_path / "rank-1.failure.pickle"
    assert pickled.exists() == ("pickled" not in summary)
    assert not pickled.exists() or type(unpacked(pickled.read_bytes())) is type(error)


def test_a_verdict_is_left_without_a_trace(task, tmp_path):
    task.leave_failure(RankFailed("it left"))
    told = json.loads((tmp_path / "rank-1.failure.json").read_text())
    assert (told["summary"], told["trace"]) == ("RankFailed: it left", "")


def test_what_is_left_in_part_is_not_there(task, tmp_path, monkeypatch):
    def full(path, data):
        path.touch()
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_bytes", full)
        with pytest.raises(OSError, match="no room"):
            task._leave("result.pickle", b"long")
    assert not list(tmp_path.iterdir())
    task._leave("result.pickle", b"long")
    assert [path.name for path in tmp_path.iterdir()] == ["rank-1.result.pickle"]
