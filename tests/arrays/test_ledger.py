"""The ledger: every piece of memory once, from when it is held until it is gone. The oracle is what nbytes says."""

import gc
import threading

import numpy as np
import pytest

from simdist.arrays import Ledger, hold, phantom, recorded
from simdist.arrays.ledger import CATEGORIES
from simdist.errors import UnknownNameError

KINDS = {"numpy": lambda n: np.zeros(n, np.float32), "phantom": lambda n: phantom(n, np.float32)}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def live(ledger):
    return {name: count for name, count in zip(CATEGORIES, ledger.now.live, strict=True) if count}


@every_kind
def test_an_array_counts_until_it_is_gone(make):
    ledger = Ledger()
    with recorded(ledger):
        x, y = make(10), make(5)
        hold("parameters", x)
        hold("activations", (y, [None, 3, "text"]), at="layer")
        assert live(ledger) == {"parameters": 40, "activations": 20}
        assert ledger.now.at == "layer"
        del x
        assert live(ledger) == {"activations": 20}
        y = None
        assert live(ledger) == {}
    assert (ledger.peak.total, ledger.peak.largest, ledger.peak.at) == (60, "parameters", "layer")
    assert ledger.peaks["activations"] == 20
    assert [m.total for m in ledger.moments] == [40, 60, 20, 0]
    times = [m.time_s for m in ledger.moments]
    assert times == sorted(times)


def test_moments_are_when_arrays_come_and_go_and_the_peak_is_the_first_of_the_largest():
    now_s = 0.0
    ledger = Ledger(lambda: now_s)
    for at in ("one", "another"):
        x = np.zeros(2)
        ledger.hold("buffers", x, at=at)
        now_s += 1
        del x
        now_s += 3  # nobody looks before that
    assert [(m.time_s, m.total, m.at) for m in ledger.moments] == [
        *[(0, 16, "one"), (1, 0, "one")],
        *[(4, 16, "another"), (5, 0, "another")],
    ]
    assert ledger.peak == ledger.moments[0]


def test_time_never_goes_back_on_the_record():
    now_s = 0.0
    ledger, held = Ledger(lambda: now_s), []
    for time_s in (1.0, 5.0, 3.0, 6.0):  # 3.0 by a stream that is behind
        now_s = time_s
        held.append(np.zeros(2))
        ledger.hold("activations", held[-1])
    now_s = 0.0  # the run is over
    held.clear()
    assert [m.time_s for m in ledger.moments] == [1, 5, 5, 6, *[6] * 4]
    assert ledger.moments[-1].total == 0


@every_kind
def test_views_of_one_memory_count_once_and_as_long_as_one_is_left(make):
    ledger = Ledger()
    x = make(24)
    view = x[:8].reshape(2, 4).T
    ledger.hold("activations", view)
    ledger.hold("activations", [x[3:], x.reshape(4, 6).swapaxes(0, 1), x])
    assert live(ledger) == {"activations": 96}
    del x
    assert live(ledger) == {"activations": 96}
    del view
    assert live(ledger) == {}


@every_kind
def test_copies_are_memory_of_their_own(make):
    ledger = Ledger()
    x = make(8)
    arrays = [x, x.copy(), x.astype(np.float16), np.empty_like(x), x + 1]
    ledger.hold("activations", arrays)
    assert live(ledger) == {"activations": 4 * 8 * 4 + 16}


def test_what_passes_by_becomes_what_it_is_held_for_and_nothing_else_changes():
    ledger = Ledger()
    x = np.zeros(2)
    for category in ("buffers", "activations", "parameters", "buffers"):
        ledger.hold(category, x)
    assert live(ledger) == {"activations": 16}
    assert ledger.peak.total == 16


def test_a_new_array_in_the_place_of_an_old_one_counts():
    ledger = Ledger()
    for _ in range(1000):
        x = np.zeros(3)
        ledger.hold("activations", x)
        assert ledger.now.total == 24
        del x
    assert (ledger.now.total, ledger.peak.total) == (0, 24)


def test_what_a_cycle_keeps_counts_until_it_is_collected():
    ledger = Ledger()
    cycle = [np.zeros(4)]
    cycle.append(cycle)
    ledger.hold("activations", cycle[0])
    del cycle
    assert ledger.now.total == 32
    gc.collect()
    assert ledger.now.total == 0


def test_an_array_that_ends_on_another_thread():
    ledger = Ledger()
    box = [np.zeros(4)]
    ledger.hold("activations", box[0])
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert ledger.now.total == 0


def test_numbers_and_empty_arrays_weigh_nothing():
    ledger = Ledger()
    ledger.hold("activations", [np.float32(1), np.zeros(()), np.zeros(0), 3.0])
    assert ledger.moments == []


def test_only_the_latest_moments_stay_and_the_peak_does():
    ledger = Ledger(keep=3)
    arrays = [np.zeros(i) for i in range(1, 6)]
    ledger.hold("buffers", arrays)
    assert [m.total for m in ledger.moments] == [8 * 6, 8 * 10, 8 * 15]
    del arrays
    assert len(ledger.moments) == 3
    assert ledger.peak.total == 120


def test_each_rank_has_its_own(spmd):
    def program(comm):
        ledger = Ledger(comm.clock)
        with recorded(ledger):
            x = np.zeros(comm.rank + 1)
            comm.barrier()
            hold("parameters", x)
            comm.barrier()
            return ledger.now.of("parameters"), ledger.peak.at

    assert spmd(program, 3) == [(8, ""), (16, ""), (24, "")]


def test_a_ranks_streams_tell_the_ledger_of_whoever_starts_them(spmd):
    def program(comm):
        ledger, side = Ledger(comm.clock), comm.stream("side")
        kept = []

        def work(n):
            kept.append(np.zeros(n))
            hold("communication", kept[-1], "side")

        side.start(work, 9).wait()
        with recorded(ledger):
            side.start(work, comm.rank + 1).wait()
        return ledger.now.of("communication"), ledger.peak.at

    assert spmd(program, 3) == [(8, "side"), (16, "side"), (24, "side")]


def test_threads_may_share_one():
    ledger = Ledger()

    def work():
        for _ in range(2000):
            ledger.hold("buffers", [np.zeros(2), np.zeros(3)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.now.total == 0
    assert 40 <= ledger.peak.total <= 4 * 40


def test_it_may_begin_again():
    ledger = Ledger()
    x, y = np.zeros(4), np.zeros(8)
    ledger.hold("parameters", [x, y])
    del y
    ledger.begin()
    assert (ledger.moments, ledger.peak.total, ledger.peaks["parameters"]) == ([], 32, 32)
    del x
    assert ledger.now.total == 0


def test_without_a_ledger_nothing_is_held():
    x = np.zeros(3)
    hold("parameters", x)
    ledger = Ledger()
    with recorded(ledger), recorded(Ledger()):
        hold("parameters", x)
    assert ledger.moments == []


def test_memory_of_a_communicator(spmd):
    def program(comm):
        ledger = Ledger()
        x = comm.empty(6, np.float64)
        ledger.hold("parameters", x[2:])
        return ledger.now.total

    for held in spmd(program, 2):
        assert 48 <= held <= 64  # memory that peers reach comes in whole cache lines


def test_categories_are_known():
    with pytest.raises(UnknownNameError, match="activations, buffers"):
        Ledger().hold("weights", np.zeros(2))
