import gc
import weakref
from contextvars import copy_context

import pytest

import simdist as sd
from simdist.arrays import Meter, charge, in_one_pass, metered, unmetered


def test_nobody_listens_and_nothing_happens():
    charge(flops=1, bytes=1)


def test_counts_inside_its_block_only():
    meter = Meter()
    with metered(meter):
        charge(flops=2, bytes=3)
        charge(bytes=4)
    charge(flops=100)
    assert (meter.flops, meter.bytes) == (2, 7)


def test_passes_on_to_the_meter_around_it():
    outer, inner = Meter(), Meter()
    with metered(outer):
        charge(flops=1)
        with metered(inner):
            charge(flops=10)
    assert (outer.flops, inner.flops) == (11, 10)


def test_one_pass_reads_and_writes_what_is_said_and_does_all_operations():
    heard = []

    class Ear:
        def charge(self, flops, bytes):
            heard.append((flops, bytes))

    def fail():
        charge(flops=4)
        raise ZeroDivisionError

    with metered(Ear()):
        with in_one_pass(100):
            charge(flops=1, bytes=7)
            with in_one_pass(50):
                charge(flops=2, bytes=8)
        with pytest.raises(ZeroDivisionError), in_one_pass(3):
            fail()
        charge(flops=5)
    assert heard == [(3, 100), (5, 0)]


def test_anything_that_can_be_charged_may_listen():
    heard = []

    class Ear:
        def charge(self, flops, bytes):
            heard.append((flops, bytes))

    with metered(Ear()):
        charge(flops=1)
        with metered(Meter()):
            charge(bytes=2)
    assert heard == [(1, 0), (0, 2)]


def test_a_meter_may_stand_around_itself_and_is_told_twice():
    meter, between = Meter(), Meter()
    with metered(meter), metered(between), metered(meter):
        charge(flops=1)
    assert (meter.flops, between.flops) == (2, 1)


def test_a_meter_that_is_kept_keeps_nothing_of_a_run():
    kept = []

    def program(comm):
        with metered(meter := Meter()):
            charge(flops=1)
        kept.append((meter, weakref.ref(comm.scheduler)))

    sd.run(program, 1)
    gc.collect()
    ((meter, scheduler),) = kept
    assert (meter.flops, scheduler()) == (1, None)


def test_each_context_has_its_own():
    mine, inner = Meter(), Meter()
    with metered(mine):
        other = copy_context()
        with metered(inner):
            other.run(charge, 5)
    assert (mine.flops, inner.flops) == (5, 0)


def test_is_gone_after_an_exception():
    meter = Meter()
    try:
        with metered(meter):
            raise KeyError
    except KeyError:
        charge(flops=1)
    assert meter.flops == 0


def test_a_block_whose_work_nobody_counts():
    outer, inner = Meter(), Meter()
    with metered(outer):
        with unmetered():
            charge(1, 2)
            with metered(inner):
                charge(3)
        charge(4)
    assert (outer.flops, inner.flops) == (4, 3)
