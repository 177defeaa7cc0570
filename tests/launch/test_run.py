"""What a run makes of what its ranks leave, and of what they print."""

import io
import json
import signal
from types import SimpleNamespace
from warnings import catch_warnings

import numpy as np
import pytest

from simdist.errors import ArgumentError, CollectiveMismatch, RankFailed
from simdist.launch.job import Death
from simdist.launch.pickling import packed
from simdist.launch.run import _collect, _first_failure, _note_reported_death, _Relay, run
from simdist.launch.signals import signal_words


@pytest.fixture
def job(tmp_path):
    """A job of three ranks, of which none has failed."""
    return SimpleNamespace(folder=tmp_path, ranks=3, deaths=[], overdue="")


def failed(job, rank, at_s, error, trace=""):
    told = {"rank": rank, "at_s": at_s, "summary": f"{type(error).__name__}: {error}", "trace": trace}
    (job.folder / f"rank-{rank}.failure.json").write_text(json.dumps(told))
    (job.folder / f"rank-{rank}.failure.pickle").write_bytes(packed(error))


def test_the_first_failure_is_raised(job):
    failed(job, 0, 2.0, ValueError("late"))
    failed(job, 2, 1.0, KeyError("early"), "line 3")
    failed(job, 1, 3.0, OSError("last"))
    error = _first_failure(job)
    assert (type(error), error.args) == (KeyError, ("early",))
    assert error.__notes__ == ["raised on rank 2 of 3:\nline 3"]


def test_what_kept_a_rank_from_a_collective_is_raised_rather_than_the_mismatch(job):
    failed(job, 0, 1.0, CollectiveMismatch("ranks 0, 2: all_reduce, rank 1: broadcast"))
    failed(job, 1, 2.0, KeyError("cause"))
    assert type(_first_failure(job)) is KeyError


@pytest.mark.parametrize(("died_s", "first"), [(0.5, RankFailed), (1.5, ValueError)])
def test_a_death_counts_if_it_came_first(job, died_s, first):
    failed(job, 0, 1.0, ValueError("its own"))
    job.deaths.append(Death(1, 77, died_s, signal_words(signal.SIGSEGV)))
    error = _first_failure(job)
    assert type(error) is first
    assert ("SIGSEGV" in str(error)) == (first is RankFailed)
    assert not hasattr(error, "__notes__"), "without a traceback"


def test_the_first_death_is_told_even_where_others_have_seen_it_before(job):
    failed(job, 0, 1.0, RankFailed("rank 2 of 3 (process 77) has died"))
    job.deaths.append(Death(1, 66, 2.0, "was killed"))
    _note_reported_death(job)
    assert [death.rank for death in job.deaths] == [1], "of those that this process has seen"
    job.deaths.clear()
    _note_reported_death(job)
    assert [(death.rank, death.pid) for death in job.deaths] == [(2, 77)]
    assert str(_first_failure(job)).startswith("rank 2 of 3 (process 77) ")


def test_without_a_failure_the_end_is_told_and_what_the_launcher_said_last(job):
    assert str(_first_failure(job)) == "the job of 3 ranks ended without results"
    (job.folder / "mpirun.out").write_text("early" + "x" * 1990 + "late words\n")
    job.overdue = "rank 1 had not started after 120 s"
    text = str(_first_failure(job))
    assert text.startswith(f"the job of 3 ranks was ended: {job.overdue}; its launcher says:\n")
    assert text.endswith("x" * 1989 + "late words") and "early" not in text


def test_output_is_passed_on_in_whole_lines_until_the_last(tmp_path):
    stream = io.StringIO()
    relay = _Relay(tmp_path / "out", stream)
    relay.pass_on()
    found = []
    for data in (b"a", b"b\nc", "d\n\u00e9".encode()[:-1]):
        with (tmp_path / "out").open("ab") as file:
            file.write(data)
        relay.pass_on()
        found.append(stream.getvalue())
    relay.pass_on(last=True)
    assert found == ["", "ab\n", "ab\ncd\n"]
    assert stream.getvalue() == "ab\ncd\n\\xc3"


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("utf-8", b"\xc3\xa9 \\xe9\n"), ("latin-1", b"\xc3\xa9 \xe9\n"), ("ascii", b"\\xc3\\xa9 \\xe9\n")],
)
def test_output_is_passed_on_byte_for_byte_or_shown_as_what_the_stream_can_write(tmp_path, encoding, written):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    (tmp_path / "out").write_bytes(b"\xc3\xa9 \xe9\n")
    _Relay(tmp_path / "out", stream).pass_on()
    assert stream.buffer.getvalue() == written


class Odd(Exception):
    """Cannot be unpickled."""

    def __init__(self, a, b):
        super().__init__(a)


class Lost:
    """Tells of a missing file when it is unpickled."""

    def __reduce__(self):
        return open, ("/no/such/file",)


def left(job, rank, result, start_s=0.0, end_s=1.0):
    facts = {"start_s": start_s, "end_s": end_s, "rows": []}
    (job.folder / f"rank-{rank}.facts.json").write_text(json.dumps(facts))
    (job.folder / f"rank-{rank}.result.pickle").write_bytes(packed(result))


def test_results_are_by_rank_and_the_time_from_the_first_start_to_the_last_end(job):
    for rank, (start_s, end_s) in enumerate([(2.0, 3.0), (1.5, 2.0), (1.75, 4.0)]):
        left(job, rank, rank, start_s, end_s)
    run = _collect(job)
    assert (run.results, run.elapsed_s, run.trace.ranks) == ([0, 1, 2], 2.5, 3)
    (job.folder / "rank-1.result.pickle").unlink()
    with pytest.raises(RankFailed, match="rank 1 of 3 left without a result"):
        _collect(job)


@pytest.mark.parametrize(("result", "error"), [(Odd(1, 2), TypeError), (Lost(), FileNotFoundError)])
def test_a_result_that_cannot_be_unpickled_is_told_with_its_rank(job, result, error):
    for rank in range(3):
        left(job, rank, result if rank == 1 else None)
    with pytest.raises(error) as caught:
        _collect(job)
    assert caught.value.__notes__ == ["while the result of rank 1 of 3 was unpickled"]


@pytest.mark.parametrize(("rank", "size", "told"), [(0, 2, 1), (1, 2, 0), (0, 1, 0)])
def test_a_world_of_each_ranks_own_is_told_once(monkeypatch, rank, size, told):
    monkeypatch.setenv("PMI_RANK", str(rank))
    monkeypatch.setenv("PMI_SIZE", str(size))
    with catch_warnings(record=True, action="always") as caught:
        assert run(lambda comm: comm.rank, 3).results == [0, 1, 2]
    words = "sd.run in a job of 2 real ranks: each process that calls it runs 3 virtual ranks of its own"
    assert [str(warning.message).partition(";")[0] for warning in caught] == [words] * told


async def awaited(comm):
    pass


def yielding(comm):
    yield comm.rank


@pytest.mark.parametrize("program", [awaited, yielding])
def test_a_program_whose_body_a_call_does_not_run_is_refused(program):
    with pytest.raises(ArgumentError, match=f"^program is <function {program.__name__} .*>, with yield or async"):
        run(program, 2)


def test_a_number_of_ranks_may_be_numpys():
    found = run(lambda comm: comm.size, np.int64(2))
    assert found.results == [2, 2]
    assert type(found.trace.ranks) is int
    with pytest.raises(ArgumentError, match="ranks is 2.0; needs a whole number of at least 1"):
        run(lambda comm: comm.size, 2.0)
