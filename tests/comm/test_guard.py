"""What a guard makes of the ways in which its process ends, here outside a job, and what it prints."""

import io
import os
import signal
import subprocess
import sys

import pytest
from jobs import ROOT

from simdist.comm.guard import _print
from simdist.errors import RankFailed


def test_a_message_with_a_file_name_that_is_no_text_is_printed_as_python_does(capfd):
    _print(RankFailed("no caf\udce9"))
    assert capfd.readouterr().err == "simdist: RankFailed: no caf\\udce9\n"


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_it_is_printed_even_where_the_program_has_put_away_stderr(capfd, monkeypatch, stderr):
    if stderr:
        stderr = io.StringIO()
        stderr.close()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        _print(RankFailed("gone"))
    assert capfd.readouterr().err == "simdist: RankFailed: gone\n"


ENDS = {
    "return": ("", 0, ""),
    "code": ("sys.exit(3)", 3, ""),
    "code of 8 bits": ("sys.exit(-1)", 255, ""),
    "code by the function for shells": ("exit(3)", 3, ""),
    "code by its other name": ("quit(code=3)", 3, ""),
    "error under another hook": ("sys.excepthook = lambda *_: os.write(2, b'mine'); 1 / 0", 1, "mine"),
    "another hook": ("sys.excepthook = print", 0, ""),
    "code that was caught before a message": (
        "try: sys.exit(3)\nexcept SystemExit: guard().watchdog.lines[0].count += 1",
        0,
        "",
    ),
    "words": ("sys.exit('enough')", 1, "enough"),
    "error": ("1 / 0", 1, "[rank 0] ZeroDivisionError: division by zero"),
    "error in a thread": ("run(lambda: 1 / 0); time.sleep(60)", 1, "[rank 0] ZeroDivisionError: division by zero"),
    "exit of a thread": ("run(lambda: sys.exit(3))", 0, ""),
    "error of a child": ("child(lambda: 1 / 0)", 0, "\nZeroDivisionError: division by zero"),
    "error in a child's thread": ("child(lambda: run(lambda: 1 / 0))", 0, "\nZeroDivisionError: division by zero"),
    "exit of a child": ("child(lambda: sys.exit(3))", 0, ""),
    "hook of a child": ("child(lambda: None)", 0, ""),
    "crash": ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "most recent call first"),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, ""),
}
PROGRAM = """
import os, signal, sys, threading, time
from simdist.comm.guard import guard

def run(what):
    thread = threading.Thread(target=what)
    thread.start()
    thread.join(1)

def child(what):
    if os.fork():
        return os.wait()
    what()
    sys.exit()

guard().drains.append(lambda: os.write(1, b"drained\\n"))
"""


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("end", ENDS)
def test_how_a_process_ends(end):
    what, code, words = ENDS[end]
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM + what],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == code
    assert words in found.stderr and bool(words) == bool(found.stderr)
    assert found.stdout == ("" if code else "drained\n"), "its streams end their work, once, unless it has failed"
