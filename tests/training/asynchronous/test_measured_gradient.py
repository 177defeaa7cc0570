"""The measured gradient of a worker, on a program whose times and bytes are known because time is virtual."""

import math

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import charge
from simdist.cluster import Cluster, Device, Link
from simdist.training.asynchronous import measured_gradient as module
from simdist.training.asynchronous.measured_gradient import MeasuredGradient


def steps(comm, count=6, marks=(1, 4, 6), max_norm=0.0):
    """Each step: a second of work, then half a second of waiting for another stream, and a message round the ring."""
    told = []

    def gradient(weights, step):
        charge(100)
        with comm.span("compute"):
            comm.compute(seconds=1)
        return 10.0 + step, np.full_like(weights, 3.0)

    def idle():
        side.comm.compute(seconds=0.5)

    x, y, side = np.zeros(4), np.zeros(4), comm.stream("side")
    comm.sendrecv(x, 1 - comm.rank, y, 1 - comm.rank)
    measured = MeasuredGradient(comm, gradient, marks, max_norm, lambda *news: told.append(news))
    measured.begin()
    for step in range(count):
        _, g = measured(x, step)
        x += 1
        side.start(idle).wait()
        comm.sendrecv(g, 1 - comm.rank, y, 1 - comm.rank)
    measured.end(x, count)
    return measured, told, g


def ran(comm, *args, **options):
    measured, told, g = steps(comm, *args, **options)
    copies = [float(x[0]) for x in measured.snapshots.iterates]
    costs, flops, norm, own = measured.take_costs().values()
    assert own == [] and [*measured.take_costs().values()] == [[], 0, norm, []]
    return [list(cost) for cost in costs], copies, told, flops, norm, g.tolist()


def test_each_step_costs_what_it_costs():
    for costs, copies, told, flops, norm, g in sd.run(ran, 2).results:
        assert [cost[:3] for cost in costs] == [[step, 32, 1] for step in range(6)]
        assert [cost[3] for cost in costs] == pytest.approx([0.5] * 6, abs=1e-3)
        assert copies == [1, 4, 6]
        assert told == [(1, 10.0), (4, 13.0)]
        assert flops == 600 and math.isnan(norm) and g == [3.0] * 4


def test_a_step_has_the_communication_of_its_own_time():
    """Of a step from 3 to 6 s: from 4 s on, since it computes before.

    main     3 compute 4   send, and the receive that was posted at 0   6   wait   9.5
    side     3   exchange   5   exchange   7   compute   7.5   exchange   9.5
    """
    cluster = Cluster("slow", Device("any", 1e9, 1e9, 1e9), Link(2.0, 1e12), Link(2.0, 1e12))

    def program(comm):
        def gradient(weights, step):
            if step == 0:
                comm.compute(seconds=1)
            return 0.0, weights

        def exchanges(*pauses_s):
            for idle_s in pauses_s:
                side.comm.compute(seconds=idle_s)
                side.comm.sendrecv(x, other, y, other)

        x, y, z, other, side = np.zeros(4), np.zeros(4), np.zeros(4), 1 - comm.rank, comm.stream("side")
        measured, posted = MeasuredGradient(comm, gradient, ()), comm.irecv(z, other)
        comm.compute(seconds=3)
        measured.begin()
        work = side.start(exchanges, 0.0, 0.0, 0.5)
        measured(x, 0)
        comm.send(x, other)
        posted.wait()
        work.wait()
        measured(x, 1)  # of which nothing is on the record
        measured(x, 2)
        work = side.start(exchanges, 1.0)
        comm.compute(seconds=0.5, name="disk read")
        charge(4e9)  # four seconds that are not on the record
        work.wait()
        measured.end(x, 3)
        return measured.take_costs()["costs"]

    for first, second, third in sd.run(program, 2, cluster=cluster).results:
        assert first == pytest.approx((0, 4 * 32, 4, 2.0, 6.0))
        assert second == pytest.approx((1, 0, 0, 0.0, 9.5))
        assert third == pytest.approx((2, 32, 1, 0.0, 10.0)), "it is over before the last exchange"


def test_a_step_that_is_left_out_does_not_lose_its_copy():
    def program(comm):
        measured = MeasuredGradient(comm, lambda weights, step: (0.0, weights), [1, 2, 3, 9])
        for step in (0, 3, 4):
            measured(np.full(2, float(step)), step)
        measured.end(np.full(2, 7.0), 9)
        return [float(x[0]) for x in measured.snapshots.iterates]

    assert sd.run(program, 1).results == [[3, 3, 3, 7]]


def test_a_run_that_goes_on_at_a_later_step_has_a_copy_for_what_is_still_to_come():
    def program(comm):
        told = []
        measured = MeasuredGradient(
            comm, lambda weights, step: (0.5, weights), [1, 2, 5, 6], tell=lambda *news: told.append(news)
        )
        measured.skip([5, 9])
        for step in (5, 6):
            measured(np.full(2, float(step)), step)
        return [float(x[0]) for x in measured.snapshots.iterates], told, measured.norm

    ((copies, told, norm),) = sd.run(program, 1).results
    assert copies == [5] and math.isnan(norm), "it is not cut if nothing is said of that"
    assert told == [(5, pytest.approx(math.nan, nan_ok=True))], "no loss is known yet"


def test_a_long_gradient_is_cut():
    *_, norm, g = sd.run(ran, 2, args=(1, (), 1.5)).results[0]
    assert norm == 6
    assert g == pytest.approx([0.75] * 4)


def test_a_record_that_grows_too_long_ends(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 15)
    costs, copies, *_ = sd.run(ran, 2).results[0]
    assert [cost[:2] for cost in costs] == [[step, 32] for step in range(len(costs))] and 0 < len(costs) < 6
    assert copies == [1, 4, 6]
