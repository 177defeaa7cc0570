"""The picture of a pipeline, against the record that it is drawn from."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb

from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Memory, Times, schedule, simulate, validate
from simdist.plots import pipeline_schedule, style
from simdist.trace import Span, Trace

KINDS = {"F": "forward", "I": "backward", "W": "weight gradient"}


def simulated(name, p=4, m=8, **times):
    return simulate(schedule(name, stages=p, micro_batches=m), Times(**times))


def boxes(ax, letter, chunk=0):
    """(left, right, top, bottom) of the cells in the colour of a kind of action."""
    wanted = style.tint(style.colour(KINDS[letter]), max(0.4, 1 - 0.45 * chunk))
    found = []
    for cells in ax.collections:
        if isinstance(cells, PolyCollection) and np.allclose(to_rgb(cells.get_facecolor()[0][:3]), wanted, atol=1e-3):
            for path in cells.get_paths():
                (left, top), (right, bottom) = path.vertices[:4].min(axis=0), path.vertices[:4].max(axis=0)
                found.append((left, right, top, bottom))
    return found


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_every_action_has_its_cell_true_to_scale(draw, width):
    run = simulated("zb-h1", forward=1.5, backward_weight=0.5)
    picture = draw(pipeline_schedule, {"zb-h1": run.trace()}, unit="", width=width)
    (ax,) = picture.axes
    for letter in "FIW":
        wanted = [
            (start, end, rank)
            for rank, row in enumerate(run.schedule.rows)
            for action, start, end in zip(row, run.course.start[rank], run.course.end[rank], strict=True)
            if action.letter == letter
        ]
        drawn = [(left, right, round((top + bottom) / 2)) for left, right, top, bottom in boxes(ax, letter)]
        assert np.array(sorted(drawn)) == pytest.approx(np.array(sorted(wanted)))
    assert picture.key == ["forward", "backward", "weight gradients"]
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"rank {r}" for r in range(4)]
    assert ax.get_xlabel() == "time (in the unit of the action times)"


def test_actions_that_take_no_time(draw):
    run = simulated("gpipe", forward=0.0, backward_input=0.0, backward_weight=0.0)
    picture = draw(pipeline_schedule, {"one": run.trace(), "other": run.trace()})
    assert run.bubble_rate == run.own_bubble_rate == 0
    assert picture.axes[0].get_title(loc="left") == "one: 0 s; idle 0.0% of it"
    assert picture.title == "one on 4 ranks, 8 micro-batches: as long as other"


def test_a_rank_without_actions_is_idle(draw):
    spans = [Span(0, "main", name, t, t + 1.0) for t, name in ((0.0, "F0"), (1.0, "B0"))]
    assert draw(pipeline_schedule, {"half": Trace(spans, 2)}).title.endswith("idle 50.0% of the time")


def test_what_a_backward_needs_is_kept_until_it_is_over(draw):
    spans = [Span(0, "main", "F0", 0.0, 1.0), Span(0, "main", "B0", 2.0, 5.0)]
    _, ax = draw(pipeline_schedule, {"one": Trace(spans, 1)}, memory=Memory()).axes
    (area,) = (path.vertices for collection in ax.collections for path in collection.get_paths())
    assert {tuple(point) for point in area} >= {(0.0, -0.45), (5.0, -0.45)}  # as high as the row from F to B's end


def test_numbers_of_micro_batches(draw):
    picture = draw(pipeline_schedule, {"1f1b": simulated("1f1b").trace()})
    for i in range(8):  # a forward and a backward on each of four ranks; the axis has figures of its own
        assert picture.words.count(str(i)) in (8, 9)
    assert picture.note == ""


def test_a_whole_backward_has_a_strip_for_its_weights(draw):
    (ax,) = draw(pipeline_schedule, {"1f1b": simulated("1f1b").trace()}).axes
    whole, strips = boxes(ax, "I"), boxes(ax, "W")
    assert len(whole) == len(strips) == 32
    assert all(bottom - top < 0.3 for _, _, top, bottom in strips)


def test_later_stages_of_a_rank_are_paler_and_it_says_so(draw):
    picture = draw(pipeline_schedule, {"zb-v": simulated("zb-v").trace()})
    (ax,) = picture.axes
    assert [len(boxes(ax, letter, chunk)) for letter in "FIW" for chunk in (0, 1)] == [32] * 6
    assert picture.note == "Paler cells are of the rank's later stages."


def test_a_pair_shares_the_height(draw):
    run = simulated("dualpipe", 4, 8)
    (ax,) = draw(pipeline_schedule, {"dualpipe": run.trace()}).axes
    pairs = sum(len(action.parts) == 2 for row in run.schedule.rows for action in row)
    low = [box for chunk in (0, 1) for box in boxes(ax, "F", chunk) if box[3] - box[2] < 0.5]
    assert len(low) == pairs > 0


def test_the_title_says_what_is_idle(draw):
    picture = draw(pipeline_schedule, {"zb-h2": simulated("zb-h2").trace()})
    assert picture.title == "zb-h2 on 4 ranks, 8 micro-batches: idle 11.1% of the time"
    assert "zb-h2: 27 s; idle 11.1% of it, or 0.0% from the longest rank's first action to its last" in picture.words


def test_a_long_name_is_broken_where_the_figure_ends(draw):
    draw(pipeline_schedule, {"1f1b, as measured on the cluster": simulated("1f1b").trace()}, width=style.COLUMN)


def test_two_on_the_same_axis(draw):
    runs = {name: simulated(name).trace() for name in ("zb-h1", "1f1b")}
    picture = draw(pipeline_schedule, runs)
    first, second = picture.axes
    assert picture.title == "zb-h1 on 4 ranks, 8 micro-batches: 18.2% shorter than 1f1b"
    assert first.get_xlim() == second.get_xlim() == (0, 33)
    assert max(right for _, right, _, _ in boxes(first, "W")) == 27


def test_memory_below(draw):
    run = simulated("1f1b")
    picture = draw(pipeline_schedule, {"1f1b": run.trace()}, memory=Memory())
    grid, kept = picture.axes
    assert grid.get_xlim() == kept.get_xlim()
    heights = [path.vertices[:, 1] for c in kept.collections for path in c.get_paths()]
    most = [(y.max() - y.min()) / 0.9 * 4 for y in heights]
    assert most == pytest.approx(validate(run.schedule).in_flight)
    assert [t.get_text() for t in kept.texts] == ["4", "3", "2", "1"]


def test_memory_where_some_actions_take_no_time(draw):
    run = simulated("zb-h1", backward_weight=0.0)
    _, kept = draw(pipeline_schedule, {"zb-h1": run.trace()}, memory=Memory()).axes
    assert [float(t.get_text()) for t in kept.texts] == list(validate(run.schedule).in_flight)


def test_arrows(draw):
    run = simulated("gpipe", 3, 4, communication=0.5)
    (ax,) = draw(pipeline_schedule, {"gpipe": run.trace()}, arrows=True).axes
    (lines,) = [c for c in ax.collections if isinstance(c, LineCollection)]
    wanted = sorted((send.start_s, max(send.end_s, recv.end_s)) for send, recv in run.trace().messages())
    assert np.array(sorted((a[0], b[0]) for a, b in lines.get_segments())) == pytest.approx(np.array(wanted))


def test_a_measured_run_begins_with_its_first_action(draw):
    spans = [
        Span(0, "main", "step", 4.0, 7e-3 + 5),
        Span(0, "main", "F0", 5.0, 5.002),
        Span(0, "main", "B0", 5.002, 5.006),
    ]
    picture = draw(pipeline_schedule, {"run": Trace(spans, 1)})
    (ax,) = picture.axes
    assert boxes(ax, "F")[0][:2] == pytest.approx((0, 2))
    assert ax.get_xlabel() == "time (ms)"
    assert "run: 6 ms; idle 0.0% of it" in picture.words


def test_too_small_for_numbers_and_it_says_so(draw):
    picture = draw(pipeline_schedule, {"1f1b": simulated("1f1b", 8, 100).trace()}, width=style.COLUMN)
    assert "too small for the numbers" in picture.note


def test_many_ranks(draw):
    picture = draw(pipeline_schedule, {"1f1b": simulated("1f1b", 64, 64).trace()}, arrows=True, memory=Memory())
    assert "2,000 of 8,064 messages have an arrow." in picture.note


def test_what_cannot_be_drawn():
    with pytest.raises(ArgumentError, match="no runs"):
        pipeline_schedule({})
    with pytest.raises(ArgumentError, match="mine: no actions of a pipeline"):
        pipeline_schedule({"mine": Trace([Span(0, "main", "forward", 0.0, 1.0)], 1)})
