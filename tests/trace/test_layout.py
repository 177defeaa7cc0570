"""Lanes: checked against the rule itself, pair by pair, on random records."""

import random
from itertools import combinations

import pytest

import simdist as sd
from simdist.trace import Span
from simdist.trace.layout import Layout, nanoseconds


def span(name, start, end, stream="main", rank=0):
    return Span(rank, stream, name, start, end)


def interval(s):
    return nanoseconds(s.start_s), nanoseconds(s.end_s)


def lies_well(a, b):
    """Whether two intervals are apart, or one encloses the other."""
    (a0, a1), (b0, b1) = a, b
    return a1 <= b0 or b1 <= a0 or (a0 <= b0 and b1 <= a1) or (b0 <= a0 and a1 <= b1)


def test_nested_operations_share_lane_0():
    spans = [span("step", 0, 10), span("all_reduce ring", 1, 9), span("send", 1, 2), span("recv", 2, 9)]
    layout = Layout.of(spans)
    assert layout.lane == [0, 0, 0, 0]
    assert layout.encloses == [True, True, False, False]


def test_a_send_and_a_receive_at_once_get_two_lanes():
    spans = [
        span("all_reduce ring", 0, 4),
        span("recv", 0, 2),
        span("send", 0, 1),
        span("recv", 2, 4),
        span("send", 2, 3),
    ]
    assert Layout.of(spans).lane == [0, 1, 0, 1, 0]


def test_of_a_send_and_a_receive_begun_together_the_send_stays():
    assert Layout.of([span("recv", 0, 2), span("send", 0, 5)]).lane == [1, 0]


def test_a_message_in_flight_across_the_end_of_an_operation_leaves_lane_0():
    spans = [span("compute", 0, 2), span("send", 1, 3), span("compute", 2, 5)]
    assert Layout.of(spans).lane == [0, 1, 0]


def test_a_message_that_holds_an_operation_leaves_lane_0():
    assert Layout.of([span("recv", 0, 9), span("compute", 2, 3)]).lane == [1, 0]


def test_streams_and_ranks_do_not_share_lanes():
    spans = [span("send", 0, 9), span("send", 0, 9, "side"), span("send", 0, 9, rank=1)]
    assert Layout.of(spans).lane == [0, 0, 0]


def test_the_first_free_lane_is_taken():
    spans = [span("send", 0, 9), span("send", 1, 3), span("send", 2, 9), span("send", 4, 5)]
    assert Layout.of(spans).lane == [0, 1, 2, 1]


def test_of_two_equal_spans_that_is_outside_which_was_recorded_last():
    assert Layout.of([span("reduce", 0, 5), span("all_reduce tree", 0, 5)]).encloses == [False, True]

    def program(comm):
        with comm.span("outer"), comm.span("inner"):
            comm.compute(seconds=1)

    spans = sd.run(program, 1).trace.spans
    encloses = dict(zip([s.name for s in spans], Layout.of(spans).encloses, strict=True))
    assert encloses == {"outer": True, "inner": True, "compute": False}


def test_spans_equal_but_for_less_than_a_nanosecond_nest_as_they_are():
    assert Layout.of([span("outer", 0, 5), span("inner", 1e-10, 5)]).encloses == [True, False]
    assert Layout.of([span("outer", 0, 5), span("inner", 0, 5 - 1e-10)]).encloses == [True, False]


def test_times_are_drawn_at_the_nearest_nanosecond():
    assert [nanoseconds(count * 1e-9) for count in range(100)] == list(range(100))


def test_what_touches_does_not_overlap():
    third = 1 / 3  # no whole number of nanoseconds
    assert (
        Layout.of([span("send", 0, third), span("send", third, 2 * third), span("send", 2 * third, 1)]).lane == [0] * 3
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_two_spans_of_a_lane_overlap_unless_one_encloses_the_other(seed):
    rng = random.Random(seed)
    names = ["send", "recv", "compute", "all_reduce ring", "step"]
    grain = rng.choice([1e-9, 0.3e-9, 1e-3])  # with many equal ends, and with ends closer than a nanosecond
    spans = []
    for _ in range(60):
        start = rng.randrange(40) * grain
        spans.append(span(rng.choice(names), start, start + rng.randrange(12) * grain, rng.choice(["main", "side"])))
    spans.sort(key=lambda s: (s.start_s, -s.end_s))
    layout = Layout.of(spans)
    for i, j in combinations(range(len(spans)), 2):
        if (spans[i].stream, layout.lane[i]) == (spans[j].stream, layout.lane[j]):
            assert lies_well(interval(spans[i]), interval(spans[j])), (spans[i], spans[j])


@pytest.mark.parametrize("seed", range(10))
def test_lanes_are_as_few_as_messages_at_once(seed):
    # The least number of lanes for intervals is the most that overlap at any moment.
    rng = random.Random(seed)
    spans = []
    for _ in range(80):
        start = rng.randrange(100)
        spans.append(span("recv", start, start + rng.randrange(1, 20)))
    most = max(sum(s.start_s <= t < s.end_s for s in spans) for t in range(120))
    assert max(Layout.of(spans).lane) + 1 == most
