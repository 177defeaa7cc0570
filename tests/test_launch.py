"""Starting ranks: what comes back, what is refused, and that nothing is left behind."""

import errno
import json
import linecache
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType

import cloudpickle
import numpy as np
import pytest
from jobs import ROOT, job, needs_mpi, until

import simdist as sd
from simdist import environment
from simdist.cluster import preset
from simdist.collectives import all_reduce, broadcast
from simdist.comm.board import AT_WORK, FAILED, LEFT, Board, Slot, alive
from simdist.errors import ArgumentError, DeadlineError, RankFailed, UnknownNameError, WorldUnavailable
from simdist.launch import launch_script, mpirun, room
from simdist.launch.job import Death, Job
from simdist.launch.pickling import packed
from simdist.launch.run import _first_failure, _note_reported_death
from simdist.launch.signals import signal_words


class Refusal(Exception):
    """An exception that only this file knows."""


class Pair:
    """A class that only this file knows."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __call__(self, comm):
        return self.a * comm.rank + self.b


def digits(comm, n=8):
    x = np.full(n, 10**comm.rank, dtype=np.int64)
    all_reduce(x, comm, algorithm="ring")
    return x


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory, monkeypatch):
    """The launcher's folders are in a place of their own here; in the end none is left, and no process of theirs."""
    folder = tmp_path_factory.mktemp("launch")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []
    for process in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            assert str(folder).encode() not in process.read_bytes()


# -- what comes back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["virtual", pytest.param("mpi", marks=needs_mpi)])
def test_a_run_gives_results_trace_and_time(world):
    run = sd.run(digits, ranks=4, world=world, args=(6,))
    assert [x.tolist() for x in run.results] == [[1111] * 6] * 4
    assert run.trace.ranks == 4
    sends = [s for s in run.trace if s.name == "send" and s.context == "world.collective"]
    assert len(sends) == 4 * 6
    assert run.elapsed_s > 0


@needs_mpi
def test_both_worlds_give_the_same_bits():
    def program(comm):
        x = np.random.default_rng(comm.rank).standard_normal(1000)
        all_reduce(x, comm, algorithm="ring")
        return x.tobytes()

    assert sd.run(program, 3, world="mpi").results == sd.run(program, 3).results


@needs_mpi
def test_programs_and_results_of_any_kind_travel(capsys):
    offset = np.arange(3)

    def closure(comm, pair, words, **more):
        print(f"rank {comm.rank} says hello")
        print(f"rank {comm.rank} complains", file=sys.stderr)
        return Pair(comm.rank + pair.a, offset + comm.rank), words, {"x": None}

    results = sd.run(closure, 2, world="mpi", args=(Pair(10, 0), ("a", "b"))).results
    assert [type(pair) for pair, *_ in results] == [Pair, Pair]
    assert [pair.a for pair, *_ in results] == [10, 11]
    assert [pair.b.tolist() for pair, *_ in results] == [[0, 1, 2], [1, 2, 3]]
    assert results[0][1:] == (("a", "b"), {"x": None})
    written = capsys.readouterr()
    assert sorted(written.out.splitlines()) == ["rank 0 says hello", "rank 1 says hello"]
    assert sorted(written.err.splitlines()) == ["rank 0 complains", "rank 1 complains"]
    assert sd.run(Pair(3, 4), 1, world="mpi").results == [4]
    assert [x[0] for x in sd.run(partial(digits, n=1), 1, world="mpi").results] == [1]


@needs_mpi
def test_numbers_of_numpys_on_the_record_travel():
    def program(comm):
        with comm.span("a", np.int64(24), micro_batch=np.int32(3)):
            comm.send(np.ones(1), 0, tag=np.int64(7))
            comm.recv(np.ones(1), 0, tag=np.int64(7))

    *messages, span = sd.run(program, 1, world="mpi").trace.spans[::-1]
    assert (span.bytes, span.micro_batch, [s.tag for s in messages]) == (24, 3, [7, 7])


@needs_mpi
def test_options_reach_the_ranks(monkeypatch):
    monkeypatch.setenv("SIMDIST_RANKS_PER_NODE", "2")
    for name in environment.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def program(comm):
        digits(comm)
        threads = {os.environ[name] for name in environment.THREAD_VARIABLES}
        return list(comm.nodes), comm.num_nodes, comm.check, comm.cluster.name, sd.world() is comm, threads

    cluster = sd.cluster.preset("a100")
    run = sd.run(program, 3, world="mpi", record=False, check=False, cluster=cluster)
    threads = {str(max(1, environment.num_cores() // 3))}
    assert run.results == [([0, 0, 1], 2, False, "a100", True, threads)] * 3
    assert len(run.trace) == 0


@needs_mpi
def test_a_ranks_own_exception_is_raised_here():
    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            raise Refusal("no", 3)
        comm.barrier()

    with pytest.raises(Refusal, match="no") as caught:
        sd.run(program, 3, world="mpi")
    assert caught.value.args == ("no", 3)
    (note,) = caught.value.__notes__
    assert "rank 1 of 3" in note
    assert 'raise Refusal("no", 3)' in note
    assert "rank_process" not in note


@needs_mpi
def test_a_killed_rank_is_named_and_leaves_no_shared_memory(tmp_path):
    def program(comm):
        comm.empty(1000, np.float64)
        if comm.rank == 0:
            lines = Path("/proc/self/maps").read_text().splitlines()
            names = {line.split()[5] for line in lines if "/dev/shm/" in line}
            (tmp_path / "names").write_text("\n".join(names))
        comm.barrier()
        if comm.rank == 1:
            print("my last words", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    with pytest.raises(RankFailed, match=r"rank 1 of 3 \(process \d+\) was killed by signal 9 \(SIGKILL\)") as caught:
        sd.run(program, 3, world="mpi")
    assert "my last words" in str(caught.value)
    names = (tmp_path / "names").read_text().split()
    assert names
    assert [name for name in names if Path(name).exists()] == []


@needs_mpi
@pytest.mark.parametrize(
    ("number", "name", "launcher"), [(9, "SIGKILL", ""), (15, "SIGTERM", "; its launcher says:\nmy time is over")]
)
def test_of_a_rank_that_was_ended_from_outside_the_launcher_is_heard(number, name, launcher):
    with Job(2, timeout_s=5.0) as job:
        (job.folder / "mpirun.out").write_text("my time is over\n")
        job.deaths.append(Death(1, 123, 0.0, signal_words(number)))
        words = f"rank 1 of 2 (process 123) was killed by signal {number} ({name}) in the middle of its program"
        assert str(_first_failure(job)) == words + launcher


@needs_mpi
def test_of_a_death_that_another_rank_has_seen_first_as_much_is_told():
    with Job(2, timeout_s=5.0) as job:
        told = {"rank": 0, "at_s": 1.0, "summary": "RankFailed: rank 1 of 2 (process 123) has died", "trace": ""}
        (job.folder / "rank-0.failure.json").write_text(json.dumps(told))
        (job.folder / "mpirun.out").write_text("rank 1 was killed by signal 9")
        _note_reported_death(job)
        text = "rank 1 of 2 (process 123) was killed by signal 9 (SIGKILL) in the middle of its program"
        assert str(_first_failure(job)) == text


@needs_mpi
def test_ranks_come_and_go_each_in_its_time(tmp_path):
    variables = "os.environ.get('PMI_RANK'), os.environ.get('OMPI_COMM_WORLD_RANK')"
    (tmp_path / "sitecustomize.py").write_text(f"import os, time\nif '1' in ({variables}): time.sleep(1.5)")
    (tmp_path / "script.py").write_text("print('hello')")
    done = job(2, tmp_path / "script.py", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert (done.code, done.output.split()) == (0, ["hello", "hello"])


@pytest.mark.parametrize("world", ["virtual", pytest.param("mpi", marks=needs_mpi)])
def test_an_exit_in_the_middle_is_told_alike_in_both_worlds(world):
    def program(comm):
        if comm.rank == 1:
            sys.exit("enough")
        comm.barrier()

    with pytest.raises(RankFailed, match=r"rank 1 of 3 called sys.exit\('enough'\)"):
        sd.run(program, 3, world=world)


@needs_mpi
def test_an_exit_that_ends_no_program_is_none():
    def program(comm):
        comm.barrier()
        with suppress(SystemExit):
            sys.exit(7)
        thread = threading.Thread(target=sys.exit, args=(5,))
        thread.start()
        thread.join()
        return comm.rank

    assert sd.run(program, 2, world="mpi").results == [0, 1]


@needs_mpi
def test_when_a_job_is_overdue():
    with Job(2, timeout_s=5.0, survive=True) as job:
        zero, one = (Board(job.folder / "board", rank) for rank in range(2))
        job._started_s = time.monotonic()
        assert job._why_overdue() == ""
        zero.take(0)
        assert job._why_overdue() == ""
        zero.leave(LEFT, 0)
        assert job._why_overdue() == ""  # the other is still to come
        job._started_s -= 1000.0
        assert job._why_overdue() == "rank 1 had not started after 120 s"
        one.take(1)
        assert job._why_overdue() == ""
        one._write(beat_s=time.monotonic() - 1000.0)
        assert job._why_overdue() == ""  # this process may have been stopped for so long as well
        job._resumed_s -= 1000.0
        assert job._why_overdue() == "rank 1 had not responded for 11 s"
        one.leave(LEFT, 0)
        assert job._why_overdue() == ""
        for board in (zero, one):
            board._write(since_s=time.monotonic() - 1000.0)
        assert job._why_overdue() == "it went on 60 s after all programs had ended"
        for rank, board in enumerate((zero, one)):
            board.take(rank)
            job.deaths.append(Death(rank, os.getpid(), 0.0, ""))
        assert job._why_overdue() == ""  # where all have died, mpirun ends by itself, and says that they have
        one.leave(FAILED, 1)
        one._write(since_s=time.monotonic() - 1000.0)
        assert job._why_overdue() == "it went on 2 s after rank 1 had failed"
        zero.close()
        one.close()


@needs_mpi
def test_a_full_disk_is_told_and_leaves_no_folder(monkeypatch, tmp_path):
    def full(path, slots):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Board, "create", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(WorldUnavailable, match=f"no room for a job's files in {tmp_path}: No space left"), Job(2, 5.0):
        pass
    assert not list(tmp_path.iterdir())


@needs_mpi
def test_arguments_that_a_disk_has_no_room_for_are_told_and_leave_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(WorldUnavailable, match=f"no room for a job's files in {tmp_path}: File too large"):
            sd.run(print, 2, world="mpi", args=(np.ones(100_000),))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


@needs_mpi
def test_where_no_file_can_be_made_for_a_job_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(WorldUnavailable, match="no room for a job's files, which TMPDIR gives: No such file"):
        sd.run(lambda comm: None, 2, world="mpi")


@needs_mpi
def test_a_working_directory_that_has_been_removed_is_told(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.syspath_prepend("")
    (tmp_path / "gone").rmdir()
    with pytest.raises(WorldUnavailable, match="working directory, which has been removed"):
        sd.run(lambda comm: None, 2, world="mpi")
    with pytest.raises(WorldUnavailable, match="working directory, which has been removed"):
        launch_script(2, ["-m", "json.tool"])


@needs_mpi
def test_more_ranks_than_files_may_be_open_is_told_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job, made, before = Job(100, 5.0), [], list(Path("/proc/self/fd").iterdir())

    def mkfifo(path, mode):
        if len(made) == 3:
            raise OSError(errno.EMFILE, "Too many open files")
        make(path, mode)
        made.append(path)

    make = os.mkfifo
    monkeypatch.setattr(os, "mkfifo", mkfifo)
    with pytest.raises(WorldUnavailable, match=f"no room for a job's files in {tmp_path}: Too many open files"), job:
        pass
    assert not list(tmp_path.iterdir())
    assert len(list(Path("/proc/self/fd").iterdir())) < len(before)  # what it waited with is closed, too


@needs_mpi
def test_signals_are_for_ranks_that_listen(monkeypatch):
    heard = []
    monkeypatch.setattr(Job, "_is_mine", lambda job, slot: True)
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        with Job(1, timeout_s=5.0) as job:
            board = Board(job.folder / "board", 0)
            board.take(0)
            assert not job.signal(signal.SIGUSR1)  # of which this process would have died
            signal.signal(signal.SIGUSR1, lambda *_: heard.append("once"))
            assert job.signal(signal.SIGUSR1)
            board.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == ["once"]


@needs_mpi
def test_what_cannot_travel_is_told_in_words():
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    def program(comm):
        raise Odd(1, 2)

    class Turned(Exception):
        def __reduce__(self):
            return str, ("no exception any more",)

    def turn(comm):
        raise Turned(3)

    with pytest.raises(RankFailed, match="1 and 2"):
        sd.run(program, 1, world="mpi")
    with pytest.raises(RankFailed, match="rank 0 raised Turned: 3") as caught:
        sd.run(turn, 1, world="mpi")
    assert "raise Turned(3)" in caught.value.__notes__[0]
    with pytest.raises(ArgumentError, match="cannot travel"):
        sd.run(lambda comm: sys._getframe(), 1, world="mpi")
    with pytest.raises(ArgumentError, match="cannot travel"):
        sd.run(digits, 1, world="mpi", args=(sys._getframe(),))


@needs_mpi
def test_a_signal_for_a_rank_that_ends_just_then(monkeypatch):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    slot = Slot(0, gone.pid, AT_WORK, 0, 0.0, 0.0, "", "")
    monkeypatch.setattr(Job, "_running", lambda job: [slot])
    monkeypatch.setattr("simdist.launch.job.listens", lambda pid, number: True)
    with Job(1, timeout_s=5.0) as job:
        job.signal(signal.SIGUSR1)


def test_what_the_user_lets_travel_by_value_goes_on_doing_so(monkeypatch):
    stranger = ModuleType("stranger")
    stranger.__file__ = "/nowhere/stranger.py"
    monkeypatch.setitem(sys.modules, "stranger", stranger)
    cloudpickle.register_pickle_by_value(stranger)
    try:
        packed(stranger)
        assert "stranger" in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(stranger)


@needs_mpi
def test_a_failure_on_a_stream_that_nobody_waited_for_is_raised_here():
    def fails():
        raise Refusal("nobody asked")

    def program(comm):
        comm.stream("side").start(fails)

    with pytest.raises(Refusal, match="nobody asked"):
        sd.run(program, 2, world="mpi")


@needs_mpi
def test_no_failure_on_a_stream_is_lost_behind_a_later_one_or_another_ranks_mismatch():
    def fails():
        raise Refusal("the cause")

    def heard(comm):
        side = comm.stream("side")
        side.start(fails)
        with suppress(ZeroDivisionError):
            side.start(divmod, 1, 0).wait()

    def skips(comm):
        side, x = comm.stream("side"), np.ones(1)
        side.start(fails if comm.rank == 1 else all_reduce, *(() if comm.rank == 1 else (x, side.comm)))
        side.start(broadcast, x, side.comm).wait()

    for program in (heard, skips):
        with pytest.raises(Refusal, match="the cause"):
            sd.run(program, 3, world="mpi")


@needs_mpi
def test_a_result_without_room_on_the_disk_is_told():
    def program(comm):
        whole = Path.write_bytes

        def full(path, data):
            if ".part" in path.name and len(data) > 5000:
                whole(path, data[:10])
                raise OSError(errno.ENOSPC, "No space left on device")
            assert not list(path.parent.glob("*.part"))
            return whole(path, data)

        Path.write_bytes = full
        return np.ones(1000)

    with pytest.raises(OSError, match="No space left on device"):
        sd.run(program, 1, world="mpi")


@needs_mpi
@pytest.mark.parametrize("told", [{"timeout_s": np.float32(1)}, {}], ids=["argument", "environment"])
def test_a_deadline_of_ones_own(told, monkeypatch):
    monkeypatch.setenv("SIMDIST_TIMEOUT_S", "50" if told else "1")
    start_s = time.monotonic()
    with pytest.raises(DeadlineError, match="the deadline is 1 s") as caught:
        sd.run(lambda comm: comm.recv(np.zeros(1), 1 - comm.rank), 2, world="mpi", **told)
    assert time.monotonic() - start_s < 30
    assert "rank 0 waits to receive from rank 1" in str(caught.value)
    assert "rank 1 waits to receive from rank 0" in str(caught.value)
    assert "comm.recv(np.zeros(1), 1 - comm.rank)" in str(caught.value)


@needs_mpi
def test_a_notebook_without_a_main_file_can_start_ranks():
    code = """
import simdist as sd
class Cell: pass
def program(comm):
    return Cell, comm.rank
print([(c is Cell, r) for c, r in sd.run(program, 2, world="mpi").results])
"""
    done = subprocess.run(
        [sys.executable, "-"],
        input=code,
        capture_output=True,
        text=True,
        timeout=90,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "[(True, 0), (True, 1)]", done.stderr


@needs_mpi
def test_a_traceback_shows_the_lines_of_a_cell_that_is_in_no_file(monkeypatch):
    lines = ["def program(comm):\n", "    return 1 // comm.rank\n"]
    monkeypatch.setitem(linecache.cache, "/a/cell", (0, None, lines, "/a/cell"))
    names = {"__name__": "__main__"}
    exec(compile("".join(lines), "/a/cell", "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        sd.run(names["program"], 2, world="mpi")
    (note,) = caught.value.__notes__
    assert 'File "/a/cell", line 2, in program\n    return 1 // comm.rank' in note


@needs_mpi
def test_an_interrupt_ends_the_ranks(tmp_path):
    code = f"""
import os, time, simdist as sd
def program(comm):
    open(f"{tmp_path}/{{comm.rank}}", "w").write(str(os.getpid()))
    comm.barrier()
    time.sleep(60)
try:
    sd.run(program, 2, world="mpi")
except KeyboardInterrupt:
    print("interrupted")
print(sd.run(lambda comm: comm.size, 2, world="mpi").results)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        until(lambda: len(list(tmp_path.iterdir())) == 2 and all(p.read_text() for p in tmp_path.iterdir()))
        process.send_signal(2)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out.split("\n")[:2] == ["interrupted", "[2, 2]"]
    assert not any(alive(int(path.read_text())) for path in tmp_path.iterdir())


# -- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [0, -1, 2.0, "4", None, True])
def test_ranks_are_a_whole_number_from_one_on(ranks):
    for world in ("virtual", "mpi"):
        with pytest.raises(ArgumentError, match=re.escape(repr(ranks))):
            sd.run(digits, ranks, world=world)
    with pytest.raises(ArgumentError, match=re.escape(repr(ranks))):
        launch_script(ranks, [__file__])


def test_a_cluster_may_be_given_by_its_name(tmp_path):
    def took_s(cluster):
        return sd.run(lambda comm: comm.compute(flops=1e12), 2, cluster=cluster).elapsed_s

    (tmp_path / "ours.toml").write_text('like = "h100"\n[device]\nflops_efficiency = 0.5\n')
    assert took_s("H100") == took_s(preset("h100")) == took_s(str(tmp_path / "ours.toml")) / 2 > 0


def test_other_bad_arguments_are_refused():
    with pytest.raises(UnknownNameError, match="mpi, virtual"):
        sd.run(digits, world="mars")
    with pytest.raises(ArgumentError, match="cluster is 5; needs a Cluster, or a name such as 'h100'"):
        sd.run(lambda comm: None, 2, cluster=5)
    with pytest.raises(UnknownNameError, match="unknown cluster 'h1000'; did you mean 'h100'"):
        sd.run(lambda comm: None, 2, cluster="h1000")
    with pytest.raises(ArgumentError, match="needs a function"):
        sd.run(3)
    with pytest.raises(ArgumentError, match="timeout_s"):
        sd.run(digits, world="mpi", timeout_s=0)
    with pytest.raises(UnknownNameError, match=r"unknown world \['mpi'\]"):
        sd.run(print, 1, world=["mpi"])
    with pytest.raises(ArgumentError, match="timeout_s is '3'"):
        sd.run(digits, timeout_s="3")
    with pytest.raises(ArgumentError, match="args is 5; needs a tuple"):
        sd.run(digits, args=5)
    with pytest.raises(ArgumentError, match="no script"):
        launch_script(2, ["/no/such/script.py"])
    with pytest.raises(ArgumentError, match="none given"):
        launch_script(2, [])


def test_more_ranks_than_the_machine_holds_are_refused():
    for world in ("virtual", "mpi"):
        with pytest.raises(ArgumentError, match="GB"):
            sd.run(digits, 10**9, world=world)


def test_more_processes_than_the_machine_allows_are_refused(monkeypatch):
    monkeypatch.setattr(room, "available_bytes", lambda: None)
    monkeypatch.setattr(room, "_most_processes", lambda: 100)
    with pytest.raises(ArgumentError, match="allows 100"):
        sd.run(digits, 101, world="mpi")
    room.check_room(100, "mpi")
    room.check_room(101, "virtual")


def test_without_an_mpi_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    mpirun.find_mpirun.cache_clear()
    try:
        with pytest.raises(WorldUnavailable, match=r"pip install 'simdist\[mpi\]'"):
            sd.run(digits, world="mpi")
    finally:
        mpirun.find_mpirun.cache_clear()


def test_a_rank_of_a_job_starts_no_other(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(WorldUnavailable, match=r"program\(sd.world\(\)\)"):
        sd.run(digits, world="mpi")
    with pytest.raises(WorldUnavailable, match="already a rank of an MPI job"):
        launch_script(2, [__file__])


@needs_mpi
def test_a_library_that_does_not_belong_to_the_launcher_is_noticed():
    code = "import simdist as sd; sd.world()"
    variables = os.environ | {"PMI_RANK": "1", "PMI_SIZE": "3", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, env=variables)
    assert done.returncode != 0
    assert "start the job with the mpirun of that library" in done.stderr


# -- the environment -------------------------------------------------------------------------------------


def test_the_place_in_a_job_is_read_from_what_launchers_say():
    place = environment.place
    assert place({}) is None
    assert place({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "3"}) == (2, 4, 3)
    open_mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert place({**open_mpi, "PMIX_RANK": "1"}) == (1, 2, 2)
    srun = {"SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "3(x2),2", "SLURM_STEP_NUM_TASKS": "8"}
    assert [place({**srun, "PMIX_RANK": "5", "SLURM_NODEID": n}) for n in "012"] == [(5, 8, 3), (5, 8, 3), (5, 8, 2)]
    assert place({**srun, "PMI_RANK": "7", "PMI_SIZE": "8", "SLURM_NODEID": "2"}) == (7, 8, 2)
    assert place({**srun, **open_mpi}) == (1, 2, 2), "mpirun inside an allocation"
    assert place({"PMIX_RANK": "0", "SLURM_NTASKS": "1"}) == (0, 1, 1)
    assert environment.tasks_without_mpi(srun) == 8
    assert environment.tasks_without_mpi({**srun, **open_mpi}) == 0 == environment.tasks_without_mpi({})


def test_srun_without_an_mpi_makes_no_world_of_each_process():
    words = [sys.executable, "-c", "import simdist as sd; print(sd.run(lambda comm: comm.size, 2).results); sd.world()"]
    said = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "SLURM_STEP_NUM_TASKS": "4"}, cwd=ROOT, timeout=60
    )
    assert said.returncode == 1 and said.stdout == "[2, 2]\n"
    assert "WorldUnavailable: srun has started 4 processes, but without an MPI" in said.stderr


def test_cores_are_shared_unless_the_user_has_said():
    variables = {"OMP_NUM_THREADS": "7"}
    environment.share_cores(variables, ranks=4, cores=10)
    assert variables == {"OMP_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    few = {}
    environment.share_cores(few, ranks=4, cores=2)
    assert set(few.values()) == {"1"}


@pytest.mark.parametrize("text", ["", "0", "-3", "nan", "soon"])
def test_bad_deadlines_are_refused(text):
    with pytest.raises(ArgumentError, match="SIMDIST_TIMEOUT_S"):
        environment.timeout_s({"SIMDIST_TIMEOUT_S": text})


@pytest.mark.parametrize("text", ["", "0", "-2", "1.5", "two"])
def test_bad_numbers_of_ranks_per_node_are_refused(text):
    with pytest.raises(ArgumentError, match="SIMDIST_RANKS_PER_NODE"):
        environment.pretended_ranks_per_node({"SIMDIST_RANKS_PER_NODE": text})


def test_deadlines_and_nodes_are_read():
    assert environment.timeout_s({}) == 30
    assert environment.timeout_s({"SIMDIST_TIMEOUT_S": "2.5"}) == 2.5
    assert environment.timeout_s({"SIMDIST_TIMEOUT_S": "1e9"}) == 1e9
    for none in ("inf", "1e10", "1e300"):  # what no timer of the system takes
        assert environment.timeout_s({"SIMDIST_TIMEOUT_S": none}) == float("inf")
    assert environment.pretended_ranks_per_node({}) is None
    assert environment.pretended_ranks_per_node({"SIMDIST_RANKS_PER_NODE": "2"}) == 2
