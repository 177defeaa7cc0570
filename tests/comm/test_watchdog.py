"""What the watchdog concludes from waits and from the board; the rounds are made here, one by one."""

import os
import re
import subprocess
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from simdist.comm import ANY, Status
from simdist.comm import watchdog as module
from simdist.comm.board import ABSENT, AT_WORK, FAILED, LEFT, Board, Slot
from simdist.comm.checks import mismatch
from simdist.comm.line import END, EXIT, MEETING, START, WORK, Line, awaited, traceback_of
from simdist.comm.watchdog import Watchdog, _state
from simdist.errors import DeadlineError, DeadlockError, RankFailed


class Group:
    """As much of a communicator as a wait shows."""

    rank, ranks, context, doing, entered = 1, (4, 5, 6), "world/1:0", "", 0
    mail = None  # a message that no receive has taken

    def come(self, src):
        return self.mail if src in (ANY, self.mail and self.mail.src) else None


class Ended(Exception):
    """The job has ended, with this code."""


@pytest.fixture
def boards(tmp_path):
    """A board of three ranks that have been at work for long: those of the others, and a watchdog for rank 5."""
    Board.create(tmp_path / "board", 3)
    boards = [Board(tmp_path / "board", i) for i in range(3)]
    for rank, board in enumerate(boards, 4):
        board.take(rank)
        board._write(since_s=0.0)
    yield boards
    for board in boards:
        board.close()


@pytest.fixture
def watchdog(boards, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_S", 0.01)  # nobody answers
    told = []

    def end(code):
        raise Ended(code, *told)

    watchdog = Watchdog(5, 7, timeout_s=2.0, end=end, tell=told.append)
    watchdog.board = boards[1]
    yield watchdog
    watchdog._ends.close()


def rounds(watchdog, seconds):
    """As many rounds as would take so long."""
    for _ in range(round(seconds / 0.5)):
        watchdog._round(0.5)


def left_long_ago(board, code):
    board.leave(LEFT, code)
    board._write(since_s=0.0)


def test_the_rounds_count_the_time_but_no_pause(watchdog, monkeypatch):
    """Of a machine that was suspended, for example; a wait is no longer for that."""
    clock, times, passed = SimpleNamespace(monotonic=lambda: 100.0), [100.2, 100.4, 160.4, 160.6], []

    def sleep():
        now_s = times.pop(0)
        clock.monotonic = lambda: now_s

    def look(passed_s):
        passed.append(round(passed_s, 9))
        if not times:
            watchdog.stop()

    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(watchdog, "_sleep", sleep)
    monkeypatch.setattr(watchdog, "_round", look)
    watchdog._watch()
    assert passed == [0.2, 0.2, 1.0, 0.2]
    times += [160.8]
    watchdog._watch()
    assert times == [160.8], "it has been stopped"
    watchdog._stopped = False
    monkeypatch.setattr(watchdog, "_sleep", watchdog.stop)
    watchdog._watch()
    assert len(passed) == 4, "it looks no more where it is stopped as it sleeps"


def test_the_board_shows_what_a_rank_does(watchdog, boards):
    rounds(watchdog, 0.5)
    assert boards[0].slot(1).doing == "is running, not waiting"
    watchdog.line("side").waiting = "recv", Group(), 2, 0
    watchdog.line("other")
    boards[1]._write(beat_s=0.0)
    rounds(watchdog, 1.5)
    words = "is running, not waiting; waits to receive from rank 6 (stream 'side'), for 1.0 s"
    assert boards[0].slot(1).doing == words
    assert boards[0].slot(1).silent_s < 60.0
    watchdog.lines[0].waiting = "recv", Group(), 0, 0
    rounds(watchdog, 1.0)
    assert boards[0].slot(1).doing.startswith("waits to receive from rank 4, for 0.5 s; waits to receive from rank 6")


def test_who_is_asked_where_its_program_is_says_so_once(watchdog, boards):
    rounds(watchdog, 0.5)
    assert boards[0].missing(60.0) == 3
    boards[0].ask()
    rounds(watchdog, 0.5)
    assert boards[0].missing(60.0) == 2 and ", in rounds\n" in boards[0].slot(1).report
    boards[1].answer("")
    rounds(watchdog, 0.5)
    assert boards[0].slot(1).report == ""


def test_who_ends_the_job_asks_all_and_tells_what_they_say(watchdog, boards, monkeypatch):
    ask = Board.ask

    def asked(board):
        ask(board)
        boards[0].answer("here\n")

    def sleep(pause_s):
        boards[2].answer("here\n")

    monkeypatch.setattr(Board, "ask", asked)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    monkeypatch.setattr(module, "_ANSWER_S", 60.0)
    watchdog.line("side").waiting = "recv", Group(), 2, 0
    watchdog.line("other")
    start_s = time.monotonic()
    with pytest.raises(Ended) as end:
        rounds(watchdog, 3.0)
    assert time.monotonic() - start_s < 60.0, "it waits no longer than for the last of them"
    told = str(end.value.args[1])
    assert "\nIn the program, ranks 4, 6:\nhere" in told
    assert "\nIn the program, rank 5:\n" in told
    assert "  stream 'side':\n" in told and "'other'" not in told and "'main'" not in told


def test_a_stream_that_has_ended_keeps_no_communicator(watchdog):
    line, group = watchdog.line("side"), Group()
    line.waiting, kept = ("recv", group, 0, 0), weakref.ref(group)
    rounds(watchdog, 1.0)
    watchdog.lines.remove(line)
    del line, group
    rounds(watchdog, 0.5)
    assert kept() is None


def test_a_wait_is_put_into_words():
    line, group = Line("main"), Group()
    assert line.words(None) == "is running, not waiting"
    assert line.words(("recv", group, 2, 9)) == "waits to receive from rank 6 with tag 9"
    assert line.words(("recv", group, ANY, ANY)) == "waits to receive from any rank"
    assert line.words(("send", group, 0, 0)) == "waits to send to rank 4"
    assert line.words(("sendrecv", group, (0, 2), 0)) == "waits to send to rank 4 and receive from rank 6"
    assert line.words(("split", group, None, 0)) == "waits in split on 'world/1:0' for ranks 4, 6"
    assert line.words(("a meeting", group, 2, MEETING)) == "waits in a meeting on 'world/1:0' for rank 6"
    assert MEETING < ANY < 0, "is no message's tag"
    assert line.words((START, None, None, 0)) == "waits in the start of MPI for the other ranks of the job"
    assert line.words((EXIT, None, None, 0)) == "has ended its program and waits for the others to end theirs"
    assert line.words((WORK, None, "side", 0)) == "waits for work on its stream 'side'"
    assert Line("side").words(("send", group, 0, 0)) == "waits to send to rank 4 (stream 'side')"
    line.count, group.entered, group.doing = 12, 9, "all_reduce ring"
    assert (
        line.words(("recv", group, 2, 0)) == "waits to receive from rank 6 in all_reduce ring, after 3 of its messages"
    )


@pytest.mark.parametrize("wait", [("recv", 2, 9), ("recv", ANY, 9), ("sendrecv", (0, 2), 0)])
def test_of_a_long_wait_it_is_told_what_came_instead(wait):
    line, group = Line("main"), Group()
    what, peers, tag = wait
    group.mail = Status(2, 7, 8)
    words, long = line.words((what, group, peers, tag)), (what, group, peers, tag)
    assert line.at_length(long, 0.5) == f"{words}, for 0.5 s"
    assert line.at_length(long, 2.0) == f"{words} (a message with tag 7 has come from rank 6), for 2.0 s"
    group.mail = Status(2, tag, 8)  # just now
    assert line.at_length(long, 2.0) == f"{words}, for 2.0 s"
    group.mail = None
    assert line.at_length(long, 2.0) == f"{words}, for 2.0 s"
    group.mail = Status(2, 7, 8)
    assert line.at_length(("send", group, 2, 9), 2.0) == "waits to send to rank 6 with tag 9, for 2.0 s"


def test_a_stack_has_the_innermost_calls_of_its_thread():
    line = Line("main")

    def even(depth):
        return odd(depth - 1) if depth else line.stack()

    def odd(depth):
        return even(depth - 1)

    stack = even(20)
    assert stack.count(", in even\n") == stack.count(", in odd\n") == 4
    lines = []
    thread = threading.Thread(target=lambda: lines.append(Line("side")))
    thread.start()
    thread.join()
    assert lines[0].stack() == "", "it has ended"


def test_a_traceback_begins_in_the_program_and_is_whole_where_none_of_that_is_in_it(monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", lambda told: failures.append(told.exc_value))

    def program():
        Line("side").words("no wait")

    for target, args in ((program, ()), (Line("side").words, ("no wait",))):
        thread = threading.Thread(target=target, args=args)
        thread.start()
        thread.join()
    mine, theirs = (traceback_of(error).splitlines() for error in failures)
    assert mine[1].endswith(", in program") and theirs[1].startswith(f'  File "{threading.__file__}"')
    for lines in (mine, theirs):
        assert any(line.endswith(", in words") for line in lines)
        assert lines[-1].startswith("ValueError: ")


def test_whose_end_leaves_a_wait_without_hope():
    group = Group()
    assert awaited(("recv", group, 2, 0)) == (False, [6])
    assert awaited(("recv", group, ANY, 0)) == (True, [4, 6])
    assert awaited(("sendrecv", group, (0, 2), 0)) == (False, [6])
    assert awaited(("split", group, None, 0)) == (False, [4, 6])
    for wait in ((START, None, None, 0), (EXIT, None, None, 0), (WORK, None, "side", 0)):
        assert awaited(wait) == (True, [])


def test_one_wait_may_last_as_long_as_the_deadline(watchdog):
    watchdog.lines[0].waiting = "recv", Group(), 2, 0
    rounds(watchdog, 2.0)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 1.0)
    code, error = end.value.args
    assert (code, type(error)) == (1, DeadlineError)
    assert "rank 5 waits to receive from rank 6" in str(error)
    assert "\nWhat the 3 ranks of this node do:\n" in str(error)


def test_the_report_has_all_ranks_but_those_that_have_not_come(watchdog, boards):
    rounds(watchdog, 0.5)
    boards[2]._write(beat_s=time.monotonic())
    boards[2].beat("computes")
    left_long_ago(boards[0], 3)
    head, *rows = watchdog._overview().splitlines()
    assert head == "What the 3 ranks of this node do:" and rows[0].startswith("  rank 4 has left, with exit code 3, ")
    assert rows[1:] == ["  rank 5 is running, not waiting", "  rank 6 computes"]
    boards[2]._write(state=ABSENT)
    watchdog.size = 3
    head, *rows = watchdog._overview().splitlines()
    assert head == "What the ranks do:" and rows[1:] == [
        "  rank 5 is running, not waiting",
        "  1 of the ranks have not started yet",
    ]


def test_a_rank_is_told_as_it_is_and_not_as_it_was_last_heard_of(dead_pid):
    well = Slot(rank=4, pid=os.getpid(), state=AT_WORK, code=0, silent_s=2.0, since_s=9.0, doing="computes", report="")
    assert _state(well) == "computes"
    assert _state(well._replace(silent_s=2.5)) == (
        f"(process {os.getpid()}) has not responded for 2.5 s: it is stopped, or in native code that holds the GIL; "
        "its last report: it computes"
    )
    for slot in (well, well._replace(silent_s=2.5)):
        assert _state(slot._replace(pid=dead_pid)) == "has died; its last report: it computes"
        assert _state(slot._replace(pid=dead_pid, state=FAILED)) == "has failed"
        assert _state(slot._replace(pid=dead_pid, state=LEFT, code=3)) == "has left, with exit code 3, 9.0 s ago"


def test_many_short_waits_are_no_long_one(watchdog):
    for _ in range(20):
        watchdog.lines[0].waiting = "recv", Group(), 2, 0
        rounds(watchdog, 1.5)


def test_streams_are_watched_apart(watchdog):
    watchdog.line("side")
    side = watchdog.line("side")
    side.waiting = "recv", Group(), 0, 0
    watchdog.lines[0].waiting = WORK, None, "side", 0
    with pytest.raises(Ended) as end:
        rounds(watchdog, 3.0)
    assert "rank 5 waits to receive from rank 4 (stream 'side')" in str(end.value.args[1])


@pytest.mark.parametrize(
    ("peers", "hopeless"), [(2, True), (0, False), (None, True), (ANY, False), ((0, 2), True), ((2, 0), False)]
)
def test_a_wait_for_a_rank_that_has_left(watchdog, boards, peers, hopeless):
    left_long_ago(boards[2], 0)
    watchdog.lines[0].waiting = "sendrecv" if isinstance(peers, tuple) else "recv", Group(), peers, 0
    rounds(watchdog, 1.5)  # a message may be on its way
    if not hopeless:
        rounds(watchdog, 0.5)
        return
    with pytest.raises(Ended) as end:
        rounds(watchdog, 2.0)
    code, error = end.value.args
    assert (code, type(error)) == (1, DeadlockError)
    assert "rank 6 has left: its program has ended" in str(error)
    assert re.search(r"  rank 6 has left, \d+\.\d s ago", str(error))  # with what code is not known for certain


def test_what_a_rank_sent_before_it_left_may_still_come(watchdog, boards):
    boards[2].leave(LEFT, 0)
    watchdog.lines[0].waiting = "recv", Group(), 2, 0
    rounds(watchdog, 2.0)
    left_long_ago(boards[2], 0)
    with pytest.raises(Ended):
        rounds(watchdog, 0.5)


def test_from_any_rank_when_all_have_left(watchdog, boards):
    left_long_ago(boards[0], 0)
    left_long_ago(boards[2], 0)
    watchdog.lines[0].waiting = "recv", Group(), ANY, 0
    with pytest.raises(Ended):
        rounds(watchdog, 2.0)


def test_a_rank_that_left_with_a_code(watchdog, boards):
    boards[0].leave(LEFT, 3)
    rounds(watchdog, 1.0)
    left_long_ago(boards[0], 3)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    code, error = end.value.args
    assert (code, type(error)) == (3, RankFailed)
    assert str(error).startswith("rank 4 left with exit code 3\n")
    slot = boards[0].slot(1)
    assert (slot.state, slot.code) == (FAILED, 3), "so that the others leave the end of the job to this rank"


def test_who_has_left_does_not_end_the_job_for_the_code_of_another(watchdog, boards):
    boards[1].leave(LEFT, 4)
    left_long_ago(boards[0], 3)
    rounds(watchdog, 5.0)


def test_nobody_waits_for_word_of_a_rank_that_has_left(watchdog, boards):
    left_long_ago(boards[0], 0)
    boards[0]._write(beat_s=time.monotonic() - 60.0)
    watchdog.lines[0].waiting = EXIT, None, None, 0
    rounds(watchdog, 5.0)


def test_a_failure_on_a_stream_while_its_rank_is_blocked(watchdog):
    side = watchdog.line("side")
    side.failures.append(KeyError("lost"))
    rounds(watchdog, 5.0)  # the main stream computes, and may yet ask
    watchdog.lines[0].waiting = WORK, None, "side", 0
    rounds(watchdog, 5.0)  # and now does
    watchdog.lines[0].waiting = "recv", Group(), 2, 0
    rounds(watchdog, 1.0)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 1.0)
    assert end.value.args[0] == 1
    assert "work on stream 'side' of rank 5 failed" in str(end.value.args[1])
    assert "KeyError: 'lost'" in str(end.value.args[1])


def test_where_another_has_told_this_one_is_silent_but_not_for_ever(watchdog, boards, monkeypatch):
    boards[0].leave(FAILED, 1)
    watchdog.lines[0].waiting = "recv", Group(), 2, 0
    rounds(watchdog, 10.0)
    monkeypatch.setattr(module, "_STUCK_S", 0.001)
    time.sleep(0.002)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    assert end.value.args == (1,)


def test_the_end_is_left_to_another_rank_but_not_for_ever(watchdog, monkeypatch):
    monkeypatch.setattr(Board, "claim", lambda board: False)
    watchdog.lines[0].waiting = "recv", Group(), 2, 0
    rounds(watchdog, 10.0)
    monkeypatch.setattr(module, "_STUCK_S", -1.0)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    assert end.value.args == (1,), "the other has told why"


def test_of_two_threads_that_end_the_job_one_tells_why(watchdog, boards):
    with watchdog._concluding:
        watchdog.conclude(RankFailed("the other"), 1)
    assert boards[1].slot(1).state != FAILED


@pytest.mark.parametrize("what", [START, END])
def test_mpi_may_take_longer_to_start_and_to_end_than_a_message(watchdog, what):
    watchdog.lines[0].waiting = what, None, None, 0
    rounds(watchdog, 30.0)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 1.0)
    assert "the deadline is 30 s" in str(end.value.args[1])


def test_a_rank_in_no_wait_may_compute_for_ever(watchdog):
    rounds(watchdog, 100.0)
    watchdog.lines[0].waiting = EXIT, None, None, 0
    rounds(watchdog, 100.0)


def test_who_waits_for_the_end_of_a_silent_rank_does_so_until_the_deadline(watchdog, boards):
    boards[0]._write(beat_s=time.monotonic() - 60.0)
    watchdog.lines[0].waiting = EXIT, None, None, 0
    rounds(watchdog, 1.0)  # that rank may be about to be heard of
    watchdog.lines[0].waiting = "recv", Group(), 2, 0
    rounds(watchdog, 2.0)  # it may compute, where Python cannot run
    watchdog.lines[0].waiting = EXIT, None, None, 0
    watchdog._round(module._PAUSE_S)  # after a pause of all: it may again be about to be heard of
    rounds(watchdog, 1.0)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    code, error = end.value.args
    assert (code, type(error)) == (1, RankFailed)
    assert str(error).startswith("rank 4 (process ") and "has not responded for 6" in str(error)


@pytest.fixture
def dead_pid():
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_rank_ends_with_its_launcher_and_with_its_parent(watchdog, dead_pid):
    watchdog.launcher_pid = os.getpid()
    rounds(watchdog, 0.5)
    watchdog.launcher_pid = dead_pid
    with pytest.raises(Ended, match="^1$"):
        rounds(watchdog, 0.5)
    watchdog.launcher_pid, watchdog._parent_pid = 0, dead_pid
    with pytest.raises(Ended, match="^1$"):
        rounds(watchdog, 0.5)


def test_a_death_ends_the_job_unless_that_survives(watchdog, boards, dead_pid):
    boards[0]._write(pid=dead_pid)
    watchdog.survives = True
    rounds(watchdog, 5.0)
    watchdog.survives = False
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    code, error = end.value.args
    assert (code, type(error)) == (1, RankFailed)
    assert str(error) == f"rank 4 of 7 (process {dead_pid}) has died", "at once, without what the others do"
    assert not boards[2].asked


def test_a_death_is_seen_as_it_happens(watchdog, boards):
    """Not in the next round: then mpirun may have killed this process. This rank came last."""
    boards[0]._write(state=ABSENT)
    rounds(watchdog, 0.5)
    watched = dict(watchdog._ends._slots)
    rounds(watchdog, 0.5)
    assert watched == watchdog._ends._slots, "nobody is watched twice, which would take a descriptor each time"
    with subprocess.Popen(["sleep", "100"]) as rank:
        boards[0].take(4)
        boards[0]._write(pid=rank.pid)
        rounds(watchdog, 0.5)
        rank.kill()
        with pytest.raises(Ended, match=f"rank 4 of 7 .process {rank.pid}. has died"):
            watchdog._sleep()


def test_a_death_is_told_though_who_was_to_tell_it_died_too(watchdog, boards, monkeypatch):
    with subprocess.Popen(["sleep", "100"]) as rank:
        boards[0]._write(pid=rank.pid)
        rounds(watchdog, 0.5)
        with monkeypatch.context() as patch:
            patch.setattr(Board, "claim", lambda board: False)
            rank.kill()
            watchdog._sleep()
        with pytest.raises(Ended, match="^.1, RankFailed..rank 4 of 7 .* has died"):
            rounds(watchdog, 0.5)


def test_without_a_board_a_rank_tells_what_itself_does(watchdog):
    """Before MPI has started, for example; and it has no word of others."""
    watchdog.board = None
    watchdog.lines[0].waiting = EXIT, None, None, 0
    rounds(watchdog, 5.0)
    watchdog.lines[0].waiting = START, None, None, 0
    rounds(watchdog, 30.5)
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    code, error = end.value.args
    assert (code, type(error)) == (1, DeadlineError)
    assert "for 30.5 s so far; the deadline is 30 s\n" in str(error) and ", in rounds\n" in str(error)


def test_only_the_deaths_of_ranks_at_work_end_a_job_and_only_once(watchdog, boards, dead_pid):
    boards[0]._write(pid=0, state=ABSENT)
    boards[2]._write(pid=dead_pid)
    boards[2].leave(LEFT, 0)
    rounds(watchdog, 0.5)
    boards[0].take(4)
    rounds(watchdog, 0.5)
    boards[2].take(6)
    boards[0].leave(FAILED, 1)
    watchdog._check_death(boards[1], 2)


def test_nobody_waits_for_the_end_of_the_dead_that_a_job_survives(watchdog, boards, dead_pid):
    watchdog.survives = True
    watchdog.lines[0].waiting = EXIT, None, None, 0
    boards[0]._write(pid=dead_pid, beat_s=time.monotonic() - 60.0)
    rounds(watchdog, 5.0)
    boards[2]._write(beat_s=time.monotonic() - 60.0)  # which is alive, but silent
    with pytest.raises(Ended) as end:
        rounds(watchdog, 0.5)
    assert str(end.value.args[1]).startswith("rank 6 (process ")


def test_the_most_common_call_comes_first():
    assert str(mismatch("world", ["a", "b", "a"])).splitlines()[1:] == ["  ranks 0, 2: a", "  rank 1: b"]
