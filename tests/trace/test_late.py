"""Who is late, by hand: in direct collectives; of messages tests/trace/test_statistics.py tells."""

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.collectives import all_reduce, broadcast
from simdist.trace import Span
from simdist.trace.late import late


def direct(rank, start, end, name="all_reduce direct", group="world"):
    return Span(rank, "main", name, float(start), float(end), 8, detail=group)


def test_all_wait_for_the_last():
    assert late([direct(0, 0, 9), direct(1, 4, 9), direct(2, 7, 9)]) == {0: (0, 7), 1: (4, 7)}


def test_the_kth_call_of_each_rank_is_the_same_one():
    spans = [direct(0, 0, 3), direct(1, 2, 3), direct(0, 5, 9), direct(1, 4, 9), direct(0, 11, 12)]
    assert late(spans) == {0: (0, 2), 3: (4, 5)}
    assert late(spans[::-1]) == {4: (0, 2), 1: (4, 5)}, "in whatever order a file has them"


def test_groups_and_operations_are_apart():
    spans = [direct(0, 0, 9), direct(1, 4, 9, group="rows"), direct(2, 7, 9, name="all_gather direct")]
    assert late(spans) == {}


def test_a_clock_that_is_ahead_makes_no_call_longer():
    assert late([direct(0, 0, 3), direct(1, 5, 8)]) == {0: (0, 3)}
    message = [Span(0, "main", "recv", 0.0, 3.0, 8, 1), Span(1, "main", "send", 5.0, 8.0, 8, 0)]
    assert late(message) == {0: (0, 3)}


def test_who_comes_at_the_same_time_waits_for_nobody():
    assert late([Span(0, "main", "recv", 1.0, 3.0, 8, 1), Span(1, "main", "send", 1.0, 3.0, 8, 0)]) == {}
    assert late([direct(0, 1, 3), direct(1, 1, 3)]) == {}


def test_over_several_nodes_its_messages_tell_who_was_late():
    spans = [
        direct(0, 0, 9),
        direct(1, 4, 9),
        Span(0, "main", "recv", 2.0, 8.0, 8, 1),
        Span(1, "main", "send", 6.0, 8.0, 8, 0),
    ]
    assert late(spans) == {2: (2, 6)}
    at_once = [Span(0, "main", "recv", 0.0, 8.0, 8, 2), *spans[:2], Span(2, "main", "send", 6.0, 8.0, 8, 0)]
    assert late(at_once) == {0: (0, 6)}
    before = Span(0, "main", "recv", -2.0, 0.0, 8, 1)
    assert late([*spans[:2], before]) == {0: (0, 4)}
    after = Span(0, "main", "recv", 12.0, 13.0, 8, 1)
    assert late([*spans[:2], after]) == {0: (0, 4)}


@pytest.mark.parametrize("ranks", [6, 8])
def test_over_several_nodes_the_ranks_of_each_wait_for_their_own_last(ranks):
    """Nodes of four. Those who send each other messages, which is all of equal nodes and else the first, wait for each
    other, too.
    """

    def program(comm):
        x = np.ones(5000)
        all_reduce(x, comm, algorithm="direct")  # the nodes get to know each other
        broadcast(x, comm, root=5, algorithm="direct")
        comm.exchange("")
        comm.compute(seconds=1.0 + comm.rank)
        all_reduce(x, comm, algorithm="direct")

    trace = sd.run(program, ranks, cluster=preset("h100").with_(devices_per_node=4)).trace
    last = {rank: 3 if rank < 4 else ranks - 1 for rank in range(ranks)}
    for rank, told in enumerate(trace.statistics()):
        own = last[rank] - rank
        between = ranks - 1 - last[rank] if ranks == 8 or rank == 0 else 0
        assert told.waiting_s == pytest.approx(own + between, abs=1e-3), rank
