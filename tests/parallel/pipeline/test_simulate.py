"""The simulation, against a relaxation of the papers' constraints, and their published figures."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simdist.errors import ArgumentError, ScheduleError
from simdist.parallel.pipeline import Memory, Schedule, Times, executed, parse, schedule, schedules, simulate, validate
from simdist.parallel.pipeline.play import SENDS, play


def relaxed(one, seconds, hop):
    """Every action's end: the least that meets all constraints, found by raising ends until nothing changes.

    Args:
        hop: hop(src, dst) is what a message takes.
    """
    path = {}  # (stage, micro-batch) -> rank
    place = {}
    for r, row in enumerate(one.rows):
        for k, action in enumerate(row):
            for part in action.parts:
                s = one.placement[r][part.chunk]
                place[part.letter, s, part.micro_batch] = r, k
                path[s, part.micro_batch] = r
    after = {}  # (rank, place) -> [(rank, place, way)]
    for (letter, s, i), here in place.items():
        ends = after.setdefault(here, [])
        last = one.num_stages - 1
        if here[1]:
            ends.append((here[0], here[1] - 1, 0.0))
        if letter == "F" and s:
            ends.append((*place["F", s - 1, i], hop(path[s - 1, i], here[0])))
        if letter in "BI" and s < last:
            above = place.get(("B", s + 1, i)) or place["I", s + 1, i]
            ends.append((*above, hop(path[s + 1, i], here[0])))
        if letter in "BIW":
            ends.append((*place["I" if letter == "W" else "F", s, i], 0.0))
    end = [np.zeros(len(row)) for row in one.rows]
    changed = True
    while changed:
        changed = False
        for r, row in enumerate(one.rows):
            for k, action in enumerate(row):
                took = sum(seconds[part.letter][one.placement[r][part.chunk]] for part in action.parts)
                least = took + max((end[a][b] + way for a, b, way in after[r, k]), default=0.0)
                if least > end[r][k] + 1e-9:
                    end[r][k], changed = least, True
    return end


@pytest.mark.parametrize("name", schedules())
def test_every_action_ends_as_soon_as_it_can(name):
    rng = np.random.default_rng(0)
    one = schedule(name, stages=4, micro_batches=7)
    f, b, w = (rng.uniform(0.5, 2, one.num_stages).tolist() for _ in range(3))
    found = simulate(one, Times(f, b, w, 0.3))
    seconds = {"F": f, "B": [x + y for x, y in zip(b, w, strict=True)], "I": b, "W": w}
    for got, wanted in zip(found.course.end, relaxed(one, seconds, lambda a, b: 0.3 * (a != b)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["1f1b", "dualpipe", "zb-h1"])
def test_a_whole_backward_may_take_less_than_its_halves(name):
    rng = np.random.default_rng(1)
    one = schedule(name, stages=4, micro_batches=8)
    f, b, w = (rng.uniform(0.5, 2, one.num_stages).tolist() for _ in range(3))
    whole = [x + 0.3 * y for x, y in zip(b, w, strict=True)]
    found = simulate(one, Times(f, b, w, 0.3, backward=whole))
    seconds = {"F": f, "B": whole, "I": b, "W": w}
    for got, wanted in zip(found.course.end, relaxed(one, seconds, lambda a, b: 0.3 * (a != b)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v", "chimera"])
def test_some_ranks_are_farther_from_each_other(name):
    one = schedule(name, stages=4, micro_batches=8)
    hops = {(a, b): 0.1 * (1 + a + b) for a in range(4) for b in range(4) if abs(a - b) in (1, 3)}
    found = simulate(one, Times(communication=hops))
    seconds = {letter: [time * one.share] * one.num_stages for letter, time in {"F": 1, "B": 2, "I": 1, "W": 1}.items()}
    wanted = relaxed(one, seconds, lambda a, b: hops[a, b] if a != b else 0.0)
    for got, ends in zip(found.course.end, wanted, strict=True):
        np.testing.assert_allclose(got, ends, rtol=1e-12)
    sends = [s for s in found.trace() if s.name == "send"]
    assert all(s.end_s - s.start_s == pytest.approx(hops[s.rank, s.peer]) for s in sends)


def test_of_ranks_nothing_is_said_of_the_longest_way_counts():
    times = Times(communication={(0, 1): 0.5, (1, 0): 2.0})
    assert (times.hop(0, 1), times.hop(1, 0), times.hop(0, 2), times.longest_hop) == (0.5, 2.0, 2.0, 2.0)
    assert Times(communication={}).hop(0, 1) == 0
    blocking = simulate(parse("F0 B0\nF0 B0"), times, sends="blocking")
    assert blocking.course.start == [[0, 1 + 0.5 + 1 + 2 + 2.0], [1.5, 2.5]]
    with pytest.raises(ArgumentError, match="communication is -1"):
        Times(communication={(0, 1): -1.0})
    with pytest.raises(ArgumentError, match="ports is -1.0"):
        Times(ports={(0, 1): ("out", -1.0)})


def test_messages_follow_each_other_through_a_port():
    """Of four forwards the first arrives at 1 + 2; the next leave when the one before it has held the port for 3."""
    one = parse("F0 F1 F2 F3 B0 B1 B2 B3\nF0 F1 F2 F3 B0 B1 B2 B3")
    times = Times(1, 1, 0, communication=2.0, ports={(0, 1): ("out", 3.0)})
    found = simulate(one, times).course
    assert found.start[1][:4] == [3, 6, 9, 12]
    assert found.start[0][4:] == [16, 17, 18, 19]  # backward 13 to 14, and has no port
    trace = simulate(one, times).trace()
    assert [s.end_s for s in trace.sends(0)] == [3, 6, 9, 12]
    free = simulate(one, Times(1, 1, 0, communication=2.0)).course
    assert free.start[1][:4] == [3, 4, 5, 6]


def test_long_messages_wait_until_their_receiver_is_one_action_away():
    """F2 is made at 3, but rank 1 has a buffer for it when F0 is done, at 4; for F3 when F1 is done, at 5."""
    one = parse("F0 F1 F2 F3 B0 B1 B2 B3\nF0 F1 F2 F3 B0 B1 B2 B3")
    long = Times(1, 1, 0, communication=2.0, ports={(0, 1): ("out", 0.0)}, rendezvous=True)
    assert simulate(one, long).course.start[1][:4] == [3, 4, 6, 7]
    assert simulate(one, replace(long, rendezvous=False)).course.start[1][:4] == [3, 4, 5, 6]


@pytest.mark.parametrize("sends", SENDS)
def test_a_rank_may_come_later_than_others(sends):
    """Rank 1 begins at 2, and has no buffer before that."""
    one = parse("F0 F1 B0 B1\nF0 F1 B0 B1")
    late = Times(1, 1, 0, ports={(0, 1): ("out", 0.0)}, rendezvous=True, starts=[0, 2])
    found = simulate(one, late, sends=sends).course
    assert [found.start[rank][0] for rank in (0, 1)] == [0, 2]
    assert sends == "blocking" or found.left[one.steps[0][0].sends[0].value] == 2


def test_messages_without_a_port_wait_for_nobody():
    """B0 is made at 4, while rank 0 has F2 and F3 to do; it expects B0 from 6 on."""
    one = parse("F0 F1 F2 F3 B0 B1 B2 B3\nF0 B0 F1 B1 F2 B2 F3 B3")
    hops = {(0, 1): 0.0, (1, 0): 5.0}
    long = Times([2, 1], [1, 1], [0, 0], communication=hops, ports={(0, 1): ("out", 0.0)}, rendezvous=True)
    assert simulate(one, long).course.start[0][4] == 4 + 5
    both = replace(long, ports={(0, 1): ("out", 0.0), (1, 0): ("out", 0.0)})
    assert simulate(one, both).course.start[0][4] == 6 + 5


def test_ranks_have_ports_of_their_own_and_two_wires_may_share_one():
    one = parse("F0 F1 B0 B1\nF0 F1 B0 B1\nF0 B0 F1 B1")
    wires = {(0, 1): ("out", 4.0), (1, 2): ("out", 6.0), (1, 0): ("out", 4.0)}
    hops = {pair: held for pair, (_, held) in wires.items()} | {(2, 1): 1.0}
    found = simulate(one, Times(1, 1, 0, communication=hops, ports=wires)).course
    assert found.start[2] == [12, 13, 18, 19]  # F0 arrives at 5 and at 12; F1 at 9, is made at 10, and leaves at 12
    assert found.start[0][2:] == [22, 26]  # B0 is made at 16, while F1 holds the port until 18, and B1 leaves at 22


def test_a_rank_receives_one_message_at_a_time():
    """Activations come from one side, and gradients from the other, by one card."""
    wires = {(a, b): ("card", 2.0) for a in range(4) for b in range(4) if abs(a - b) == 1}
    arrived = simulate(
        schedule("1f1b", stages=4, micro_batches=8), Times(communication=2.0, ports=wires)
    ).course.arrived
    for rank in range(4):
        into = sorted(at for value, at in arrived.items() if value.stage == rank)
        assert all(b - a >= 2 for a, b in pairwise(into)), (rank, into)


# arXiv 2401.10241, tables 5 and 9, with the times that it measured: p, m, TF, TB, TW, Tcomm; layers a rank, each of
# which is a chunk of 1F1B-I; 1F1B, 1F1B-I, ZB-H1, ZB-H2
PUBLISHED = [
    (8, 24, 18.522, 18.086, 9.337, 0.601, 3, 0.2431, 0.1055, 0.1585, 0.1083),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 3, 0.1985, 0.0818, 0.1242, 0.0837),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 3, 0.1240, 0.0443, 0.0674, 0.0444),
    (8, 24, 29.718, 29.444, 19.927, 0.527, 4, 0.2347, 0.0808, 0.1323, 0.0698),
    (8, 32, 29.802, 29.428, 19.530, 0.577, 4, 0.1898, 0.0628, 0.1045, 0.0559),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 4, 0.1091, 0.0320, 0.0554, 0.0294),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 3, 0.2552, 0.1104, 0.1397, 0.0672),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 3, 0.2082, 0.0852, 0.1088, 0.0516),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 3, 0.1251, 0.0445, 0.0576, 0.0266),
    (32, 96, 10.419, 10.207, 7.715, 0.408, 2, 0.2646, 0.1493, 0.1421, 0.0641),
    (32, 128, 10.408, 10.204, 7.703, 0.408, 2, 0.2168, 0.1164, 0.1106, 0.0490),
    (32, 256, 10.402, 10.248, 7.698, 0.460, 2, 0.1352, 0.0624, 0.0594, 0.0257),
]


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(("p", "m", "f", "b", "w", "hop", "layers", "plain", "interleaved", "h1", "h2"), PUBLISHED)
def test_published_bubble_rates(p, m, f, b, w, hop, layers, plain, interleaved, h1, h2):
    times = Times(f, b, w, hop)

    def rate(name, **options):
        return simulate(schedule(name, stages=p, micro_batches=m, **options), times).own_bubble_rate

    assert [round(rate(name), 4) for name in ("1f1b", "zb-h1", "zb-h2")] == [plain, h1, h2]
    # Megatron's order, simulated like the others, reads a little above the paper's column.
    assert interleaved <= rate("interleaved-1f1b", chunks=layers) <= 1.05 * interleaved


@pytest.mark.parametrize("sends", SENDS)
def test_who_waits_for_what_nobody_makes_waits_for_ever(sends):
    course = play(Schedule("broken", parse("F0 B0\nB0").rows), Times(), sends)
    assert {rank: message.value.stage for rank, message in course.waiting.items()} == {0: 0, 1: 1}
    assert course.end == [[1.0], []]


def test_dualpipe_beside_1f1b_and_zb1p():
    # DeepSeek-V3 report, table 2: F = 1, B = 2, W = 1, F&B = 3, 8 ranks.
    times = Times(1, 1, 1, overlapped=3)
    found = {
        name: simulate(schedule(name, stages=8, micro_batches=20), times) for name in ("1f1b", "zb-h1", "dualpipe")
    }
    assert [run.bubble for run in found.values()] == pytest.approx([21, 7, 6])
    assert [run.own_bubble for run in found.values()] == pytest.approx([21, 7, 6])
    assert validate(found["dualpipe"].schedule).in_flight == (9,) * 8


def test_a_pair_that_takes_less_than_its_parts():
    one = schedule("dualpipe", stages=4, micro_batches=8)
    assert simulate(one, Times(overlapped=2.5)).makespan < simulate(one).makespan
    assert simulate(one, Times(overlapped=3)).makespan == simulate(one).makespan


def test_a_pair_with_half_a_backward_is_not_measured_as_one_with_all_of_it():
    one, times = parse("F0 F1&B0 F2&I1 W1 B2"), Times(1, 1, 1, overlapped=2.5)
    run = simulate(one, times)
    assert run.makespan == 1 + 2.5 + (1 + 1) + 1 + (1 + 1)
    assert executed(one, run.trace()).times.overlapped == times.overlapped


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize("m", [24, 40])
def test_equal_times(p, m):
    def run(name):
        return simulate(schedule(name, stages=p, micro_batches=m))

    bubble = 3 * (p - 1)
    assert run("1f1b").own_bubble == pytest.approx(bubble)
    assert run("zb-h1").own_bubble == pytest.approx(bubble / 3)
    assert run("zb-h2").own_bubble == pytest.approx(0)
    assert run("zb-v").own_bubble == pytest.approx(0)
    assert run("v-half").own_bubble <= bubble / 2 + 1e-9
    assert run("v-min").own_bubble <= 2 * bubble / 3 + 0.5 + 1e-9  # one action more, where 3 divides p
    b0 = (p - 1) / (m + p - 1)
    assert run("v-half").own_bubble_rate <= 0.5 * b0 * (m + p - 1) / (m + (p - 1) / 2) + 1e-9


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8, 16])
def test_memory_of_the_v_family(p):
    kept = {
        name: validate(schedule(name, stages=p, micro_batches=3 * p)).in_flight for name in ("zb-v", "v-half", "v-min")
    }
    assert kept["zb-v"] == (p,) * p
    assert max(kept["v-half"]) == (p + 2) // 2
    assert max(kept["v-min"]) <= (p + 4) // 3


@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("m", [1, 3, 8, 20])
def test_gpipe_and_1f1b_in_closed_form(k, m):
    for name in ("gpipe", "1f1b"):
        run = simulate(schedule(name, stages=k, micro_batches=m), Times(1.5, 2.0, 0.75))
        assert run.bubble_rate == pytest.approx((k - 1) / (m + k - 1))
        assert run.makespan == pytest.approx((m + k - 1) * 4.25)
        assert run.utilisation(0) == pytest.approx(m / (m + k - 1))


def test_of_unequal_stages_the_slowest_counts_for_each_micro_batch():
    """Zheng et al. 2022, Alpa, arXiv 2201.12023: Σ t + (m-1) max t; of 1F1B it is an upper bound."""
    forward = [1.0, 3.0, 2.0, 1.5]
    times = Times(forward, [2 * f for f in forward], [0.0] * 4)
    for m in (1, 2, 7, 20):
        latency = 3 * sum(forward) + (m - 1) * 3 * max(forward)
        assert simulate(schedule("gpipe", stages=4, micro_batches=m), times).makespan == pytest.approx(latency)
        assert simulate(schedule("1f1b", stages=4, micro_batches=m), times).makespan <= latency


@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_interleaving_divides_the_bubble(v):
    for name in ("interleaved-1f1b", "breadth-first"):
        run = simulate(schedule(name, stages=4, micro_batches=12, chunks=v))
        assert run.bubble == pytest.approx(9 / v)


def test_naive_has_one_rank_at_work():
    run = simulate(schedule("naive", stages=4, micro_batches=3))
    assert run.makespan == 4 * 3 * 3
    assert [run.utilisation(r) for r in range(4)] == [0.25] * 4


def test_actions_that_take_no_time_leave_no_bubble():
    run = simulate(schedule("1f1b", stages=2, micro_batches=3), Times(0, 0, 0))
    assert (run.makespan, run.utilisation(0), run.bubble_rate, run.own_bubble_rate) == (0, 1, 0, 0)


def test_eager_hides_messages():
    slow = Times(communication=0.5)
    eager, plain = (simulate(schedule(n, stages=4, micro_batches=16), slow).makespan for n in ("eager-1f1b", "1f1b"))
    assert eager < plain


def test_blocking_sends():
    gpipe = schedule("gpipe", stages=3, micro_batches=4)
    assert simulate(gpipe, sends="blocking").makespan == simulate(gpipe).makespan  # messages that take no time
    slow = Times(communication=0.5)
    assert simulate(gpipe, slow, sends="blocking").makespan > simulate(gpipe, slow).makespan
    run = simulate(parse("F0 B0\nF0 B0"), slow, sends="blocking")
    assert run.course.start == [[0, 5], [1.5, 2.5]]
    with pytest.raises(ScheduleError, match=r"deadlock with blocking sends(.|\n)*>"):
        simulate(schedule("1f1b", stages=4, micro_batches=4), sends="blocking")


def test_deadlock():
    with pytest.raises(ScheduleError, match=r"deadlock with buffered sends(.|\n)*>B0<"):
        simulate(parse("F0 B0 F1 B1\nF1 B1 F0 B0"))


def test_memory_over_time():
    run = simulate(parse("F0 I0 F1 W0 I1 W1"))
    assert run.memory(0, Memory(10, 4)) == [
        (0, 0), (0, 10), (1, 10), (1, 10), (2, 4), (2, 14), (3, 14), (3, 14), (4, 10), (4, 10), (5, 4), (5, 4), (6, 0)
    ]  # fmt: skip


def test_the_record():
    run = simulate(schedule("1f1b", stages=3, micro_batches=4), Times(communication=0.25))
    trace = run.trace()
    own = [s for s in trace if s.rank == 1 and s.name[0] in "FB"]
    assert [(s.name, s.start_s, s.end_s) for s in own] == list(
        zip(map(str, run.schedule.rows[1]), run.course.start[1], run.course.end[1], strict=True)
    )
    assert [s.micro_batch for s in own] == [action.micro_batch for action in run.schedule.rows[1]]
    messages = trace.messages()
    assert len(messages) == sum(validate(run.schedule).messages) == 16
    for send, recv in messages:
        assert (send.peer, recv.peer, send.micro_batch) == (recv.rank, send.rank, recv.micro_batch)
        assert send.seconds == pytest.approx(0.25)
        assert recv.end_s == max(recv.start_s, send.end_s)
    assert {recv.start_s < send.end_s for send, recv in messages} == {True, False}  # waited for, and there before


def test_the_record_of_blocking_sends():
    trace = simulate(parse("F0 B0\nF0 B0"), Times(communication=0.5), sends="blocking").trace()
    assert [(send.start_s, send.end_s, recv.end_s) for send, recv in trace.messages()] == [
        (1.0, 1.5, 1.5),
        (4.5, 5.0, 5.0),
    ]


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        ({"forward": -1.0}, "forward is -1.0"),
        ({"forward": 1e308}, r"forward is 1e\+308; needs a time of at least 0 and less than 1e\+100"),
        ({"communication": float("inf")}, "communication is inf"),
        ({"backward_weight": [1.0, float("nan")]}, "backward_weight is nan"),
    ],
)
def test_times_that_cannot_be(times, fault):
    with pytest.raises(ArgumentError, match=fault):
        Times(**times)


def test_times_of_other_stages():
    with pytest.raises(ArgumentError, match="forward has 3 times; gpipe has 2 stages"):
        simulate(schedule("gpipe", stages=2, micro_batches=1), Times(forward=[1, 2, 3]))
    with pytest.raises(ArgumentError, match="starts has 3 times; gpipe has 2 ranks"):
        simulate(schedule("gpipe", stages=2, micro_batches=1), Times(starts=[1, 2, 3]))


class Row(tuple):
    """A row of a schedule that cannot be cut."""

    def __getitem__(self, at):
        assert not isinstance(at, slice)
        return super().__getitem__(at)


def test_what_is_left_of_a_row_is_not_copied_at_every_wait():
    """It made the time grow with the square of the micro-batches: a minute for 40,000."""
    made = schedule("1f1b", 3, 5)
    object.__setattr__(made, "rows", tuple(map(Row, made.rows)))
    assert simulate(made).makespan == simulate(schedule("1f1b", 3, 5)).makespan
