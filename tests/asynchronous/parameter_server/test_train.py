"""Training through servers: equal to serial where it waits for all, and who waits where it does not."""

from collections import Counter

import numpy as np
import pytest
from servers import IDEAL, KEYS, RATE, gradient_of, reports, serial, told, weights_of, worked

import simdist as sd
from simdist.arrays import partition
from simdist.asynchronous import Constant, Exponential, Slowed
from simdist.asynchronous.parameter_server import (
    BoundedStaleness,
    ParameterServer,
    Synchronous,
    asynchronous,
    train,
)
from simdist.asynchronous.parameter_server.message import HEADER_BYTES
from simdist.cluster import preset
from simdist.errors import ArgumentError, CollectiveMismatch, DeadlockError, RankFailed
from simdist.optim import SGD, AdamW

EMPTY_WINDOWS = [Synchronous(), BoundedStaleness(0)]


# -- equal to serial -----------------------------------------------------------------------------------


@pytest.mark.slow(but=10)
@pytest.mark.parametrize("consistency", EMPTY_WINDOWS, ids=repr)
@pytest.mark.parametrize("num_servers", [1, 2, 3, 8])
@pytest.mark.parametrize("workers", [*range(1, 10), 16])
def test_an_empty_window_is_sgd_on_one_rank(consistency, num_servers, workers):
    how = ParameterServer(num_servers, consistency, compute_time=Exponential(seed=workers))
    results = sd.run(worked, num_servers + workers, args=(how, 12)).results
    np.testing.assert_allclose(weights_of(results, num_servers), serial(workers, 12), rtol=0, atol=1e-12)


@pytest.mark.parametrize("consistency", EMPTY_WINDOWS, ids=repr)
@pytest.mark.parametrize(("num_servers", "workers"), [(1, 3), (2, 2), (1, 1)])
def test_an_empty_window_is_sgd_on_one_rank_in_both_worlds(spmd, consistency, num_servers, workers):
    how = ParameterServer(num_servers, consistency)
    results = spmd(reports, num_servers + workers, how, 12)
    np.testing.assert_allclose(weights_of(results, num_servers), serial(workers, 12), rtol=0, atol=1e-12)
    for server in results[:num_servers]:
        assert sorted(server["applied"]) == [[w, t] for w in range(workers) for t in range(12)]
    for worker in results[num_servers:]:
        assert worker["clocks"] == list(range(12))


@pytest.mark.parametrize("rule", [lambda w, start: SGD(w, 0.9, start=start), lambda w, start: AdamW(w, start=start)])
def test_a_synchronous_server_takes_any_optimizer(rule):
    workers, weights = 3, np.zeros(KEYS)
    alone = rule(weights, 0)
    for step in range(10):
        mean = np.mean([gradient_of(w, workers)(weights, step)[1] for w in range(workers)], axis=0)
        alone.step(weights, mean, RATE)
    results = sd.run(worked, 2 + workers, args=(ParameterServer(2, optimizer=rule), 10)).results
    np.testing.assert_allclose(weights_of(results, 2), weights, rtol=0, atol=1e-12)


def test_the_rate_may_hang_on_the_step():
    def rate(step):
        return 0.2 / (1 + step)

    def program(comm):
        return train(comm, np.zeros(KEYS), gradient_of(comm.rank - 1, 1), 5, rate)

    weights = np.zeros(KEYS)
    for step in range(5):
        weights -= rate(step) * gradient_of(0, 1)(weights, step)[1]
    np.testing.assert_allclose(weights_of(sd.run(program, 2).results, 1), weights, rtol=0, atol=1e-14)


@pytest.mark.parametrize("consistency", [BoundedStaleness(0), BoundedStaleness(2), asynchronous()], ids=repr)
@pytest.mark.parametrize(
    ("rule", "slope", "left"),
    [
        (lambda w, start: SGD(w, 0.0, weight_decay=0.5), 0.0, (1 - RATE * 0.5 / 3) ** 30),
        (lambda w, start: AdamW(w, weight_decay=0.0), -1.0, 1 + 10 * RATE),  # whose steps do not depend on the slope
    ],
)
def test_updates_that_are_applied_separately_decay_and_go_no_further_than_a_step_of_all(consistency, rule, slope, left):
    def program(comm):
        how = ParameterServer(1, consistency, rule, compute_time=Exponential())
        return train(comm, np.ones(KEYS), lambda w, step: (0.0, np.full(KEYS, slope)), 10, RATE, how)

    np.testing.assert_allclose(weights_of(sd.run(program, 4).results, 1), left, rtol=1e-7)


# -- as good as the synchronous run --------------------------------------------------------------------


def loss_at(weights):
    """Of all samples."""
    return np.mean([gradient_of(0, 1)(weights, i)[0] for i in range(64)])


@pytest.mark.parametrize(
    "consistency", [BoundedStaleness(1), BoundedStaleness(3), asynchronous(), Synchronous(1)], ids=repr
)
@pytest.mark.parametrize(("num_servers", "workers"), [(1, 3), (2, 2)])
def test_stale_gradients_reach_the_synchronous_loss_within_a_tenth(spmd, consistency, num_servers, workers):
    how = ParameterServer(num_servers, consistency, compute_time=Exponential(2e-4))
    results = spmd(reports, num_servers + workers, how, 150)
    wanted, start = loss_at(serial(workers, 150)), loss_at(np.zeros(KEYS))
    assert loss_at(weights_of(results, num_servers)) - wanted < 0.1 * (start - wanted)


# -- who waits -----------------------------------------------------------------------------------------


def waited_shares(consistency, cluster=IDEAL, steps=60):
    how = ParameterServer(1, consistency, compute_time=Slowed(Constant(1.0), {2: 4.0}))
    workers = sd.run(worked, 4, args=(how, steps), cluster=cluster).results[1:]
    return [worker.waited_s / worker.elapsed_s for worker in workers]


def test_the_fast_wait_and_the_slow_never_do():
    for consistency in (Synchronous(), BoundedStaleness(0), BoundedStaleness(3)):
        fast, slow, other = waited_shares(consistency)
        assert slow == pytest.approx(0, abs=1e-6)
        assert fast == pytest.approx(other)
        # Both end with the slow one, but for the s clocks that they may be ahead, in which they compute too.
        ahead = getattr(consistency, "staleness", 0)
        assert fast == pytest.approx(1 - 60 / (4 * (60 - ahead)), abs=0.02)


def test_without_a_bound_nobody_waits():
    assert waited_shares(asynchronous()) == pytest.approx([0, 0, 0], abs=1e-6)


def test_a_backup_worker_makes_up_for_a_slow_one():
    how = ParameterServer(1, Synchronous(backups=1), compute_time=Slowed(Constant(1.0), {2: 4.0}))
    run = sd.run(worked, 4, args=(how, 20), cluster=IDEAL)
    assert run.elapsed_s == pytest.approx(20, rel=1e-6)
    assert [worker.num_given_up for worker in run.results[1:]] == [0, 20, 0]


def test_waiting_is_on_the_record_apart_from_work():
    how = ParameterServer(1, Synchronous(), compute_time=Slowed(Constant(1.0), {2: 4.0}))
    run = sd.run(worked, 4, args=(how, 10), cluster=IDEAL)
    server, fast, slow, _ = run.trace.statistics()
    assert fast.computing_s == pytest.approx(10)
    assert fast.waiting_s == pytest.approx(30)
    assert slow.computing_s == pytest.approx(40)
    assert server.waiting_s == pytest.approx(40) == run.results[0].waited_s


def test_all_take_as_long_as_the_slow_one_in_both_worlds(spmd):
    how = ParameterServer(1, Synchronous(), compute_time=Slowed(Constant(0.002), {2: 4.0}))
    for report in spmd(reports, 4, how, 10):
        assert report["elapsed_s"] >= 0.999 * 10 * 0.008


# -- K of N --------------------------------------------------------------------------------------------


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


@pytest.mark.parametrize(("backups", "published"), [(0, 5.187), (4, 3.104)])
def test_the_times_drawn_have_the_mean_of_the_paper(backups, published):
    times = Exponential(1.0, seed=1)
    drawn = np.array([[times.seconds(rank, step) for rank in range(100)] for step in range(4000)])
    mean = np.sort(drawn, axis=1)[:, 99 - backups].mean()
    assert harmonic(100) - harmonic(backups) == pytest.approx(published, abs=5e-4)
    assert mean == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("backups", [0, 4])
def test_each_step_takes_as_long_as_the_last_gradient_that_is_kept(backups):
    times = Exponential(1.0, seed=1)
    how = ParameterServer(1, Synchronous(backups), compute_time=times)
    run = sd.run(worked, 101, args=(how, 60), cluster=IDEAL, record=False)
    drawn = [sorted(times.seconds(rank, step) for rank in range(1, 101))[99 - backups] for step in range(60)]
    assert run.elapsed_s == pytest.approx(sum(drawn), rel=1e-6)
    server, *workers = run.results
    assert len(server.counts.applied) == 60 * (100 - backups)
    assert sum(worker.num_given_up for worker in workers) == 60 * backups


@pytest.mark.slow
@pytest.mark.parametrize(("backups", "published"), [(0, 5.187), (4, 3.104)])
def test_the_mean_step_in_virtual_time_is_the_papers(backups, published):
    how = ParameterServer(1, Synchronous(backups), compute_time=Exponential(1.0, seed=1))
    run = sd.run(worked, 101, args=(how, 2500), cluster=IDEAL, record=False)
    assert run.elapsed_s / 2500 == pytest.approx(published, rel=0.01)


def test_who_is_not_told_finishes_what_is_dropped():
    how = ParameterServer(1, Synchronous(backups=2, interrupts=False), compute_time=Exponential(1.0, seed=3))
    run = sd.run(worked, 7, args=(how, 40), cluster=IDEAL)
    server, *workers = run.results
    assert len(server.counts.applied) == 40 * 4
    assert server.counts.num_late > 0
    assert sum(len(worker.clocks) for worker in workers) == 40 * 4 + server.counts.num_late
    assert all(worker.num_given_up == 0 for worker in workers)
    traffic = run.trace.statistics()[0]
    assert traffic.sent.num_spans == traffic.received.num_spans, "an answer for each request, and no notices"


# -- traffic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
@pytest.mark.parametrize("num_servers", [1, 3])
def test_a_servers_traffic_grows_with_its_workers(workers, num_servers):
    def traffic(steps):
        how = ParameterServer(num_servers, Synchronous())
        run = sd.run(worked, num_servers + workers, args=(how, steps))
        return [(s.sent.num_bytes, s.received.num_bytes) for s in run.trace.statistics()[:num_servers]]

    shards = partition(KEYS, num_servers)
    for server, (before, after) in enumerate(zip(traffic(3), traffic(10), strict=True)):
        step_bytes = workers * (HEADER_BYTES + 8 * shards.size(server))
        assert [after[i] - before[i] for i in range(2)] == [7 * step_bytes] * 2


# -- staleness ---------------------------------------------------------------------------------------


def test_staleness_counts_the_updates_in_between():
    # In turn: between the read of one of p workers and its update come those of the p - 1 others.
    in_turn = Slowed(Constant(1.0), {rank: 1 + 1e-3 * rank for rank in range(6)})
    how = ParameterServer(1, asynchronous(), compute_time=in_turn)
    server = sd.run(worked, 6, args=(how, 50), cluster=IDEAL).results[0]
    assert server.counts.staleness[5:] == [4] * 245
    assert server.counts.staleness[:5] == [0, 1, 2, 3, 4]


def test_a_synchronous_run_is_never_stale():
    server = sd.run(worked, 6, args=(ParameterServer(1, compute_time=Exponential()), 20)).results[0]
    assert set(server.counts.staleness) == {0}


def test_an_update_weighs_less_the_staler_it_is():
    aware = ParameterServer(1, asynchronous(), compute_time=Exponential(1.0), staleness_aware=True)
    run = sd.run(worked, 4, args=(aware, 30), cluster=IDEAL)
    server = run.results[0]
    weights, reads = np.zeros(KEYS), [np.zeros(KEYS)] * 3
    for (worker, clock), stale in zip(server.counts.applied, server.counts.staleness, strict=True):
        weights = weights - RATE / max(1, stale) * gradient_of(worker, 3)(reads[worker], clock)[1]
        reads[worker] = weights
    np.testing.assert_allclose(server.state.vectors["weights"], weights, rtol=0, atol=1e-12)


# -- checkpoints -------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", EMPTY_WINDOWS, ids=repr)
@pytest.mark.parametrize("rule", [lambda w, start: SGD(w, 0.9, start=start), lambda w, start: SGD(w, 0, start=start)])
def test_a_run_goes_on_from_its_servers_states(consistency, rule):
    how = ParameterServer(2, consistency, optimizer=rule)
    whole = sd.run(worked, 5, args=(how, 20)).results
    states = [report.state for report in sd.run(worked, 5, args=(how, 8)).results[:2]]

    def going_on(comm):
        return worked(comm, how, 20, state=states[comm.rank] if comm.rank < 2 else None)

    later = sd.run(going_on, 5).results
    assert [report.clocks for report in later[2:]] == [list(range(8, 20))] * 3
    np.testing.assert_array_equal(weights_of(later, 2), weights_of(whole, 2))
    assert later[2].losses == whole[2].losses[8:]


@pytest.mark.parametrize("consistency", [Synchronous(), asynchronous()], ids=repr)
def test_a_learning_rate_is_that_of_the_step_that_its_update_is_of(consistency):
    asked, how = [], ParameterServer(1, consistency)

    def rate(step):
        asked.append(step)
        return RATE

    def program(comm, steps, state=None):
        return train(comm, np.zeros(KEYS), gradient_of(comm.rank - 1, 3), steps, rate, how, state=state)

    state = sd.run(program, 4, args=(4,)).results[0].state
    sd.run(lambda comm: program(comm, 6, state if comm.rank == 0 else None), 4)
    assert Counter(asked) == dict.fromkeys(range(6), 1 if consistency.whole_steps else 3)


# -- workers that die ----------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", [BoundedStaleness(1), asynchronous(), Synchronous(1)], ids=repr)
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_the_rest_goes_on_without_a_dead_worker(consistency):
    how = ParameterServer(2, consistency, compute_time=Constant(1.0), stops={3: 5}, deadline_s=10.0)
    run = sd.run(worked, 5, args=(how, 20), cluster=IDEAL)
    servers, workers = run.results[:2], run.results[2:]
    assert [worker.ended for worker in workers] == ["done", "stopped", "done"]
    assert [worker.clocks[-1] for worker in workers] == [19, 4, 19]
    for server in servers:
        assert {w for w, t in server.counts.applied if t == 19} == {0, 2}
    # At a bound of 1 the others make two steps more and wait until the deadline; elsewhere nobody does.
    waited_s = 10 - 2 if consistency == BoundedStaleness(1) else 0
    assert workers[0].elapsed_s == pytest.approx(20 + waited_s, rel=1e-6)


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_updates_weigh_one_part_for_each_worker_that_is_alive():
    how = ParameterServer(1, asynchronous(), compute_time=Constant(1.0), stops={2: 5}, deadline_s=10.0)

    def program(comm):
        return train(comm, np.zeros(1), lambda weights, step: (float(weights[0]), -np.ones(1)), 30, 1.0, how)

    losses = sd.run(program, 4, cluster=IDEAL).results[1].losses  # the weight itself: so much is added in each second
    added = np.diff(losses)
    assert added[1:4] == pytest.approx(3 / 3)
    assert added[6:13] == pytest.approx(2 / 3)  # one is silent
    assert added[-10:] == pytest.approx(2 / 2)  # and counts as dead


def test_a_synchronous_run_cannot_do_without_a_worker():
    how = ParameterServer(1, Synchronous(), compute_time=Constant(1.0), stops={2: 5}, deadline_s=10.0)
    with pytest.raises(RankFailed, match=r"worker 1 of 3 \(rank 2\) has died; Synchronous.* can do without 0"):
        sd.run(worked, 4, args=(how, 20), cluster=IDEAL)


def test_without_a_deadline_a_silent_worker_is_a_deadlock():
    how = ParameterServer(1, Synchronous(), stops={2: 5})
    with pytest.raises(DeadlockError, match="rank 0 .*wait"):
        sd.run(worked, 4, args=(how, 20))


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_a_worker_has_its_time_from_when_it_is_given_weights():
    """Those that wait until the deadline for a dead one then take nearly as long themselves."""
    how = ParameterServer(1, BoundedStaleness(0), stops={2: 5}, deadline_s=10.0)

    def program(comm):
        def gradient(weights, step):
            comm.compute(seconds=2.0 if step <= 5 else 8.0)
            return 0.0, np.zeros(1)

        return train(comm, np.zeros(1), gradient, 9, RATE, how)

    workers = sd.run(program, 4, cluster=IDEAL).results[1:]
    assert [worker.ended for worker in workers] == ["done", "stopped", "done"]


@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_a_worker_taken_for_dead_is_dismissed():
    how = ParameterServer(1, BoundedStaleness(1), compute_time=Slowed(Constant(1.0), {2: 40.0}), deadline_s=10.0)
    workers = sd.run(worked, 4, args=(how, 60), cluster=IDEAL).results[1:]
    assert [worker.ended for worker in workers] == ["done", "dismissed", "done"]


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "steps", "fault"),
    [
        (ParameterServer(0), 1, "0 servers on 3 ranks"),
        (ParameterServer(3), 1, "3 servers on 3 ranks"),
        (ParameterServer(1, Synchronous(2)), 1, "2 backups of 2 workers"),
        (ParameterServer(1, row_width=2), 1, "7 keys in rows of 2"),
        (ParameterServer(1), -1, "steps is -1"),
    ],
)
def test_what_cannot_be(how, steps, fault):
    with pytest.raises(ArgumentError, match=fault):
        sd.run(worked, 3, args=(how, steps))


def test_ranks_that_disagree(spmd):
    def program(comm):
        reports(comm, ParameterServer(1, BoundedStaleness(comm.rank)), 3)

    with pytest.raises(CollectiveMismatch, match="staleness=0(.|\n)*staleness=1"):
        spmd(program, 2)


def test_a_server_leaves_the_first_weights_alone():
    def program(comm):
        weights = np.zeros(KEYS)
        train(comm, weights, gradient_of(comm.rank, 2), 3, RATE)
        return weights.any()

    assert sd.run(program, 3).results == [False, True, True]


def test_no_steps_at_all():
    results = sd.run(worked, 3, args=(ParameterServer(1), 0)).results
    assert not weights_of(results, 1).any()


@pytest.mark.parametrize("deadline_s", [0, -1.0, float("nan")])
def test_deadlines_that_nobody_can_keep(deadline_s):
    with pytest.raises(ArgumentError, match=f"deadline_s is {deadline_s}; needs more than 0"):
        ParameterServer(deadline_s=deadline_s)


# -- size ----------------------------------------------------------------------------------------------


def test_256_workers():
    how = ParameterServer(1, BoundedStaleness(3), compute_time=Exponential(1.0))
    results = sd.run(worked, 257, args=(how, 20), record=False).results
    assert len(results[0].counts.applied) == 256 * 20


def test_the_same_on_another_cluster():
    how = ParameterServer(2, Synchronous(), compute_time=Constant(1.0))
    here, there = (sd.run(worked, 5, args=(how, 5), cluster=preset(name)).results for name in ("h100", "v100"))
    np.testing.assert_array_equal(told(here[0])["weights"], told(there[0])["weights"])
