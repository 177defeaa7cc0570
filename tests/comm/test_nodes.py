"""Which ranks share a machine, the board that those have, and the clock that all have."""

import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from jobs import needs_mpi

import simdist as sd
from simdist.comm.board import ABSENT, AT_WORK
from simdist.comm.nodes import common_zero, node_indices, open_board, pretended
from simdist.errors import WorldUnavailable


def test_nodes_are_pretended(monkeypatch):
    assert pretended([0, 0, 1]) == [0, 0, 1]
    monkeypatch.setenv("SIMDIST_RANKS_PER_NODE", "2")
    assert pretended([0, 0, 0, 0, 0]) == [0, 0, 1, 1, 2]


@needs_mpi
def test_nodes_are_numbered_by_their_lowest_ranks_and_their_clocks_brought_together():
    def program(comm):
        mpi = comm._group.mpi
        neighbours = mpi.Split([7, 4, 4, 5][comm.rank], comm.rank)
        nodes = node_indices(mpi, neighbours)
        ahead_s = 1000.0 * nodes[comm.rank]  # as if each node had been started at another time

        def clock():
            return comm.clock() + ahead_s

        zero_s = common_zero(mpi, neighbours, nodes, clock)
        return zero_s - ahead_s, nodes

    zeros, nodes = zip(*sd.run(program, 4, world="mpi").results, strict=True)
    assert np.ptp(zeros) < 0.1
    assert nodes == ([0, 1, 1, 2],) * 4


def test_the_shortest_round_trip_tells_how_far_a_clock_is_ahead():
    """This clock is 1000 s ahead. All questions take 9 s and their answers 1 s, but for the tenth: 1 s each."""
    now_s, asked = 0.0, 0

    def ask(note, dst):
        nonlocal now_s, asked
        asked += 1
        now_s += 1.0 if asked == 10 else 9.0

    def hear(note, src):
        nonlocal now_s
        note[0] = now_s
        now_s += 1.0

    def rank_0_says(zero_s):
        zero_s[0] = 5.0

    world = SimpleNamespace(Get_rank=lambda: 1, Send=ask, Recv=hear, Bcast=rank_0_says)
    alone = SimpleNamespace(Bcast=lambda ahead_s: None)
    assert common_zero(world, alone, [0, 1], lambda: now_s + 1000.0) == 1005.0


def test_rank_0_tells_each_node_its_time():
    """Its clock shows 1 s more each time; it answers whoever asks, and begins the job's clock when all have asked."""
    calls, now_s = [], iter(range(1000))
    world = SimpleNamespace(
        Get_rank=lambda: 0,
        Recv=lambda note, src: calls.append(src),
        Send=lambda note, dst: calls.append((dst, float(note[0]))),
        Bcast=lambda zero_s: calls.append(float(zero_s[0])),
    )
    alone = SimpleNamespace(Bcast=lambda ahead_s: calls.append(list(ahead_s)))
    zero_s = common_zero(world, alone, [0, 1, 0, 2, 2], lambda: float(next(now_s)))
    rounds = int(zero_s) // 2
    assert rounds >= 8 and zero_s == 2 * rounds
    want = [told for i in range(rounds) for told in (1, (1, i))]
    want += [told for i in range(rounds, 2 * rounds) for told in (3, (3, i))]
    assert calls == [*want, [0.0], zero_s]


def test_where_there_is_no_place_for_the_board_all_ranks_of_the_node_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("é" * 60)))
    notes = []

    def hear(note):
        note[:] = notes[0]

    first = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 2, Bcast=notes.append)
    for neighbours in (first, SimpleNamespace(Get_rank=lambda: 1, Bcast=hear)):
        with pytest.raises(WorldUnavailable, match="which TMPDIR gives: No such file or directory"):
            open_board(SimpleNamespace(rank=0, board=None), neighbours)


def test_ranks_of_a_node_share_a_board_whose_file_is_gone_when_all_have_opened_it(tmp_path, monkeypatch):
    folder = tmp_path / ("é" * 60)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    notes, watchdogs = [], [SimpleNamespace(rank=rank, board=None) for rank in (4, 7)]

    def hear(note):
        note[:] = notes[0]

    def others_open_it():
        (place,) = folder.iterdir()
        open_board(watchdogs[1], SimpleNamespace(Get_rank=lambda: 1, Bcast=hear, Barrier=place.exists))
        assert (place / "board").exists(), "all but rank 0 leave it there"

    first = {"Get_rank": lambda: 0, "Get_size": lambda: 3, "Bcast": notes.append, "Barrier": others_open_it}
    open_board(watchdogs[0], SimpleNamespace(**first))
    assert not list(folder.iterdir())
    one, other = (watchdog.board for watchdog in watchdogs)
    assert [(slot.rank, slot.state) for slot in one.slots()[:2]] == [(4, AT_WORK), (7, AT_WORK)]
    assert [slot.rank for slot in other.slots()[:2]] == [4, 7] and other.slot(2).state == ABSENT
    open_board(watchdogs[0], None)
    assert watchdogs[0].board is one, "which its launcher may have made"
    one.close()
    other.close()
