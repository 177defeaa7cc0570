"""Statistics: figures worked out by hand, and by counting moments one by one."""

import random
from itertools import pairwise

import numpy as np
import pytest

import simdist as sd
from simdist.collectives import all_reduce, cost
from simdist.trace import Span, Trace
from simdist.trace.activity import covered
from simdist.trace.statistics import Total, hidden_share


def span(name, start, end, rank=0, stream="main", num_bytes=0, peer=-1):
    return Span(rank, stream, name, float(start), float(end), num_bytes, peer)


def of(*spans, ranks=1):
    return Trace(spans, ranks).statistics()


def test_computing_then_communicating_then_nothing():
    (s,) = of(span("compute", 0, 3), span("all_reduce ring", 3, 7), span("send", 3, 4), span("compute", 8, 10))
    assert (s.elapsed_s, s.computing_s, s.communicating_s, s.other_s) == (10, 5, 4, 1)


def test_nested_and_overlapping_spans_count_once():
    (s,) = of(span("recv", 0, 6), span("send", 0, 4), span("send", 2, 8), span("all_reduce ring", 0, 8))
    assert (s.computing_s, s.communicating_s) == (0, 8)


def test_folding_inside_a_collective_is_communicating():
    (s,) = of(span("all_reduce ring", 0, 8), span("compute", 2, 4))
    assert (s.computing_s, s.communicating_s) == (0, 8)


def test_a_collective_inside_a_forward_is_not_computing():
    (s,) = of(span("forward", 0, 10), span("all_reduce ring", 4, 6))
    assert (s.computing_s, s.communicating_s) == (8, 2)


def test_a_frame_is_nothing_of_its_own_but_a_bar_with_an_own_name_is_computing():
    (s,) = of(span("step", 0, 10), span("attention", 2, 5))
    assert (s.computing_s, s.communicating_s, s.other_s) == (3, 0, 7)


def test_what_is_written_to_a_file_is_neither_computing_nor_communicating():
    (s,) = of(span("compute", 0, 3), span("disk write", 3, 7), span("send", 7, 8))
    assert (s.computing_s, s.communicating_s, s.other_s) == (3, 1, 4)


def test_a_message_beneath_computing_is_hidden():
    (s,) = of(span("send", 0, 6), span("compute", 1, 4))
    assert (s.computing_s, s.communicating_s, s.hidden_s) == (3, 3, 3)


def test_a_second_stream_hides_what_lies_beneath_the_computing_of_the_first():
    (s,) = of(span("compute", 0, 6), span("all_reduce ring", 4, 12, stream="communication"))
    assert (s.computing_s, s.communicating_s, s.hidden_s) == (6, 6, 2)
    assert s.hidden_share == {"communication": 0.25}


def test_nobody_waits_who_computes_meanwhile():
    """A message that is asked for 8 s before it sets out, on a stream beneath which another computes."""
    spans = [span("recv", 0, 10, stream="communication", peer=1), span("compute", 0, 9)]
    spans += [span("send", 8, 10, 1, peer=0), span("disk read", 10, 12, 1)]
    first, second = of(*spans, ranks=2)
    assert (first.communicating_s, first.waiting_s, first.other_s) == (1, 0, 2)
    assert (second.communicating_s, second.waiting_s, second.other_s) == (2, 0, 10)


def test_who_waits_communicates_and_does_nothing_else():
    spans = [span("compute", 0, 2), span("recv", 2, 8, peer=1), span("send", 6, 8, 1, peer=0), span("disk read", 8, 9)]
    first, _ = of(*spans, ranks=2)
    assert (first.computing_s, first.communicating_s, first.waiting_s, first.other_s) == (2, 6, 4, 1)


def test_a_stream_is_hidden_by_the_main_one_alone():
    spans = [span("compute", 0, 1), span("compute", 0, 4, stream="update")]
    (s,) = of(*spans, span("all_reduce ring", 0, 4, stream="communication"))
    assert s.hidden_share == {"communication": 0.25}


def test_a_forward_that_waits_for_a_stream_hides_nothing_meanwhile():
    spans = [
        span("forward", 0, 10),
        span("wait for communication", 6, 8),
        span("all_gather ring", 4, 8, stream="communication"),
    ]
    (s,) = of(*spans)
    assert (s.computing_s, s.communicating_s, s.waiting_s, s.hidden_s) == (8, 2, 0, 2)
    assert hidden_share(spans, 0) == s.hidden_share["communication"] == 0.5


def test_a_wait_for_a_stream_is_waiting_as_long_as_that_waits_for_a_rank():
    spans = [
        span("wait for communication", 0, 9),
        span("recv", 0, 9, stream="communication", peer=1),
        span("send", 5, 9, rank=1, peer=0),
    ]
    s, _ = of(*spans, ranks=2)
    assert (s.communicating_s, s.waiting_s) == (9, 5)


def test_what_is_moved_in_memory_that_ranks_share_is_communicating():
    (s,) = of(span("move", 0, 3), span("compute", 3, 5), span("all_reduce direct", 5, 9), span("move", 6, 8))
    assert (s.computing_s, s.communicating_s, s.waiting_s) == (2, 7, 0)


def test_a_direct_collective_waits_until_the_last_rank_has_come():
    def program(comm):
        comm.compute(seconds=1.0 + comm.rank)
        all_reduce(np.ones(100), comm, algorithm="direct")

    found = sd.run(program, ranks=3).trace.statistics()
    assert [s.computing_s for s in found] == pytest.approx([1, 2, 3])
    assert [s.waiting_s for s in found] == pytest.approx([2, 1, 0])
    assert all(s.communicating_s > s.waiting_s for s in found)


def test_a_hidden_share_is_of_one_rank_and_one_stream():
    spans = [
        span("compute", 0, 8),
        span("all_reduce ring", 0, 4, stream="communication"),
        span("all_gather ring", 4, 12, stream="prefetch"),
        span("all_reduce ring", 0, 4, rank=1, stream="communication"),
    ]
    trace = Trace(spans, 3)
    assert [hidden_share(trace, rank) for rank in range(3)] == [1.0, 0.0, 0.0]
    assert hidden_share(trace, 0, "prefetch") == 0.5


def test_a_receive_waits_until_its_send_has_begun():
    first, second = of(
        span("recv", 0, 5, rank=0, peer=1), span("compute", 0, 3, rank=1), span("send", 3, 4, 1, peer=0), ranks=2
    )
    assert (first.communicating_s, first.waiting_s) == (5, 3)
    assert (second.computing_s, second.communicating_s, second.waiting_s) == (3, 1, 0)


def test_a_send_waits_for_a_late_receive_but_not_if_it_has_left_before():
    first, _ = of(span("send", 0, 5, peer=1), span("recv", 4, 6, rank=1, peer=0), ranks=2)
    assert first.waiting_s == 4
    first, _ = of(span("send", 0, 1, peer=1), span("recv", 4, 6, rank=1, peer=0), ranks=2)
    assert first.waiting_s == 0


def test_clocks_that_disagree_do_not_make_a_receive_longer():
    first, _ = of(span("recv", 0, 2, peer=1), span("send", 5, 6, rank=1, peer=0), ranks=2)
    assert (first.communicating_s, first.waiting_s) == (2, 2)


@pytest.mark.parametrize("moment", [-1, 1, 5])
def test_states_count_for_nothing(moment):
    (s,) = of(span("compute", 0, 2), span("state", moment, moment, stream="states"))
    assert (s.elapsed_s, s.computing_s) == (2, 2)
    assert list(s.operations) == ["compute"]


def test_ranks_without_spans_are_there_too():
    found = of(span("compute", 0, 2), ranks=3)
    assert [s.computing_s for s in found] == [2, 0, 0]
    assert [s.other_s for s in found] == [0, 2, 2]


def test_time_begins_with_the_first_span_of_any_rank():
    first, second = of(span("compute", 5, 7), span("compute", 6, 10, rank=1), ranks=2)
    assert (first.elapsed_s, first.computing_s, first.other_s) == (5, 2, 3)
    assert (second.elapsed_s, second.computing_s, second.other_s) == (5, 4, 1)


def test_an_empty_record():
    (s,) = of()
    assert (s.elapsed_s, s.computing_s, s.communicating_s) == (0, 0, 0)


def test_totals_by_operation():
    (s,) = of(span("compute", 0, 2), span("compute", 3, 4), span("send", 4, 6, num_bytes=7, peer=0))
    assert s.operations == {"compute": Total(2, 3.0, 0), "send": Total(1, 2.0, 7)}
    assert s.sent == Total(1, 2.0, 7)
    assert s.received == Total()


@pytest.mark.parametrize("seed", range(20))
def test_any_record_agrees_with_counting_moments(seed):
    rng = random.Random(seed)
    names = ["compute", "forward", "send", "recv", "all_reduce ring", "all_gather ring", "wait"]
    spans = []
    for _ in range(25):
        start = rng.randrange(60)
        spans.append(span(rng.choice(names), start, start + rng.randrange(15), stream=rng.choice(["main", "side"])))
    first, last = min(s.start_s for s in spans), max(s.end_s for s in spans)
    computing = communicating = hidden = 0
    for t in range(int(first), int(last)):
        on = {
            stream: {s.name for s in spans if s.stream == stream and s.start_s <= t < s.end_s}
            for stream in ("main", "side")
        }
        collective = {stream: bool(found & {"all_reduce ring", "all_gather ring"}) for stream, found in on.items()}
        computes = {
            stream: bool(found & {"compute", "forward"}) and not collective[stream] and "wait" not in found
            for stream, found in on.items()
        }
        talks = {stream: bool(found - {"compute", "forward"}) and not computes[stream] for stream, found in on.items()}
        beneath = any(computes[stream] and on[stream] & {"send", "recv"} for stream in on)
        computing += any(computes.values())
        communicating += any(talks.values()) and not any(computes.values())
        hidden += any(computes.values()) and (any(talks.values()) or beneath)
    (s,) = of(*spans)
    assert (s.computing_s, s.communicating_s, s.hidden_s) == (computing, communicating, hidden)
    assert s.computing_s + s.communicating_s + s.other_s == pytest.approx(s.elapsed_s)


def test_covered_agrees_with_its_definition():
    rng = np.random.default_rng(3)
    ends = np.sort(rng.integers(0, 50, (40, 2)), axis=1)
    intervals = [(float(a), float(b)) for a, b in ends]
    t = np.unique(ends.astype(float))
    expected = [any(a <= left and right <= b for a, b in intervals) for left, right in pairwise(t)]
    assert covered(intervals, t).tolist() == expected
    assert covered([], t).tolist() == [False] * (len(t) - 1)
    assert covered([], np.array([])).tolist() == []


@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "naive"])
def test_traffic_of_a_run_is_what_the_collective_costs(name):
    def program(comm):
        all_reduce(np.ones(30, np.float64), comm, algorithm=name)

    trace = sd.run(program, ranks=5).trace
    matrix = trace.traffic()
    for s in trace.statistics():
        promised = cost("all_reduce", name, ranks=5, num_bytes=240, itemsize=8, rank=s.rank)
        assert (s.sent.num_spans, s.sent.num_bytes) == (promised.messages, promised.sent_bytes)
        assert matrix[s.rank].sum() == promised.sent_bytes
        assert matrix[:, s.rank].sum() == s.received.num_bytes
        assert len(trace.sends(s.rank)) == promised.messages
    assert len(trace.sends()) == len(trace.messages())
