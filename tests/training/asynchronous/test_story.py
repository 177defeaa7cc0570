"""What rank 0 makes of what ranks tell, worked out by hand."""

import pytest

from simdist.trace import Span, Trace
from simdist.training import Config
from simdist.training.asynchronous.ranks import Doing
from simdist.training.asynchronous.story import Costs, Story, window


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


def story(**settings):
    """A server, and two workers, of which the second takes twice as long; the record of each is a span a step."""
    fast = Doing([0, 1, 2, 3], [11.0, 12.0, 13.0, 14.0], [4.0, 3.0, 2.0, 1.0], 0.5)
    slow = Doing([0, 1, 2, 3], [12.0, 14.0, 16.0, 18.0], [4.0, 5.0, 4.0, 3.0], 0.0)
    server = Doing([], [], [], 0.25, (0, 1, 1, 2))
    costs = Costs([10, 20, 30, 40], [0.1] * 4, 8, 1000, 0.0)
    spans = [Span(r, "main", "compute", t - 1, t) for r, d in enumerate((fast, slow), 1) for t in d.times_s] + [
        Span(0, "main", "update", 10.0, 18.0)
    ]
    parts = [(server, Costs([], [], 0, 0, 0.0)), (fast, costs), (slow, costs)]
    return Story(Config(**CONFIG | settings), 2, [1, 2, 4], [5.0, 4.5, 4.0], parts, Trace(spans, 3), 10.0)


def test_lines_are_of_all_workers():
    found = story().lines()
    assert [line.step for line in found] == [1, 2, 4]
    assert [line.train_loss for line in found] == [4.0, 4.0, 2.5]
    assert [line.validation_loss for line in found] == [5.0, 4.5, 4.0]
    assert [line.seconds for line in found] == [2.0, 4.0, 8.0]
    assert [line.tokens_per_s for line in found] == [3.0, 3.0, 3.0]  # 6 windows of one target in 2 s
    assert [line.sent_bytes for line in found] == [10, 20, 35]
    assert [line.communication_share for line in found] == pytest.approx([0.05, 0.05, 0.05])
    assert [line.learning_rate for line in found] == pytest.approx([Config(**CONFIG).rates()(i) for i in (0, 1, 3)])


def test_sums_of_the_whole_run():
    found = story()
    assert found.seconds == 8 and found.targets == 24
    assert found.step_s == 1.5
    assert found.staleness == [0, 1, 1, 2]
    assert found.waited_shares() == [0.25, 0.5, 0.0]
    assert not found.has_consensus
    assert [(m.step, m.time_s, m.loss) for m in found.moments][:2] == [(0, 1.0, 4.0), (1, 2.0, 3.0)]


def test_the_record_is_of_the_time_when_all_were_at_work():
    found = story()
    assert found.shown == (12.0, 14.0)
    assert sorted((s.rank, s.start_s) for s in found.trace) == [(0, 12.0), (1, 12.0), (1, 13.0), (2, 13.0)]
    assert len(story(trace_steps=0).trace) == 0
    assert story(trace_steps=9).shown == (10.0, 14.0)


def test_a_record_that_ended_early_is_shown_up_to_its_end():
    whole = story()
    cut = Trace((s for s in whole.record if s.rank != 2 or s.end_s < 13), 3)
    found = Story(whole.config, 2, whole.marks, whole.validation_losses, whole.parts, cut, 10.0)
    assert found.shown == (10.0, 12.0)
