"""What rank 0 makes of what ranks tell, worked out by hand."""

from dataclasses import replace
from math import nan
from types import SimpleNamespace

import pytest

from simdist.trace import Span, Trace
from simdist.training import Config
from simdist.training.asynchronous.log import Log, Stretch
from simdist.training.asynchronous.measured_gradient import StepCost
from simdist.training.asynchronous.report import report
from simdist.training.asynchronous.results import Results, window
from simdist.training.asynchronous.role import RankReport


def message(src, dst, start_s, end_s, tag=0):
    return [
        Span(src, "main", "send", start_s, end_s, 8, dst, tag),
        Span(dst, "main", "recv", start_s, end_s, 8, src, tag),
    ]


def test_a_window_has_both_ends_of_a_message_or_none():
    late = [Span(0, "main", "send", 0.0, 1.0, 8, 1), Span(1, "main", "recv", 0.0, 6.0, 8, 0)]
    spans = [*late, *message(0, 1, 5.5, 6.5), *message(0, 1, 7.0, 8.0), *message(0, 1, 9.5, 10.0)]
    spans += [Span(0, "main", "compute", 0.0, 5.0), Span(0, "main", "compute", 5.0, 5.5)]
    spans += [Span(1, "main", "compute", 4.0, 9.5)]
    cut = window(Trace(spans, 2), 5.0, 9.0)
    assert sorted((s.rank, s.name, s.start_s, s.end_s) for s in cut) == [
        (0, "compute", 5.0, 5.5),
        *[(0, "send", t, t + 1) for t in (5.5, 7.0)],
        (1, "compute", 5.0, 9.0),
        *[(1, "recv", t, t + 1) for t in (5.5, 7.0)],
    ]


CONFIG = {"method": "ssp", "global_batch_size": 6, "steps": 4, "interval": 2, "trace_steps": 2, "warmup_steps": 0}


def three(step, worker):
    return 3


def results(**settings):
    """A server, and two workers, of which the second takes twice as long; the record of each is a span a step."""
    fast = RankReport([0, 1, 2, 3], [11.0, 12.0, 13.0, 14.0], [4.0, 3.0, 2.0, 1.0], 2.0, 4.0)
    slow = RankReport([0, 1, 2, 3], [12.0, 14.0, 16.0, 18.0], [4.0, 5.0, 4.0, 3.0], 0.0, 8.0)
    server = RankReport([], [], [], 2.0, 8.0, (0, 1, 1, 2))
    costs = [StepCost(step, 10 * (step + 1), 2, 0.1) for step in range(4)]
    spans = [Span(r, "main", "compute", t - 1, t) for r, d in enumerate((fast, slow), 1) for t in d.times_s] + [
        Span(0, "main", "update", 10.0, 18.0)
    ]
    parts = [server, *(worker._replace(costs=costs, flops=1000, norm=0.0) for worker in (fast, slow))]
    record, stretches = Trace(spans, 3), [Stretch(10.0, 0.0)]
    return Results(Config(**CONFIG | settings), [4, 4], 4.0, 4, parts, record, stretches, three, range(3))


def test_a_rank_that_waits_for_a_message_sent_later_has_waited():
    """Rank 0 waits for rank 1, which computes beyond the end of what is kept: the last step of rank 2."""
    times_s = [11.0, 19.0], [18.0, 26.0], [11.0, 12.0, 13.0, 14.0]
    spans = [Span(0, "main", "compute", 10.0, 11.0), Span(1, "main", "compute", 10.0, 18.0)]
    spans += [Span(0, "main", "recv", 11.0, 18.0, 8, 1), Span(1, "main", "send", 18.0, 18.0, 8, 0)]
    spans += [Span(2, "main", "compute", t - 1, t) for t in times_s[2]]
    parts = [RankReport(list(range(len(own))), own, [1.0] * len(own)) for own in times_s]
    settings = {"method": "d-psgd", "trace_steps": 4}
    assert replace(results(**settings), reports=parts, record=Trace(spans, 3)).waited_shares() == [0.75, 0.0, 0.0]


MARKS = [(1, 5.0), (2, 4.5), (4, 4.0)]


def logged(told, marks=MARKS, **known):
    log = Log(told.config, told.windows, 2, [mark for mark, _ in MARKS], **known)
    log.add(told.stretches[0], dict(enumerate(told.workers)))
    return [log.line(*mark) for mark in marks], log


def test_lines_are_of_all_workers():
    found, _ = logged(results())
    assert [line.step for line in found] == [1, 2, 4]
    assert [line.train_loss for line in found] == [4.0, 4.0, 2.5]
    assert [line.validation_loss for line in found] == [5.0, 4.5, 4.0]
    assert [line.seconds for line in found] == [2.0, 4.0, 8.0]
    assert [line.tokens_per_s for line in found] == [3.0, 3.0, 3.0]  # 6 windows of one target in 2 s
    assert [line.sent_bytes for line in found] == [10, 20, 35]
    assert [line.communication_share for line in found] == pytest.approx([0.05, 0.05, 0.05])
    assert [line.learning_rate for line in found] == pytest.approx([Config(**CONFIG).rates()(i) for i in (0, 1, 3)])


def test_sums_of_the_whole_run():
    found = results()
    assert found.seconds == 8 and found.targets == 24
    assert replace(found, stretches=[Stretch(10.0, 5.0)]).seconds == 8  # of a run that went on after 5 s
    assert found.step_s == 1.5
    assert found.staleness == [0, 1, 1, 2]
    assert found.waited_shares() == [0.25, 0.5, 0.0]
    assert not found.has_consensus
    assert [(m.step, m.time_s, m.loss) for m in found.timed_losses][:2] == [(1, 1.0, 4.0), (2, 2.0, 3.0)]


def test_the_record_is_of_the_time_when_all_were_at_work():
    found = results()
    assert found.shown == (12.0, 14.0)
    assert sorted((s.rank, s.start_s) for s in found.trace) == [(0, 12.0), (1, 12.0), (1, 13.0), (2, 13.0)]
    assert len(results(trace_steps=0).trace) == 0
    assert results(trace_steps=9).shown == (10.0, 14.0)


@pytest.mark.parametrize(("end_s", "shown"), [(13, (10.0, 12.0)), (0, (10.0, 11.0))], ids=["two steps", "none"])
def test_a_record_that_ended_early_is_shown_up_to_its_end_and_at_least_for_a_step(end_s, shown):
    whole = results()
    cut = Trace((s for s in whole.record if s.rank != 2 or s.end_s < end_s), 3)
    assert replace(whole, record=cut).shown == shown


def test_lines_go_on_from_what_is_known_of_the_steps_before():
    """Of the step before the cut, at 3 s, one of the two losses is known: 6; and that the last line was at 2 s."""
    known = [(4, [6.0 * 3, 3, 3.0, 100, 1, 0.5])]
    found, log = logged(results(), MARKS[2:], tallies=known, logged_s=2.0)
    (line,) = found
    assert line.train_loss == pytest.approx((6.0 + 2.0 + 1.0 + 4.0 + 3.0) / 5)
    assert line.seconds == 8.0 and line.tokens_per_s == pytest.approx(5 * 3 / 6)
    assert line.sent_bytes == round((100 + 2 * (30 + 40)) / 5)
    assert log.tallies() == [(1, [24.0, 6, 2.0, 20, 2, 0.2, 0, 0.0]), (2, [24.0, 6, 4.0, 40, 2, 0.2, 0, 0.0])]


def test_a_loss_counts_for_the_windows_that_it_is_of():
    """Step 0 has one window, which is the first worker's; step 3 has two, those that are left of a pass."""
    few = {0: (1, 0), 3: (1, 1)}
    told = replace(results(order="passes"), windows=lambda step, worker: few.get(step, (3, 3))[worker])
    slow = told.reports[2]
    told.reports[2] = slow._replace(losses=[nan, *slow.losses[1:]])
    found, _ = logged(told)
    assert [line.train_loss for line in found] == [4.0, (3 * 3.0 + 3 * 5.0) / 6, (3 * (2.0 + 4.0) + 1.0 + 3.0) / 8]
    assert [line.tokens_per_s for line in found] == [1 / 2, 6 / 2, 8 / 4]
    assert told.targets == 1 + 6 + 6 + 2
    words = str(report(told, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)))
    assert "4 steps of each worker, at most 6 windows a step of all" in words


def test_stretches_are_put_together():
    costs = [StepCost(step, 10, 2, 0.1) for step in range(3)]
    one = RankReport([0], [1.0], [4.0], 2.0, 4.0, [0], 1, 2, costs[:1], 100, 5.0, [(0, 0.5)])
    two = RankReport([1, 2], [2.0, 3.0], [3.0, 2.0], 1.0, 3.0, [1, 2], 3, 4, costs[1:], 10, 6.0, [(2, 0.25)])
    own = [(0, 0.5), (2, 0.25)]
    both = RankReport([0, 1, 2], [1.0, 2.0, 3.0], [4.0, 3.0, 2.0], 3.0, 7.0, [0, 1, 2], 4, 6, costs, 110, 6.0, own)
    assert one.then(two) == both


def test_of_many_ranks_it_tells_how_long_they_waited_on_average_and_at_most():
    server, fast, slow = results().reports
    many = replace(results(), reports=[server, fast, *[slow] * 15], done=[4] * 16, ranks=range(17))
    told = str(report(many, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)))
    assert "servers 25.0% on average, 25.0% to 25.0%; workers 3.1% on average, 0.0% to 50.0%" in told


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "ssp", "staleness": 2}, "ssp: 1 server, 2 workers at most 2 steps apart"),
        ({"method": "local-sgd", "local_steps": 3}, "local-sgd: an average every 3 steps"),
        ({"method": "d-psgd", "graph": "ring"}, "d-psgd on a graph: ring"),
    ],
)
def test_it_tells_who_does_what_with_whom(settings, words):
    told = report(results(**settings), SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0))
    assert told.summary[0].endswith(f", 3 ranks, {words}")


def test_pauses_do_not_count():
    told = results()
    later = [Stretch(10.0, 0.0), Stretch(15.0, 3.0)]  # from 13 s to 15 s there was a pause
    found = Results(told.config, told.done, 4.0, 4, told.reports, told.record, later, three, range(3))
    assert [m.time_s for m in found.timed_losses if m.time_s > 3][-2:] == [4.0, 6.0]
    assert found.seconds == 6.0


def test_ranks_are_told_by_their_own_numbers_when_others_have_died():
    left = replace(results(), ranks=(0, 2, 3), lost=(1,))
    told = str(report(left, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)))
    assert "waited for others and their messages: rank 0 25%  rank 2 50%  rank 3 0%" in told
    assert "ranks that died, and without which the others went on: 1" in told


@pytest.mark.parametrize(
    ("times", "formula"),
    [({"slow": "2:4.0"}, "1,000.000 ms"), ({"compute_time": "exponential"}, "500.000 ms")],  # H(2) - H(1) = 1/2
)
def test_a_step_with_backups_takes_as_long_as_the_first_that_are_needed(times, formula):
    told = results(method="backup", backups=1, compute_seconds=1.0, staleness=None, **times)
    rows = report(told, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)).rows
    assert rows[2].formula == formula


def test_who_has_died_leaves_its_part_of_a_step_undone():
    settings = {"method": "backup", "backups": 1, "slow": "1:9.0,3:2.0", "compute_seconds": 1.0, "staleness": None}
    left = replace(results(**settings), ranks=(0, 2, 3), lost=(1,), windows=lambda step, worker: (9, 2, 3)[worker])
    assert left.targets == 4 * (2 + 3)  # of 3 workers the last 2 have made 4 steps
    told = report(left, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0))
    assert "1 server, 2 workers, 0 of them backups" in str(told)
    assert told.rows[2].formula == "2,000.000 ms"  # both are waited for, and what rank 1 would take is no matter


def test_a_loss_that_nobody_measured_is_not_called_divergence():
    """Without validation windows, or where a resumed run stops before its first line."""
    entropies = SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)
    for told in (results(validation_windows=0), replace(results(), validation_step=0)):
        assert "validation loss" not in str(report(replace(told, validation_loss=nan), entropies))
    assert "validation loss after step 2: 4.000 nats" in str(report(replace(results(), validation_step=2), entropies))


def test_a_run_that_stops_before_its_first_step_has_a_report():
    idle = RankReport([], [], [], 0.0, 0.0)
    told = replace(results(), done=[0, 0], reports=[idle] * 3, validation_loss=nan, validation_step=0)
    assert told.seconds == 0 and len(told.trace) > 0
    assert "0 steps of each worker" in str(report(told, SimpleNamespace(unigram_entropy=3.0, bigram_entropy=2.0)))
