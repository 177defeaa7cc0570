"""Every kind of failure, in real jobs that are killed, stopped, left, mismatched and deadlocked.

Each job says when the fault happens; its code, the time from there to its end, and its words are checked. The
promise is 3 s (from the fault, or from the deadline); what is asserted leaves room for a busy machine, and
`pytest -rP` shows what it was.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from jobs import MPIRUN, ROOT, needs_mpi, until

import simdist as sd
from simdist.collectives import all_gather, all_reduce, broadcast
from simdist.comm.board import alive
from simdist.errors import CollectiveMismatch, DeadlineError, SimdistError

pytestmark = needs_mpi

RANKS = 3
LIMIT_S = 15.0  # from the fault to the end; the promise is 3 s
DEADLINE_S = 2.0

SCRIPT = """
import ctypes, os, signal, subprocess, sys, threading, time
import numpy as np
import simdist as sd
from simdist.arrays import Reduction
from simdist.collectives import all_reduce

folder, what, who = sys.argv[1], sys.argv[2], int(sys.argv[3])
comm = sd.world()
x = np.ones(1000)
all_reduce(x, comm)
open(f"{folder}/pid-{comm.rank}", "w").write(str(os.getpid()))
names = [line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/" in line]
names += [os.readlink(fd.path).split()[0] for fd in os.scandir(f"/proc/{os.getppid()}/fd")]
open(f"{folder}/names-{comm.rank}", "w").write("\\n".join(n for n in names if n.startswith(("/dev/shm", "/tmp/hydra"))))
side = comm.stream("side")
comm.barrier()
mine = comm.rank == who
if mine:
    open(f"{folder}/fault", "w").write(str(time.time()))

def fail(*_, **__):
    raise ValueError(f"injected on {comm.rank}")

if what == "raise-before" and mine:
    fail()
elif what == "raise-in":
    all_reduce(x, comm, op=Reduction("mine", fail if mine else np.add))
elif what == "raise-after":
    all_reduce(x, comm)
    if mine:
        fail()
elif what == "raise-alike":
    raise ValueError("injected on all")
elif what == "thread" and mine:
    threading.Thread(target=fail).start()
    time.sleep(60)
elif what == "stream" and mine:
    side.start(fail)
elif what == "exit" and mine:
    sys.exit(3)
elif what == "exit-while-others-compute":
    if mine:
        sys.exit(5)
    time.sleep(60)
elif what == "system-exit" and mine:
    raise SystemExit(3)
elif what == "return" and mine:
    sys.exit(0)
elif what == "all-exit":
    sys.exit(3)
elif what == "exit-caught":
    try:
        sys.exit(7)
    except SystemExit:
        comm.barrier()
    if comm.rank == 0:
        time.sleep(4)
elif what == "clean":
    sys.exit(0)
elif what == "kill" and mine:
    os.kill(os.getpid(), signal.SIGKILL)
elif what == "segfault" and mine:
    ctypes.string_at(0)
elif what == "vanish" and mine:
    os._exit(0)
elif what == "stop" and mine:
    os.kill(os.getpid(), signal.SIGSTOP)
elif what == "stop-and-continue":
    if mine:
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
elif what == "skip":
    if mine:
        comm.recv(np.empty(1), (who + 1) % comm.size, tag=9)
elif what == "recv-recv":
    comm.send(np.empty(1), (comm.rank - 1) % comm.size, tag=6)
    comm.recv(np.empty(1), (comm.rank + 1) % comm.size, tag=4)
elif what == "send-send":
    comm.send(np.empty(1 << 20), (comm.rank + 1) % comm.size)
elif what == "too-long":
    if mine:
        comm.recv(np.empty(1), (who + 1) % comm.size)
    elif comm.rank == (who + 1) % comm.size:
        comm.send(np.empty(2), who)
elif what == "wait":
    time.sleep(60)
if what not in ("all-exit", "clean", "exit-caught"):
    all_reduce(x, comm)
    comm.barrier()
"""

EARLY = """
import os, re, signal, sys, time
folder = sys.argv[1]
if sys.argv[2] == "plain":
    import simdist
mine = any(os.environ.get(name) == "1" for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"))
if mine and sys.argv[2] == "kill-early":
    killed = os.getpid()
    if not os.fork():
        os.closerange(3, 2000)  # the pipe that reports the end, among others: this process would hold it open
        names = []
        while not names and os.getppid() == killed:
            names = re.findall(r"/dev/shm/(?!ucx).*", open(f"/proc/{killed}/maps").read())
        open(f"{folder}/names-1", "w").write("\\n".join(names))
        os.kill(killed, signal.SIGKILL)
        os._exit(0)
elif mine:
    open(f"{folder}/fault", "w").write(str(time.time()))
    raise KeyError("before the world")
import simdist as sd
sd.world().barrier()
"""


class Outcome(NamedTuple):
    """How a job ended: its code, all it said, the seconds from the fault to its end, and its ranks."""

    code: int
    output: str
    seconds: float
    pids: list[int]


def start(folder, words, plain=False):
    """The job as a process, in a session of its own: of `simdist run`, or of mpirun itself."""
    (folder / "script.py").write_text(SCRIPT)
    (folder / "early.py").write_text(EARLY)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("SIMDIST_")}
    variables |= {"PYTHONPATH": str(ROOT), "SIMDIST_TIMEOUT_S": str(DEADLINE_S), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "simdist", "run", "-n", str(RANKS), *words]
    if plain:
        variables |= dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
        variables |= {
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }
        command = [MPIRUN, "-n", str(RANKS), sys.executable, *words]
    output = (folder / "output").open("wb")
    with output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )


def outcome(folder, process, since_s=None):
    """Wait for a job's end."""
    try:
        code = process.wait(60)
    except subprocess.TimeoutExpired:
        for pid in [process.pid, *pids(folder)]:
            with_group(pid)
        pytest.fail(f"did not end: {(folder / 'output').read_text()}")
    end_s = time.time()
    if since_s is None:
        since_s = float((folder / "fault").read_text()) if (folder / "fault").exists() else end_s
    return Outcome(code, (folder / "output").read_text(errors="replace"), end_s - since_s, pids(folder))


def with_group(pid):
    """Kill a process and its group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def pids(folder):
    """The ranks that have come."""
    return [int(path.read_text() or 0) for path in sorted(folder.glob("pid-*"))]


def left(folder):
    """What a job has left behind: in its own place for temporary files, in shared memory, and of its launcher's."""
    names = {name for path in folder.glob("names-*") for name in path.read_text().split()}
    return [str(path) for path in (folder / "tmp").iterdir()] + [name for name in names if Path(name).exists()]


JOBS = {
    **{
        f"raise-{place} on {rank}": (f"raise-{place}", rank)
        for place in ("before", "in", "after")
        for rank in range(RANKS)
    },
    **{name: (name, 1) for name in ("thread", "stream", "exit", "exit-while-others-compute", "system-exit", "return")},
    **{name: (name, 1) for name in ("all-exit", "exit-caught", "clean", "kill", "segfault", "vanish", "stop")},
    **{name: (name, 1) for name in ("stop-and-continue", "skip", "recv-recv", "send-send", "too-long")},
    **{name: (name, 1) for name in ("early", "kill-early")},
    **{f"{plain}raise-alike": ("raise-alike", 1) for plain in ("", "plain ")},
    **{f"plain {name}": (name, 1) for name in ("raise-before", "exit", "kill", "clean", "early")},
}
ON_DEMAND = ("raise-", "plain raise-alike")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """jobs(name) -> the outcome of that job. They run in the background, a few at a time: they wait a lot. Those of
    which only some are asked for without `-m slow` begin when they are.
    """

    base = tmp_path_factory.mktemp("jobs")

    def run(name):
        what, rank = JOBS[name]
        folder = base / name.replace(" ", "-")
        folder.mkdir()
        words = ["script.py", folder, what, str(rank)]
        if what in ("early", "kill-early"):
            words = ["early.py", folder, name.split()[0]]
        done = outcome(folder, start(folder, list(map(str, words)), plain=name.startswith("plain")))
        rest = left(folder)
        shutil.rmtree(folder)
        return done, rest

    with ThreadPoolExecutor(3) as pool:
        futures = {name: pool.submit(run, name) for name in JOBS if not name.startswith(ON_DEMAND)}

        def get(name):
            if name not in futures:
                futures[name] = pool.submit(run, name)
            done, rest = futures[name].result()
            print(f"{name}: code {done.code}, {done.seconds:.2f} s after the fault\n{done.output}")
            assert done.seconds < LIMIT_S
            # A plain mpirun does not wait for the ranks that it kills; the launcher does.
            last_s = time.monotonic() + (3.0 if name.startswith("plain") else 0.0)
            while any(map(alive, done.pids)) and time.monotonic() < last_s:
                time.sleep(0.05)
            assert not any(map(alive, done.pids)), "a rank is left"
            assert not rest, "files are left"
            return done

        yield get


# -- exceptions -------------------------------------------------------------------------------------------


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize("place", ["before", "in", "after"])
def test_an_exception_ends_the_job_with_that_ranks_traceback_first(jobs, place, rank):
    done = jobs(f"raise-{place} on {rank}")
    assert done.code == 1
    head, trace = done.output.splitlines()[:2]
    assert head == f"simdist: rank {rank} of {RANKS} failed with ValueError, and the job ends"
    assert trace == f"[rank {rank}] Traceback (most recent call last):"
    assert f"[rank {rank}] ValueError: injected on {rank}" in done.output
    assert "runpy" not in done.output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raise-alike", "plain raise-alike"])
def test_what_all_ranks_raise_is_printed_once(jobs, name):
    done = jobs(name)
    assert done.code == 1
    assert done.output.count("Traceback") == done.output.count(" failed with ValueError, and the job ends") == 1
    assert done.output.count("] ValueError: injected on all") == 1
    others = done.output.count(" failed with the same ValueError as rank ")
    assert 0 < others <= RANKS - 1  # one that comes late is ended before it says so


@pytest.mark.parametrize("where", ["thread", "stream"])
def test_so_does_one_in_the_background(jobs, where):
    done = jobs(where)
    assert done.code == 1
    assert "rank 1 of 3 failed with ValueError" in done.output or "of rank 1 failed" in done.output
    assert "injected on 1" in done.output


@pytest.mark.parametrize("name", ["early", "plain early"])
def test_an_exception_before_mpi_has_started_ends_the_job(jobs, name):
    done = jobs(name)
    assert done.code == 1
    assert "KeyError: 'before the world'" in done.output


# -- leaving ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("exit", 3), ("exit-while-others-compute", 5), ("system-exit", 3)])
def test_a_rank_that_leaves_with_a_code_ends_the_job_with_it(jobs, name, code):
    done = jobs(name)
    assert done.code == code
    assert f"rank 1 left with exit code {code}" in done.output


def test_a_rank_that_leaves_others_waiting_is_named(jobs):
    done = jobs("return")
    assert done.code == 1
    assert re.search(r"DeadlockError: rank [02] waits .*, but rank 1 has left: its program has ended", done.output)
    assert re.search(r"rank 1 has left, \d+\.\d s ago", done.output)


def test_where_all_leave_their_code_is_the_jobs(jobs):
    assert jobs("all-exit").code == 3
    clean = jobs("clean")
    assert clean.code == 0
    assert clean.output == ""
    assert clean.seconds < LIMIT_S


def test_an_exit_that_was_caught_is_none(jobs):
    done = jobs("exit-caught")
    assert (done.code, done.output) == (0, "")


# -- dying ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kill", "segfault", "vanish"])
def test_the_death_of_a_rank_ends_the_job_and_is_named(jobs, name):
    done = jobs(name)
    assert done.code != 0
    assert re.search(rf"rank 1 of 3 \(process {done.pids[1]}\) (has died|was killed|ended itself)", done.output)


def test_one_that_dies_while_mpi_starts_leaves_no_shared_memory(jobs):
    done = jobs("kill-early")
    assert done.code != 0
    assert re.search(r"rank 1 of 3 \(process \d+\) (has died|was killed)", done.output)


def test_a_stopped_rank_is_found_by_the_deadline_and_none_is_left(jobs):
    done = jobs("stop")
    assert done.code == 1
    assert "DeadlineError" in done.output
    assert f"rank 1 (process {done.pids[1]}) has not responded" in done.output


def test_a_rank_that_goes_on_within_the_deadline_has_done_no_harm(jobs):
    done = jobs("stop-and-continue")
    assert (done.code, done.output) == (0, "")


# -- waiting in vain --------------------------------------------------------------------------------------


def test_a_skipped_collective_is_found_by_the_deadline(jobs):
    done = jobs("skip")
    assert done.code == 1
    assert f"the deadline is {DEADLINE_S:g} s" in done.output
    assert "rank 1 waits to receive from rank 2 with tag 9" in done.output
    for rank in (0, 2):
        assert re.search(rf"rank {rank} waits in all_reduce .* on 'world.collective' for rank 1 in all_re", done.output)
    assert "comm.recv(np.empty(1), (who + 1) % comm.size, tag=9)" in done.output


@pytest.mark.parametrize(("name", "words"), [("recv-recv", "receive from"), ("send-send", "send to")])
def test_a_cycle_of_waits_is_shown_whole(jobs, name, words):
    done = jobs(name)
    assert done.code == 1
    assert "DeadlineError" in done.output
    for rank in range(RANKS):
        other = (rank + 1) % RANKS
        instead = rf" \(a message with tag 6 has come from rank {other}\)" if name == "recv-recv" else ""
        assert re.search(rf"  rank {rank} waits to {words} rank {other}\b.*{instead}, for \d", done.output)
    assert "In the program, ranks 0, 1, 2:" in done.output
    assert ("All send before they receive: use sendrecv" in done.output) == (name == "send-send")


def wait_in_vain(comm):
    """Wait, each rank in a call of another kind."""
    x, y = np.zeros(1), np.zeros(1)
    comm.barrier()
    if comm.rank == 0:
        comm.sendrecv(x, 1, y, 2)
    elif comm.rank == 1:
        comm.irecv(y, 0, 4).wait()
    elif comm.rank == 2:
        with comm.span("the last step"):
            comm.barrier()
    elif comm.rank == 3:
        comm.split(0)
    else:
        comm.agree("a call")


def test_every_kind_of_wait_has_a_deadline_and_is_named():
    with pytest.raises(DeadlineError) as told:
        sd.run(wait_in_vain, 5, world="mpi", timeout_s=1.0)
    for rank, words in enumerate(
        [
            "waits to send to rank 1 and receive from rank 2",
            "waits to receive from rank 0 with tag 4",
            "waits to send to rank 3 and receive from rank 1 in the last step, after 0 of its messages",
            "waits in split on 'world' for ranks 0, 1, 2, 4",
            "waits in a call on 'world' for ranks 0, 1, 2, 3",
        ]
    ):
        instead = "( .a message with tag 0 has come from rank 0.)?" if rank == 1 else ""  # told from 1 s on
        assert re.search(rf"^  rank {rank} {words}{instead}, for", str(told.value), re.MULTILINE)


def test_a_message_that_does_not_fit_ends_the_job(jobs):
    done = jobs("too-long")
    assert done.code == 1
    assert (
        "MessageMismatch: recv on rank 1 of 'world': the message from rank 2 is longer than the 8 bytes" in done.output
    )


# -- plain mpirun -----------------------------------------------------------------------------------------


def test_plain_mpirun_will_do(jobs):
    done = jobs("plain raise-before")
    assert done.code == 1
    assert "rank 1 of 3 failed with ValueError" in done.output
    done = jobs("plain exit")
    assert done.code == 3
    assert "rank 1 left with exit code 3" in done.output
    assert jobs("plain kill").code != 0
    assert jobs("plain clean").code == 0


# -- the launcher -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_launcher_is_the_end_of_the_ranks(tmp_path, number):
    process = start(tmp_path, ["script.py", str(tmp_path), "wait", "0"])
    try:
        until(lambda: (tmp_path / "fault").exists())
        sent_s = time.time()
        process.send_signal(number)
        done = outcome(tmp_path, process, sent_s)
        until(lambda: not any(map(alive, done.pids)))
        print(f"{number.name}: no rank is left after {time.time() - sent_s:.2f} s\n{done.output}")
        assert len(done.pids) == RANKS
        assert done.code == (-number if number == signal.SIGKILL else 128 + number)
        assert time.time() - sent_s < LIMIT_S
        until(lambda: not left(tmp_path))
    finally:
        for pid in [process.pid, *pids(tmp_path)]:
            with_group(pid)
        process.wait()


def test_the_end_of_the_launcher_before_a_rank_has_come_leaves_nothing(tmp_path):
    process = start(tmp_path, ["script.py", str(tmp_path), "wait", "0"])
    try:
        until(lambda: list((tmp_path / "tmp").iterdir()))
        (folder,) = (tmp_path / "tmp").iterdir()
        until(lambda: Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        process.kill()
        process.wait()
        until(lambda: not left(tmp_path) and not any(str(folder).encode() in env for env in environments()))
        assert not pids(tmp_path)
    finally:
        with_group(process.pid)
        process.wait()


def environments():
    """Of all processes that are ours to look at."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            yield path.read_bytes()


def test_the_end_of_mpirun_is_the_end_of_the_ranks_even_of_one_that_is_stopped(tmp_path):
    process = start(tmp_path, ["script.py", str(tmp_path), "wait", "0"])
    try:
        until(lambda: (tmp_path / "fault").exists())
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(pids(tmp_path)[1], signal.SIGSTOP)
        sent_s = time.time()
        os.kill(int(child), signal.SIGKILL)
        done = outcome(tmp_path, process, sent_s)
        print(f"{done.seconds:.2f} s\n{done.output}")
        assert done.code == 128 + signal.SIGKILL
        assert "simdist: the job was ended: its launcher was killed by signal 9 (SIGKILL)\n" in done.output
        assert "simdist: rank" not in done.output  # which die of that
        assert done.seconds < LIMIT_S
        until(lambda: not any(map(alive, done.pids)), 10.0)
        assert not left(tmp_path)
    finally:
        for pid in [process.pid, *pids(tmp_path)]:
            with_group(pid)
        process.wait()


# -- mismatches: the same error on all ranks, and the job goes on if it is caught -----------------------------


def disagree(comm):
    """Disagree in every way, one after the other; what each rank was told."""
    odd = comm.rank == 1
    calls = {
        "operation": lambda x: broadcast(x, comm) if odd else all_reduce(x, comm),
        "op": lambda x: all_reduce(x, comm, op="max" if odd else "sum"),
        "dtype": lambda x: all_reduce(x.astype(np.int64) if odd else x, comm),
        "shape": lambda x: all_reduce(x[:-1] if odd else x, comm),
        "root": lambda x: broadcast(x, comm, root=int(odd)),
        "algorithm": lambda x: all_reduce(x, comm, algorithm="ring" if odd else "tree"),
        "split": lambda x: comm.split(0) if odd else all_reduce(x, comm),
        "exchange": lambda x: comm.exchange("note") if odd else comm.stream("side"),
    }
    told = {}
    for name, call in calls.items():
        try:
            call(np.ones(6))
        except SimdistError as error:
            told[name] = type(error).__name__, str(error)
    x = np.full(2, 10**comm.rank)
    all_reduce(x, comm)
    return told, x.tolist()


def test_every_kind_of_mismatch_is_raised_alike_on_all_ranks():
    results = sd.run(disagree, RANKS, world="mpi").results
    assert all(result == results[0] for result in results)
    told, total = results[0]
    assert total == [111, 111]
    assert set(told) == {"operation", "op", "dtype", "shape", "root", "algorithm", "split", "exchange"}
    words = {
        "operation": ("all_reduce", "broadcast"),
        "op": ("sum", "max"),
        "dtype": ("float64", "int64"),
        "shape": ("6", "5"),
        "algorithm": ("tree", "ring"),
        "split": ("all_reduce", "split"),
    }
    for name, (kind, text) in told.items():
        assert kind == CollectiveMismatch.__name__
        most, few = text.splitlines()[1:]
        assert most.startswith("  ranks 0, 2: ")
        assert few.startswith("  rank 1: ")
        most_say, few_say = words.get(name, ("", ""))
        assert most_say in most, name
        assert few_say in few, name


def test_an_order_swapped_by_one_rank_is_a_mismatch():
    def program(comm):
        x, y = np.ones(3), np.ones(4)
        first, second = (y, x) if comm.rank == 2 else (x, y)
        all_reduce(first, comm)
        all_gather(second, comm)

    with pytest.raises(CollectiveMismatch, match=r"ranks 0, 1: .*\n  rank 2: "):
        sd.run(program, RANKS, world="mpi")
