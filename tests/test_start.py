"""Ctrl-C while simdist's modules are still being loaded, which takes half a second."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import simdist

ROOT = Path(simdist.__file__).parent.parent


def interrupted(folder, *words):
    """How a program ends that hears of Ctrl-C in the middle of simdist's imports: (code, errors)."""
    (folder / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n1 / 0")
    (folder / "simdist").write_text("from simdist.cli import main\nmain()")
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=variables, timeout=60, cwd="/")
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["simdist"], ["-m", "simdist"], ["-m", "simdist.launch.rank_process"]])
def test_it_ends_simdists_own_programs_in_a_line(tmp_path, words):
    words = [str(tmp_path / words[0]), "train"] if words[0] == "simdist" else words
    assert interrupted(tmp_path, *words) == (130, "simdist: interrupted\n")


def test_in_other_programs_it_is_what_it_is():
    code = "import signal; {}; import simdist; print(repr(signal.getsignal(signal.SIGINT)))"
    for before, after in (("0", "default_int_handler"), ("signal.signal(2, signal.SIG_IGN)", "SIG_IGN")):
        done = subprocess.run([sys.executable, "-c", code.format(before)], capture_output=True, text=True, timeout=60)
        assert after in done.stdout


def test_others_hear_of_it_as_ever(tmp_path):
    code, errors = interrupted(tmp_path, "-c", "import simdist")
    assert code == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")


DROPPED = """
import os, signal, sys, time, weakref
import simdist

class Array: ...

def freed(reference):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)  # Python drops what is raised here

array = Array()
reference = weakref.ref(array, freed)
try:
    del array
    time.sleep(30)
except KeyboardInterrupt:
    sys.exit("heard")
"""


def test_it_is_heard_where_python_would_drop_it(tmp_path):
    program = tmp_path / "simdist"
    program.write_text(DROPPED)
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=variables, timeout=60)
    assert (done.returncode, done.stderr) == (1, "heard\n")


def test_what_else_python_drops_is_told(tmp_path):
    program = tmp_path / "simdist"
    program.write_text(DROPPED.replace("os.kill(os.getpid(), signal.SIGINT)", "1 / 0").replace("sleep(30)", "sleep(0)"))
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=variables, timeout=60)
    assert done.returncode == 0
    assert "Exception ignored" in done.stderr
    assert "ZeroDivisionError" in done.stderr
