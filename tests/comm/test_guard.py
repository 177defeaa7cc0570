"""What a guard makes of the ways in which its process ends, here outside a job, and what it prints."""

import atexit
import builtins
import faulthandler
import io
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from jobs import ROOT, job, needs_mpi

from simdist.comm import guard as module
from simdist.comm.board import LEFT
from simdist.comm.guard import BOARD, Guard, _print
from simdist.comm.line import END, EXIT, Line
from simdist.comm.open_requests import OpenRequests
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
    "crash": ("ctypes.string_at(0)", -signal.SIGSEGV, "most recent call first"),
    "error where MPI hangs and the alarm is the program's": (
        "signal.signal(signal.SIGALRM, print); guard().abort = hang; 1 / 0",
        1,
        "[rank 0] ZeroDivisionError: division by zero",
    ),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, ""),
}
PROGRAM = """
import ctypes, os, signal, sys, threading, time
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

def hang(code):
    while True:
        ctypes.PyDLL(None).sleep(60)  # which holds the GIL

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


@pytest.fixture
def guard(monkeypatch):
    """One that guards nothing: of rank 5, with two groups and something to free. Its sleeps take no time."""
    guard, clock = Guard.__new__(Guard), SimpleNamespace(now_s=100.0)

    def sleep(pause_s):
        clock.now_s += pause_s
        guard.pauses_s.append(pause_s)

    def conclude(error, code):
        raise RuntimeError(f"{error}: {code}") from error

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s, sleep=sleep))
    guard.watchdog = SimpleNamespace(rank=5, lines=[Line("main")], survives=False, conclude=conclude)
    guard.pauses_s, guard.freed, guard.open = [], [], OpenRequests()
    guard.frees = {name: lambda name=name: guard.freed.append(name) for name in ("b", "c", "a")}
    guard.groups = [
        SimpleNamespace(context=name, unreceived=lambda name=name: [f"of {name}"]) for name in ("world/1", "world")
    ]
    return guard


def test_who_has_ended_waits_for_all_and_then_frees_and_tells_what_remains(guard, capfd):
    line, seen = guard.watchdog.lines[0], []

    def ended():
        seen.append((line.waiting, list(guard.freed)))
        return len(seen) == 9

    guard._await_others(ended, 0)
    assert seen == [((EXIT, None, None, 0), [])] * 9 and line.waiting is None
    assert guard.pauses_s == [1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3, 2e-3, 2e-3, 2e-3]
    assert guard.freed == ["a", "b", "c"], "in an order that is the same on all ranks"
    assert capfd.readouterr().err == "simdist: rank 5 has ended, but\n  of world\n  of world/1\n"
    guard.groups = []
    guard._await_others(lambda: True, 0)
    assert capfd.readouterr().err == ""


def test_who_frees_what_ranks_share_waits_for_the_others_until_a_deadline(guard):
    line, guard.groups, seen = guard.watchdog.lines[0], [], []
    guard.frees = {"a": lambda: seen.append(line.waiting)}
    guard._await_others(lambda: True, 0)
    assert seen == [(END, None, None, 0)] and line.waiting is None


STUCK = """
import time
import numpy as np
import simdist as sd
from simdist.comm.guard import guard
from simdist.comm.watchdog import Watchdog

comm = sd.world()
comm.empty(4, np.int64)
Watchdog.start_timeout_s = 1.0
if comm.rank == 1:
    guard().frees[""] = lambda: time.sleep(60)
"""


@needs_mpi
def test_a_rank_that_is_stuck_as_they_free_what_they_share_does_not_stay(tmp_path):
    (tmp_path / "script.py").write_text(STUCK)
    code, output = job(2, tmp_path / "script.py", timeout_s=50)
    assert code == 1 and "DeadlineError" in output
    assert "waits in the end of MPI for the other ranks of the job" in output


def test_who_has_ended_with_a_code_tells_no_remains(guard, capfd):
    guard._await_others(lambda: True, 3)
    assert guard.freed == ["a", "b", "c"] and capfd.readouterr().err == ""


def test_who_has_ended_among_the_dead_frees_nothing_and_tells_no_remains(guard, capfd):
    guard.watchdog.survives = True
    guard._await_others(lambda: True, 0)
    assert guard.freed == [] and capfd.readouterr().err == ""
    assert guard.watchdog.lines[0].waiting is None


def test_who_has_ended_with_a_code_does_not_wait_for_ever(guard):
    with pytest.raises(RuntimeError, match="^rank 5 left with exit code 3 while others were at work: 3$"):
        guard._await_others(lambda: False, 3)
    assert 2.0 < sum(guard.pauses_s) < 2.01
    guard.groups, waited = [], iter([False] * 5000)
    guard._await_others(lambda: next(waited, True), 0)
    assert sum(guard.pauses_s) > 10.0, "but without one it does"


@pytest.fixture
def did(guard, monkeypatch):
    """What the guard does to its process, in order: that of a rank that has noted no code, in a job by MPI."""
    did = []

    def noting(name, result=None):
        return lambda *given: did.append((name, *given)) or result

    for name in ("alarm", "signal"):
        monkeypatch.setattr(signal, name, noting(name))
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda limit_s, **_: did.append(("later", limit_s)))
    for name, found in (("drop", None), ("shared_files", ["shared"]), ("files_of_start", ["start"])):
        monkeypatch.setattr(module, name, noting(name) if found is None else lambda found=found: found)
    monkeypatch.setattr(os, "_exit", noting("exit"))
    monkeypatch.setattr(sys, "excepthook", guard._uncaught)
    guard.abort, guard.finalize, guard.drains = noting("abort"), noting("finalize"), [noting("drain")]
    guard.meet, guard.fail = noting("meet", noting("met", result=True)), noting("fail")
    vars(guard.watchdog).update(
        board=SimpleNamespace(leave=noting("leave")),
        stop=noting("stop"),
        abandoned=False,
        orphaned=False,
        timeout_s=30.0,
    )
    guard.patience_s, guard.groups, guard._noted, guard._pid = 2.0, [], (0, 0), os.getpid()
    return did


@pytest.mark.parametrize("mpi", [True, False])
@pytest.mark.parametrize("lost", ["nobody", "parent", "launcher", "launcher and its room"])
def test_the_end_of_a_job_leaves_no_files_shows_what_was_written_and_goes_by_mpi(
    guard, did, monkeypatch, tmp_path, lost, mpi
):
    (tmp_path / "room").mkdir()
    guard.watchdog.orphaned, guard.watchdog.abandoned = lost != "nobody", lost.startswith("launcher")
    guard.abort = guard.abort if mpi else None
    with monkeypatch.context() as patch:
        patch.setenv(BOARD, str(tmp_path / ("gone" if "room" in lost else "room") / "board"))
        patch.setattr(sys, "stdout", None)
        patch.setattr(sys, "stderr", SimpleNamespace(flush=lambda: did.append("flush")))
        guard.end(3)
    assert did == [("drop", ["shared", "start"]), ("later", 3), "flush", *[("abort", 3)] * mpi, ("exit", 3)]
    assert guard.pauses_s == [2.1] * (lost == "nobody"), "for the launcher to report first"
    assert (tmp_path / "room").exists() == (lost != "launcher")


@pytest.mark.parametrize(("timeout_s", "alarm_s"), [(30.0, 60), (61.5, 61), (float("inf"), None)])
def test_who_leaves_ends_its_streams_then_waits_for_all_and_then_ends_mpi_within_some_time(
    guard, did, timeout_s, alarm_s
):
    guard.watchdog.timeout_s = timeout_s
    guard._depart()
    alarm = [("signal", signal.SIGALRM, signal.SIG_DFL), ("alarm", alarm_s)] if alarm_s else []
    assert did == [("drain",), ("leave", LEFT, 0), ("meet",), ("met",), ("stop",), *alarm, ("finalize",)]


def test_who_leaves_with_a_code_tells_it_and_ends_no_streams(guard, did):
    guard.note_exit(0x103)
    guard._depart()
    assert did[:2] == [("leave", LEFT, 3), ("meet",)]


@pytest.mark.parametrize(("hook", "noted", "code"), [("its own", 0, 1), ("its own", 3, 3), ("the guard's", 0, 0)])
def test_who_leaves_by_an_error_under_another_hook_tells_a_code(guard, did, monkeypatch, hook, noted, code):
    """Under the guard's own hook the last error was one that the program has shown and survived, as a console does."""
    monkeypatch.setattr(sys, "excepthook", print if hook == "its own" else guard._uncaught)
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    guard.note_exit(noted)
    guard._depart()
    assert ("leave", LEFT, code) in did


def test_who_leaves_without_mpi_only_ends_its_streams(guard, did):
    guard.watchdog.board = guard.abort = guard.finalize = guard.meet = None
    guard._depart()
    assert did == [("drain",), ("stop",)]


def test_a_child_that_leaves_does_nothing(guard, did):
    guard._pid += 1
    guard._depart()
    assert did == []


def test_a_stream_whose_work_fails_at_the_end_ends_the_job(guard, did):
    error = KeyboardInterrupt()

    def drain():
        raise error

    guard.drains = [drain]
    guard._depart()
    assert did[0] == ("fail", error)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
@pytest.mark.parametrize("of_main_thread", [True, False])
def test_ctrl_c_is_taken_from_python_alone_and_by_the_main_thread(guard, did, monkeypatch, handler, of_main_thread):
    for place, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit"), (threading, "excepthook")):
        monkeypatch.setattr(place, name, getattr(place, name))  # to be put back
    monkeypatch.setattr(atexit, "register", lambda what: did.append(what))
    monkeypatch.setattr(signal, "getsignal", {signal.SIGINT: handler}.get)
    if of_main_thread:
        guard._install()
    else:
        thread = threading.Thread(target=guard._install)
        thread.start()
        thread.join()
    taken = of_main_thread and handler is signal.default_int_handler
    assert did == [guard._depart] + [("signal", signal.SIGINT, signal.SIG_DFL)] * taken
