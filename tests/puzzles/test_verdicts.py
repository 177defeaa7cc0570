"""What a verdict says: of a hang, an exception, an endless loop, a shortcut, and of what is almost right."""

import re
import signal
import time

import numpy as np
import pytest

from simdist.collectives import all_gather, all_reduce
from simdist.errors import ArgumentError
from simdist.puzzles import Finding, judges, puzzle, puzzles, trial
from simdist.puzzles.puzzle import _PUZZLES


def test_a_hang_is_told_with_who_waits_for_whom():
    def shift(x, comm):
        comm.send(x, (comm.rank + 1) % comm.size)
        comm.recv(x, (comm.rank - 1) % comm.size)

    said = repr(puzzle(1).check(shift))
    assert "it hangs" in said
    assert "rank 0 waits to send 1048576 bytes to rank 1" in said


def test_an_exception_is_told_with_its_line_and_its_rank():
    def shift(x, comm):
        if comm.rank == 1:
            x[len(x)] = 0

    said = repr(puzzle(1).check(shift))
    assert "IndexError" in said
    assert "x[len(x)] = 0" in said
    assert "raised on rank 1 of 2" in said


def test_a_loop_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(trial, "_MOST_CPU_SECONDS", 0.1)

    def shift(x, comm):
        while True:
            try:
                x += 1
            except Exception:
                break

    said = repr(puzzle(1).check(shift))
    assert "stopped after 0.1 s of work" in said
    assert "never ends" in said


def test_a_function_without_ranks_is_stopped_too(monkeypatch):
    monkeypatch.setattr(trial, "_MOST_CPU_SECONDS", 0.1)

    def keep(layers):
        while True:
            pass

    assert "never ends" in repr(puzzle(19).check(keep))


def test_one_that_sleeps_is_woken(monkeypatch):
    monkeypatch.setattr(trial, "_MOST_SECONDS", 0.1)
    assert "stopped" in repr(puzzle(19).check(lambda layers: time.sleep(100)))


def test_signals_are_heard_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)]
    puzzle(19).check(lambda layers: [0])
    assert [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_what_is_returned_instead_of_an_array_is_told_in_a_line():
    said = repr(puzzle(5).check(lambda chunk, comm: [chunk] * comm.size)).splitlines()
    assert said[1].startswith("  WRONG  what rank 0 of 2 ends with: [array([") and said[1].endswith("])]")
    assert said[2].strip() == "expected: an array of shape (80,)"


def test_a_collective_that_is_there_already_is_no_answer():
    def gather(chunk, comm):
        return all_gather(chunk, comm, algorithm="ring")

    verdict = puzzle(5).check(gather)
    assert not verdict
    assert "all_gather ring" in repr(verdict)


def test_ranks_that_share_a_variable_are_found_out():
    board = {}

    def gather(chunk, comm):
        board[comm.size, comm.rank] = chunk
        comm.barrier()
        return np.concatenate([board[comm.size, r] for r in range(comm.size)])

    said = repr(puzzle(5).check(gather))
    assert "data did not travel by messages alone" in said


def test_too_many_messages_are_counted():
    def gather(chunk, comm):
        p, r = comm.size, comm.rank
        y = np.empty((p, len(chunk)), chunk.dtype)
        y[r] = chunk
        for k in range(1, p):
            comm.sendrecv(chunk, (r + k) % p, y[(r - k) % p], (r - k) % p)
        return y.reshape(-1)

    assert "rank 0 to rank 2" in repr(puzzle(5).check(gather))
    verdict = puzzle(6).check(gather)
    assert "messages of a rank, on 4 ranks: 3\n         expected: at most 2" in repr(verdict)
    assert re.findall("^  (good|WRONG)", repr(verdict), re.MULTILINE) == ["good", "good", "WRONG", "good", "good"]


def test_digits_say_whose_numbers_went_in_how_often():
    def others(x, comm):
        y = np.empty_like(x)
        comm.sendrecv(x.copy(), (comm.rank + 1) % comm.size, y, (comm.rank - 1) % comm.size)
        x *= comm.size == 1
        x += 2 * y * (comm.size > 1)

    said = repr(puzzle(10).check(others))
    assert "contains nothing of rank 0 and 2 times that of rank 1, but" in said
    assert "contains" not in repr(puzzle(10).check(lambda x, comm: np.negative(x, out=x))), "a sign has no digits"


def test_micro_batches_are_numbered_from_zero():
    def from_one(p, m):
        return [" ".join(f"{letter}{i}" for letter in "FB" for i in range(1, m + 1)) for _ in range(p)]

    assert "up to 4; needs 0 to 3" in repr(puzzle(23).check(from_one))


def test_a_schedule_that_cannot_be_is_shown_with_the_place_marked():
    said = repr(puzzle(23).check(lambda p, m: ["B0 F0"] * p))
    assert "cannot be carried out" in said
    said = repr(puzzle(23).check(lambda p, m: [" ".join(f"B{i} F{i}" for i in range(m))] * p))
    assert ">B0<" in said


@pytest.mark.parametrize("answer", [3, None, "text"])
def test_what_is_no_function_is_no_answer(answer):
    assert "a function" in repr(puzzle(2).check(answer))


@pytest.mark.parametrize("number", [0, 1000, "1", None, [1], 1.5])
def test_there_is_no_such_hint(number):
    with pytest.raises(ArgumentError, match="puzzle 2 has hints 1 to "):
        puzzle(2).hint(number)


@pytest.mark.parametrize("number", [0, -1, 1000, "one", None, [1], 1.5])
def test_there_is_no_such_puzzle(number):
    with pytest.raises(ArgumentError, match="there is no puzzle"):
        puzzle(number)


def test_hints_come_one_by_one(capsys):
    puzzle(5).hint()
    puzzle(5).hint(2)
    said = capsys.readouterr().out
    assert "Hint 1 of 2" in said
    assert "hint(2) says more" in said
    assert "Hint 2 of 2" in said
    with pytest.raises(ArgumentError, match="hints 1 to 2, not 3"):
        puzzle(5).hint(3)


def test_all_are_listed(capsys):
    puzzles()
    *listed, how = capsys.readouterr().out.splitlines()
    assert len(listed) >= 20
    assert how.startswith("puzzle(1) shows a task")


def test_a_program_adds_puzzles_and_replaces_only_its_own(monkeypatch):
    monkeypatch.setitem(_PUZZLES, 101, None)  # deletes it at the end

    def judge(answer):
        yield Finding(answer(2) == 4, "twice 2", str(answer(2)), "4")

    for _ in range(2):  # a notebook's cell that is run twice
        judges(101, "twice", "Return 2x.")(judge)
    assert puzzle(101).check(lambda x: 2 * x)
    assert not puzzle(101).check(lambda x: x)
    with pytest.raises(ArgumentError, match="puzzle 1 is 'pass it on', of simdist.puzzles.messages"):
        judges(1, "twice", "Return 2x.")(judge)
    with pytest.raises(ArgumentError, match=r"no puzzle 99; puzzles\(\) lists them"):
        puzzle(99)


def test_whoever_gathers_the_gradient_to_clip_it_is_found_out():
    def clip(shard, limit, comm):
        if np.linalg.norm(shard) > limit:
            return shard * (limit / np.linalg.norm(all_gather(shard, comm)))
        return shard

    wrong = [finding.what for finding in puzzle(15).check(clip).findings if not finding.good]
    assert wrong == ["bytes that a rank sends, on 2 ranks", "bytes that each rank receives, on 2 ranks"]


JUNK = [None, 0, "x", [None], (None, None), ["a", "b"], [[0, 1], [2]], [np.nan], {}, len, np.full(5, np.nan)]


@pytest.mark.parametrize("number", range(1, 29))
def test_what_nobody_asked_for_is_told_and_not_raised(number):
    for junk in JUNK:
        verdict = puzzle(number).check(lambda *given, junk=junk: junk)
        assert "not yet" in repr(verdict)
    assert "NoneType" not in repr(puzzle(number).check(lambda *given: None))
    verdict = puzzle(number).check(lambda x, *more: np.full_like(x, np.nan, dtype=float))
    assert "not yet" in repr(verdict)


@pytest.mark.parametrize(("number", "known"), [(2, 7), (7, np.arange(1 << 17))])
def test_who_writes_down_what_it_was_to_be_told_is_found_out(number, known):
    def tell(x, comm):
        x[:] = known

    said = repr(puzzle(number).check(tell))
    assert "not yet" in said
    assert "data did not travel by messages alone" in said


def test_numbers_of_a_gradient_that_no_message_brought_are_found_out():
    seen = {}

    def told(comm, own):
        seen[comm.size, comm.rank] = own
        comm.barrier()
        return sum(seen[comm.size, rank] for rank in range(comm.size))

    def mean_gradient(gradient, examples, comm):
        both = told(comm, np.append(gradient * examples, examples))
        return both[:-1] / both[-1]

    def clip(shard, limit, comm):
        return shard * min(1, limit / told(comm, shard @ shard) ** 0.5)

    for number, answer in ((14, mean_gradient), (15, clip)):
        said = repr(puzzle(number).check(answer))
        assert "not yet" in said
        assert "data did not travel by messages alone" in said


def test_exp_of_scores_overflows_and_vanishes():
    def merge(o1, z1, o2, z2):
        z = np.log(np.exp(z1) + np.exp(z2))
        return np.exp(z1 - z)[:, None] * o1 + np.exp(z2 - z)[:, None] * o2, z

    wrong = [finding for finding in puzzle(25).check(merge).findings if not finding.good]
    assert len(wrong) == 4
    assert all("1000" in finding.what and "exp(1000) is inf" in finding.why for finding in wrong)
    assert "exp(1000) is inf" not in repr(puzzle(25).check(lambda o1, z1, o2, z2: (o1 + o2, z1 + z2)))


def test_digits_are_read_only_where_they_count():
    def shift(x, comm):
        comm.sendrecv(x, (comm.rank + 1) % comm.size, x[:], (comm.rank - 1) % comm.size)

    assert "of rank 0, but each" not in repr(puzzle(1).check(shift))


def test_weights_are_shown_where_they_differ():
    def train(w, gradients, comm):
        velocity = np.zeros_like(w)
        for g in gradients:
            all_reduce(g, comm)
            velocity = 0.9 * velocity + g
            w -= 0.1 * velocity
        w[-1] += 1
        return w, velocity[:0]

    wrong = next(finding for finding in puzzle(18).check(train).findings if not finding.good)
    assert "1 of 50 wrong" in wrong.found
    assert not wrong.found.startswith(wrong.expected)


@pytest.mark.parametrize("of_lists", [True, False])
def test_buckets_that_come_one_by_one_are_judged_as_a_list_of_them(of_lists):
    def buckets(seconds, megabytes, alpha, beta):
        each = [[i] for i in range(len(seconds))]
        return each if of_lists else (bucket for bucket in each)

    verdict = puzzle(17).check(buckets)
    assert "not yet" in repr(verdict)
    assert [finding.good for finding in verdict.findings] == [
        finding.good for finding in puzzle(17).check(lambda *given: [[i] for i in range(len(given[0]))]).findings
    ]


@pytest.mark.parametrize("junk", [None, [1.0, 2.0]])
def test_weights_of_another_shape_are_told_what_shape_they_should_have(junk):
    said = repr(puzzle(16).check(lambda w, gradient, comm: junk))
    assert "shape (5,)" in said
