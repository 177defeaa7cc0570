"""How a job ends that goes on without a rank that died; its launcher is a process that only sleeps."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from subprocess import PIPE

import pytest
from jobs import needs_mpi, until

from simdist.comm.board import AT_WORK, FAILED, LEFT, Board, alive
from simdist.launch.job import Death, Job
from simdist.launch.mpirun import Mpirun
from simdist.launch.signals import how_ended, is_ending

pytestmark = needs_mpi


def with_a_death(job, state, code=0, since_s=0.0, died_s=100.0):
    """Of the two ranks of this job the last died so long ago, and the first has been in this state for so long."""
    board = Board(job.folder / "board", 0)
    board.take(0)
    board.leave(state, code)
    board._write(since_s=time.monotonic() - since_s)
    board._rows["state"][1] = AT_WORK
    board.close()
    job.deaths.append(Death(1, 0, time.monotonic() - died_s, "was killed by signal 9 (SIGKILL)"))


@pytest.mark.parametrize(
    ("survive", "state", "code", "found"),
    [
        (True, LEFT, 0, 0),  # all went well, but MPI did not end by itself
        (True, LEFT, 3, 3),
        (True, FAILED, 1, 1),
        (True, AT_WORK, 0, 1),
        (False, LEFT, 0, 1),
    ],
)
def test_the_code_of_a_job_that_has_to_be_ended(monkeypatch, survive, state, code, found):
    with Job(2, 5.0, survive) as job:
        with_a_death(job, state, code)
        monkeypatch.setattr(job, "_why_overdue", lambda: "it went on")
        job._process = launcher = subprocess.Popen(["sleep", "100"], start_new_session=True)
        assert job.poll(0.0) == found
        assert launcher.poll() is not None and job.overdue == "it went on"


@pytest.mark.parametrize(("survive", "found"), [(True, 0), (False, 1)])
def test_the_code_of_a_job_that_ends_by_itself(survive, found):
    with Job(2, 5.0, survive) as job:
        with_a_death(job, LEFT)
        job._process = subprocess.Popen(["true"], start_new_session=True)
        job._process.wait()
        assert job.poll(0.0) == found


@pytest.mark.parametrize(("survive", "why"), [(True, ""), (False, "it went on 2 s after rank 1 had died")])
def test_a_death_makes_a_job_overdue_unless_that_survives(survive, why):
    with Job(2, 5.0, survive) as job:
        with_a_death(job, AT_WORK)
        assert job._why_overdue() == why


@pytest.mark.parametrize(
    ("survive", "since_s", "why"),
    [(True, 9.0, ""), (True, 11.0, "it went on 10 s after all programs had ended"), (False, 11.0, "")],
)
def test_after_a_death_mpi_has_less_time_to_end(survive, since_s, why):
    """Where the others cannot go on, that time is from the death on."""
    with Job(2, 5.0, survive) as job:
        with_a_death(job, LEFT, since_s=since_s, died_s=100.0 if survive else 0.0)
        assert job._why_overdue() == why


@pytest.mark.parametrize("error", [KeyboardInterrupt, None])
def test_ctrl_c_while_a_job_is_ended_leaves_nothing_behind(error):
    """The second one, of somebody impatient, or the first."""
    deaf = ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"]  # whose end takes a second
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    job, ctrl_c = Job(1, 5.0), threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))

    def interrupted():
        with job:
            job._process = subprocess.Popen(deaf, stdout=PIPE, start_new_session=True)
            job._process.stdout.readline()
            ctrl_c.start()
            if error:
                raise error

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        ctrl_c.join()
        signal.signal(signal.SIGINT, before)
        job._process.stdout.close()
        job._process.kill()
    assert job._process.returncode == -signal.SIGKILL and not job.folder.exists()


def test_ctrl_c_as_its_files_are_made_or_its_launcher_starts_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*given, **options):
        made.append(real(*given, **options))
        os.kill(os.getpid(), signal.SIGINT)
        return made[-1]

    def start():
        with Job(2, 5.0) as job:
            job._mpirun = Mpirun(Path(shutil.which("tail")), "unknown")
            job.start(["-f", "/dev/null"])

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for place, name in ((os, "mkfifo"), (subprocess, "Popen")):
            made, real = [], getattr(place, name)
            with monkeypatch.context() as patch:
                patch.setattr(place, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    start()
            assert len(made) == 1 and not list(tmp_path.iterdir())
    finally:
        signal.signal(signal.SIGINT, before)
    code = made[0].poll()
    made[0].kill()
    assert code == -signal.SIGTERM


LAUNCHER = """#!/bin/sh
echo "arguments $@"
read line || echo "no input"
echo "session $(cut -d ' ' -f 6 /proc/$$/stat) $$"
env >&2
"""


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", 128 + signal.SIGTERM)])
@pytest.mark.parametrize("told", [None, {"TOLD": "more"}])
def test_what_a_launcher_is_told_and_how_it_ends(tmp_path, monkeypatch, end, code, told):
    launcher = tmp_path / "mpirun"
    launcher.write_text(LAUNCHER + end)
    launcher.chmod(0o700)
    monkeypatch.setattr("simdist.launch.job.find_mpirun", lambda: Mpirun(launcher, "mpich", 4))
    monkeypatch.setenv("SIMDIST_TIMEOUT_S", "7")
    monkeypatch.setenv("PMI_RANK", "1")
    with Job(3, 2) as job, (tmp_path / "output").open("wb") as output:
        assert job.poll(0.0) is None, "it has not been started"
        job.start(["a", "b"], output, told)
        end_s = time.monotonic() + 60.0
        while (found := job.poll()) is None:
            assert time.monotonic() < end_s
        assert found == code
        assert job.overdue == ("its launcher was killed by signal 15 (SIGTERM)" if code > 128 else "")
        pid = job._process.pid
    arguments, no_input, session, *variables = (tmp_path / "output").read_text().splitlines()
    assert arguments == "arguments -launcher fork -n 3 a b" and no_input == "no input"
    assert session == f"session {pid} {pid}", "Ctrl-C is not for it"
    wanted = {f"SIMDIST_BOARD={job.folder}/board", f"SIMDIST_LAUNCHER_PID={os.getpid()}", "SIMDIST_TIMEOUT_S=2.0"}
    assert wanted <= set(variables) and "PMI_RANK=1" not in variables
    assert ("TOLD=more" in variables) == (told is not None)


@pytest.mark.parametrize("first", ["launcher", "rank"])
@pytest.mark.parametrize(
    ("end", "code", "deaths"), [("kill -9 $$", 128 + signal.SIGKILL, 0), ("exit 3", 3, 1), ("exit 0", 1, 1)]
)
def test_a_rank_that_dies_with_its_launcher_has_not_died_by_itself(monkeypatch, end, code, deaths, first):
    monkeypatch.setattr("simdist.launch.job._MOMENT_S", 60.0)

    def how_it_ended(pid):
        job._process.stdin.close()
        return how_ended(pid)

    with Job(1, 5.0) as job, subprocess.Popen(["sleep", "100"]) as rank:
        board = Board(job.folder / "board", 0)
        board.take(0)
        board._write(pid=rank.pid)
        job._process = subprocess.Popen(["sh", "-c", f"read x; {end}"], stdin=PIPE, start_new_session=True)
        assert job.poll(0.0) is None
        if first == "launcher":
            job._process.stdin.close()
            os.waitid(os.P_PID, job._process.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr("simdist.launch.job.how_ended", how_it_ended)
        rank.kill()
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        assert job.poll(60.0) == code
        assert [death.how for death in job.deaths] == ["was killed by signal 9 (SIGKILL)"] * deaths
        board.close()


@pytest.mark.parametrize(("state", "deaths"), [(AT_WORK, 1), (FAILED, 0)])
def test_a_rank_that_another_has_ended_has_not_died_by_itself(state, deaths):
    with Job(2, 5.0) as job, subprocess.Popen(["sleep", "100"]) as rank:
        for number, (pid, doing) in enumerate(((os.getpid(), state), (rank.pid, AT_WORK))):
            board = Board(job.folder / "board", number)
            board.take(number)
            board._write(pid=pid, state=doing)
            board.close()
        rank.kill()
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        job._note_end(1)
        assert len(job.deaths) == deaths


def test_a_folder_whose_name_is_no_text_will_do(tmp_path, monkeypatch):
    (tmp_path / "caf\udce9").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "caf\udce9"))
    with Job(1, 5.0) as job:
        board = Board(job.folder / "board", 0)
        board.take(0)
        assert not job.signal(signal.SIGUSR1), "this process is not of the job"
        variables = {**os.environ, "FOLDER": str(job.folder)}
        with subprocess.Popen(["sh", "-c", "echo; read x"], stdin=PIPE, stdout=PIPE, env=variables) as rank:
            rank.stdout.readline()
            board._write(pid=rank.pid)
            assert [slot.pid for slot in job._running()] == [rank.pid]
        board.close()


def test_a_job_that_does_not_end_by_itself_has_failed(monkeypatch):
    with Job(2, 5.0) as job:
        with_a_death(job, LEFT)
        job.deaths.clear()
        monkeypatch.setattr(job, "_ended", lambda slots: True)
        monkeypatch.setattr(job, "_why_overdue", lambda: "it went on")
        job._process = subprocess.Popen(["sleep", "100"], start_new_session=True)
        assert job.poll(0.0) == 1


@pytest.mark.parametrize("doing", ["", "waits in the start of MPI", "computes"])
def test_a_rank_that_mpi_ends_as_it_starts_is_not_blamed_for_the_end_of_another(monkeypatch, doing):
    """The other has left what they share, and is not gone yet. Later in a program an end by itself is its own."""
    dead = subprocess.Popen(["sh", "-c", "exit 15"])
    with subprocess.Popen(["sleep", "100"]) as dying, Job(2, 5.0) as job:
        for rank, process in enumerate((dead, dying)):
            board = Board(job.folder / "board", rank)
            board.take(rank)
            board._write(pid=process.pid, doing=doing.encode())
            board.close()

        def is_ending(pid):
            dying.send_signal(signal.SIGKILL)
            return pid == dying.pid

        monkeypatch.setattr("simdist.launch.job.is_ending", is_ending)
        until(lambda: not alive(dead.pid))
        job._note_end(0)
        told = [(death.rank, death.how) for death in job.deaths]
        dying.kill()
    dead.wait()
    itself = [(0, "ended itself with exit code 15")]
    assert told == ([] if doing == "computes" else [(1, "was killed by signal 9 (SIGKILL)")]) + itself


def test_only_a_process_in_the_midst_of_its_end_is_ending():
    with subprocess.Popen(["true"]) as process:
        until(lambda: not alive(process.pid))
        assert not is_ending(process.pid), "it is a zombie"
        assert not is_ending(os.getpid())
    assert not is_ending(process.pid), "there is none"
