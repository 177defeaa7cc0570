"""A script or module on one rank, which needs no launcher."""

import os
import subprocess
import sys

import pytest
from jobs import ROOT

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
