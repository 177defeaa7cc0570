import errno
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from simdist.comm.board import ABSENT, AT_WORK, FAILED, LEFT, Board, alive
from simdist.comm.ends import Ends
from simdist.errors import WorldUnavailable
from simdist.launch.signals import how_ended


@pytest.fixture
def path(tmp_path):
    Board.create(tmp_path / "board", 3)
    return tmp_path / "board"


@pytest.fixture
def sleeper():
    """A process that sleeps."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_there_is_room_behind_it(path):
    """On a full disk a file with a hole ends whoever writes into that, by SIGBUS."""
    assert path.stat().st_blocks * 512 >= path.stat().st_size > 0


def test_what_one_writes_all_can_read(path):
    writer, reader = Board(path, 1), Board(path)
    assert [slot.state for slot in reader.slots()] == [ABSENT] * 3
    writer.take(5)
    writer.beat("computes")
    slot = reader.slot(1)
    assert (slot.rank, slot.pid, slot.state, slot.doing) == (5, os.getpid(), AT_WORK, "computes")
    assert 0 <= slot.silent_s < 60
    writer.leave(LEFT, 3)
    assert reader.states() == [ABSENT, LEFT, ABSENT]
    assert reader.slot(1).code == 3
    path.unlink()
    writer.leave(FAILED, 1)
    assert reader.states()[1] == FAILED
    writer.close()
    reader.close()


def test_who_looks_in_the_middle_of_a_change_sees_nothing_that_never_was(path):
    writer, reader, seen = Board(path, 1), Board(path), []

    class Row:
        def __setitem__(self, name, value):
            reader._rows[1][name] = value
            seen.append((reader.slot(1), time.monotonic()))

    writer._rows = {1: Row()}
    writer.take(5)
    time.sleep(0.01)
    leaves_s = time.monotonic()
    writer.leave(LEFT, 3)
    for slot, now_s in seen:
        if slot.state == AT_WORK:
            assert (slot.rank, slot.pid) == (5, os.getpid()) and slot.silent_s < 60
        if slot.state == LEFT:
            assert slot.code == 3 and slot.since_s <= now_s - leaves_s  # not as long as it has been at work
    assert {slot.state for slot, _ in seen} == {ABSENT, AT_WORK, LEFT}
    writer.close()
    reader.close()


def test_what_changes_while_one_looks_is_not_half_seen(tmp_path):
    class Row:
        def __init__(self, row, reads, change):
            self.row, self.reads, self.change = row, reads, change

        def __getitem__(self, name):
            if self.reads == 0:
                self.change()
            self.reads -= 1
            return self.row[name]

    for reads in range(8):
        path = tmp_path / f"board-{reads}"
        Board.create(path, 1)
        writer, reader = Board(path, 0), Board(path)

        def come_and_go(writer=writer):
            writer.take(5)
            writer.leave(LEFT, 3)

        reader._rows = [Row(reader._rows[0], reads, come_and_go)]
        slot = reader.slot(0)
        assert slot.state == (ABSENT if reads else LEFT)
        assert slot.state == ABSENT or (slot.rank, slot.pid, slot.code) == (5, os.getpid(), 3)
        writer.close()
        reader.close()


def test_the_file_is_this_users_alone(path):
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        Board.create(path, 1)
    other = Board.temporary(2)
    assert other.parent.stat().st_mode & 0o077 == 0
    other.unlink()
    other.parent.rmdir()


def test_a_temporary_one_without_room_leaves_no_folder(tmp_path, monkeypatch):
    def full(file, mode):
        os.close(file)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        Board.temporary(2)
    assert not list(tmp_path.iterdir())


def test_where_no_temporary_file_can_be_made_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(WorldUnavailable, match="which TMPDIR gives: No such file or directory"):
        Board.temporary(2)


def test_a_long_text_is_cut(path):
    board = Board(path, 0)
    for shift in ("", "x"):  # with the cut between two letters, and in the middle of one
        board.beat(shift + "ü" * 10_000)
        assert board.slot(0).doing.startswith(shift + "ü" * 500)
    board.close()


def test_a_file_name_that_is_no_text_is_told_all_the_same(path):
    board = Board(path, 0)
    board.beat("waits in caf\udce9")
    board.answer("caf\udce9.py")
    assert (board.slot(0).doing, board.slot(0).report) == ("waits in caf\\udce9", "caf\\udce9.py")
    board.close()


def test_reports_are_asked_for_and_given(path):
    one, two = Board(path, 0), Board(path, 1)
    one.take(0)
    two.take(1)
    assert not two.asked
    one.ask()
    one.answer("here")
    assert two.asked
    assert one.missing(silent_s=60) == 1
    two.answer("there")
    assert one.missing(silent_s=60) == 0
    assert [slot.report for slot in one.slots()] == ["here", "there", ""]
    three = Board(path, 2)
    three.take(2)
    assert one.missing(silent_s=60) == 1
    assert one.missing(silent_s=0) == 0  # it is stopped, or dead
    three.leave(LEFT, 0)
    assert one.missing(silent_s=60) == 0
    three.close()
    one.close()
    two.close()


def test_one_process_alone_can_claim_the_last_word(path):
    board = Board(path, 0)
    assert board.claim()
    code = (
        f"from pathlib import Path; from simdist.comm.board import Board; print(Board(Path({str(path)!r}), 1).claim())"
    )
    claim = [sys.executable, "-c", code]
    assert subprocess.run(claim, capture_output=True, text=True, timeout=60, check=True).stdout == "False\n"
    board.close()
    assert subprocess.run(claim, capture_output=True, text=True, timeout=60, check=True).stdout == "True\n"


def test_what_one_has_told_the_others_need_not_tell_again(path):
    boards = [Board(path, i) for i in range(3)]
    for rank, board in zip((5, 6, 7), boards, strict=True):
        board.take(rank)
    heard = []
    for board, text in zip([*boards, *boards], ["a", "b", "a", "c", "b", "ü\udc80"], strict=True):
        with board.turn(text) as teller:
            heard.append(teller)
    assert heard == [None, None, 5, None, 6, None]
    for board in boards:
        board.close()


def test_a_turn_is_waited_for_but_not_for_ever(path):
    holder = (
        "import sys, time; from pathlib import Path; from simdist.comm.board import Board\n"
        f"with Board(Path({str(path)!r}), 1).turn('a'): print(flush=True); sys.stdin.read(1)"
    )
    board = Board(path, 0)
    with subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with board.turn("a", wait_s=0.05) as teller:
            assert teller is None  # the other one may not have told it yet
        timer = threading.Timer(0.2, other.stdin.close)
        timer.start()
        with board.turn("a", wait_s=60) as teller:
            assert teller == 0
        timer.join()
    board.close()


def test_a_process_that_nobody_has_collected_is_not_alive(sleeper):
    assert alive(os.getpid())
    assert alive(sleeper.pid)
    sleeper.kill()
    end_s = time.monotonic() + 30
    while alive(sleeper.pid):
        assert time.monotonic() < end_s
    sleeper.wait()
    assert not alive(sleeper.pid)


def test_of_a_program_whose_long_name_is_cut_in_the_middle_of_a_letter(tmp_path):
    program = tmp_path / "fourteenbytes_é"
    shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([program, "60"])
    try:
        assert alive(process.pid) and not how_ended(process.pid)
    finally:
        process.kill()
        assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not alive(process.pid) and how_ended(process.pid) == "was killed by signal 9 (SIGKILL)"
        process.wait()


def test_ends_are_told_once_and_at_once(sleeper):
    ends = Ends()
    assert ends.add(7, sleeper.pid)
    assert 7 in ends
    assert ends.wait(0.0) == []
    sleeper.kill()
    assert ends.wait(30.0) == [7]
    assert ends.wait(0.0) == []
    sleeper.wait()
    assert not ends.add(8, sleeper.pid)
    assert len(ends) == 2
    ends.close()


def test_what_is_waited_with_is_closed(sleeper, tmp_path):
    def opened():
        return len(list(Path("/proc/self/fd").iterdir()))

    before, ends = opened(), Ends()
    assert ends.add(3, sleeper.pid) and ends.add(4, os.getpid())
    os.mkfifo(tmp_path / "pipe")
    ends.add_pipe(5, os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    sleeper.kill()
    assert ends.wait(60.0) == [3]
    ends.close()
    assert opened() == before


def test_where_the_kernel_tells_no_ends_processes_are_looked_at(sleeper, monkeypatch):
    monkeypatch.delattr(select, "epoll", raising=False)
    ends = Ends()
    assert ends.add(3, sleeper.pid) and 3 in ends and len(ends) == 1
    assert ends.wait(0.0) == []
    sleeper.kill()
    sleeper.wait()
    start_s = time.monotonic()
    assert ends.wait(0.1) == [3]
    assert time.monotonic() - start_s >= 0.1
    ends.close()


def test_ends_are_told_in_their_order():
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(3)]
    ends = Ends()
    for i, process in enumerate(sleepers):
        ends.add(i, process.pid)
    for i in (2, 0, 1):
        sleepers[i].kill()
        sleepers[i].wait()
    assert ends.wait(30.0) == [2, 0, 1]
    ends.close()


def test_a_pipe_tells_of_the_end_of_who_writes_to_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    ends = Ends()
    ends.add_pipe(4, reading)
    assert ends.wait(0.0) == []  # nobody has come yet
    code = f"import sys; file = open({str(tmp_path / 'pipe')!r}, 'w'); print(flush=True); sys.stdin.read()"
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    writer.stdout.readline()
    assert ends.wait(0.0) == []
    writer.kill()
    assert ends.wait(30.0) == [4]
    writer.communicate()
    ends.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the order is not known")
def test_the_pipe_of_a_killed_process_is_the_first_of_its_files_to_close(tmp_path):
    """Or mpirun might see the end from another, kill a second rank, and that one's pipe tell of it first."""
    ends = Ends()
    for i in range(3):
        os.mkfifo(tmp_path / f"pipe-{i}")
        ends.add_pipe(i, os.open(tmp_path / f"pipe-{i}", os.O_RDONLY | os.O_NONBLOCK))
    code = f"""
import os, sys
from simdist.comm.ends import closed_first
fds = [os.open({str(tmp_path)!r} + f"/pipe-{{i}}", os.O_WRONLY) for i in range(2)]
fds[1] = closed_first(fds[1])
fds.append(os.open({str(tmp_path / "pipe-2")!r}, os.O_WRONLY))
print(flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        assert ends.wait(0.0) == []  # that they were opened is heard of, too, and in that order
        writer.kill()
    assert ends.wait(30.0)[0] == 1
    ends.close()


def test_where_a_number_so_high_is_not_to_be_had_a_file_keeps_its_own():
    code = """
import os, resource
from simdist.comm.ends import closed_first
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
fd = os.dup(0)
assert closed_first(fd) == fd
os.fstat(fd)
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
