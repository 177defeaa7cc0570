"""The timeline, against the spans that it is drawn from."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgb

import simdist as sd
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError
from simdist.plots import style, timeline
from simdist.plots.boxes import boxes as placed
from simdist.trace import Span, Trace


def span(name, start, end, rank=0, stream="main", peer=-1):
    return Span(rank, stream, name, float(start), float(end), 8, peer)


def boxes(ax, kind):
    """(left, right, top, bottom) of the bars in the colour of a kind."""
    found = []
    for collection in ax.collections:
        faces = collection.get_facecolor() if isinstance(collection, PolyCollection) else []
        if len(faces) and to_hex(faces[0]).upper() == style.colour(kind).upper():
            for path in collection.get_paths():
                (left, top), (right, bottom) = path.vertices[:4].min(axis=0), path.vertices[:4].max(axis=0)
                found.append((left, right, top, bottom))
    return sorted(found)


def train(comm):
    x = np.ones(100_000, np.float32)
    for _ in range(2):
        with comm.span("step"):
            comm.compute(seconds=30e-6 * (1 + comm.rank % 2), name="forward")
            comm.compute(seconds=60e-6, name="backward")
            all_reduce(x, comm, algorithm="ring")


@pytest.fixture(scope="module")
def run():
    return sd.run(train, ranks=4).trace


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_every_span_has_its_bar_true_to_scale(draw, run, width):
    picture = draw(timeline, run, width=width)
    (ax,) = picture.axes
    for kind, name in (("forward", "forward"), ("backward", "backward"), ("send", "send"), ("recv", "recv")):
        spans = [s for s in run if s.name == name]
        bars = boxes(ax, kind)
        length, _ = style.unit_of_time(max(s.end_s for s in run))
        assert [left for left, *_ in bars] == pytest.approx(sorted(s.start_s / length for s in spans))
        widths = sorted(right - left for left, right, *_ in bars)
        assert widths == pytest.approx(sorted(s.seconds / length for s in spans), abs=1e-9)
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"rank {r}" for r in range(4)]
    assert {"forward", "backward", "all_reduce", "send", "receive"} == set(picture.key)
    assert picture.note == ""


def test_many_messages_at_once_are_still_seen(draw):
    """Each is thinner than the white edge that parts those with room for one."""
    spans = [span("compute", 0, 6, rank) for rank in range(40)]
    spans += [span("recv", 0, 5, rank, peer=0) for rank in range(40) for _ in range(14)]
    picture = draw(timeline, Trace(spans, 40))
    seen = np.asarray(picture.figure.canvas.buffer_rgba())[..., :3] / 255
    of_messages = np.abs(seen - to_rgb(style.colour("recv"))).max(axis=-1) < 0.1
    assert of_messages.mean() > 0.05


def test_messages_at_once_share_the_height_of_one():
    first, beside, after = placed([span("recv", 0, 5), span("recv", 2, 6), span("recv", 5, 8)])
    (alone,) = placed([span("recv", 0, 5)])
    assert alone.top == first.top < first.bottom < beside.top < beside.bottom <= alone.bottom
    assert after == first  # which has ended by then


def test_the_title_says_how_the_time_was_spent(draw):
    spans = [
        span("compute", 0, 6),
        span("recv", 6, 10, peer=1),
        span("compute", 0, 8, rank=1),
        span("send", 8, 9, 1, peer=0),
    ]
    assert draw(timeline, Trace(spans, 2)).title == (
        "2 ranks, 10 s: 70% of the time computing, 25% communicating (10% waiting for a rank that was not there yet)"
    )


def test_the_title_of_a_part_is_about_that_part(draw):
    spans = [span("compute", 0, 5), span("recv", 5, 10, peer=0)]
    picture = draw(timeline, Trace(spans, 1), start_s=4, end_s=8)
    assert picture.title == "1 rank, 4 s: 25% of the time computing, 75% communicating"
    (ax,) = picture.axes
    assert boxes(ax, "compute")[0][:2] == (0, 1)
    assert ax.get_xlabel() == "time since 4 s (s)"


def test_waiting_does_not_depend_on_who_is_shown(draw, run):
    waits = [draw(timeline, run, ranks=[rank]).title for rank in range(4)]
    shares = [s.waiting_s / s.elapsed_s for s in run.statistics()]
    for title, share in zip(waits, shares, strict=True):
        assert (f"{share:.0%} waiting" in title) == (share >= 0.005)


def test_streams_have_rows_of_their_own(draw):
    spans = [
        span("compute", 0, 5),
        span("all_reduce ring", 2, 8, stream="communication"),
        span("compute", 0, 1, rank=1),
    ]
    picture = draw(timeline, Trace(spans, 2))
    (ax,) = picture.axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 0", "communication", "rank 1"]
    assert "both at once" in picture.title


def test_a_silent_rank_keeps_its_row(draw):
    (ax,) = draw(timeline, Trace([span("compute", 0, 5)], 3)).axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]


def test_sends_lie_above_receives_and_those_at_once_share_the_height(draw):
    spans = [
        span("send", 0, 4, peer=0),
        span("recv", 0, 9, peer=0),
        span("recv", 1, 8, peer=0),
        span("recv", 2, 7, peer=0),
    ]
    (ax,) = draw(timeline, Trace(spans, 1)).axes
    rows = sorted((top, bottom) for _, _, top, bottom in boxes(ax, "send") + boxes(ax, "recv"))
    assert len(rows) == 4
    assert all(a[1] <= b[0] for a, b in pairwise(rows))


def test_thirty_receives_at_once_do_not_hide_each_other(draw):
    spans = [span("recv", 0.1 * k, 10 + k, peer=0) for k in range(30)]
    (ax,) = draw(timeline, Trace(spans, 1)).axes
    rows = sorted((top, bottom) for _, _, top, bottom in boxes(ax, "recv"))
    assert all(a[1] <= b[0] for a, b in pairwise(rows))


def test_names_where_they_fit(draw):
    picture = draw(timeline, Trace([span("attention", 0, 95), span("norm", 95, 96), span("F0", 96, 100)], 1))
    assert "attention" in picture.words
    assert "norm" not in picture.words


@pytest.mark.parametrize(
    ("held", "places"),
    [
        ([], [50]),
        ([span("wait", 20, 30)], [65]),
        ([span("recv", 20, 30, peer=0)], [65]),
        ([span("recv", k, k + 1, peer=0) for k in range(0, 100, 2)], [50]),  # no place without one
        ([span("wait", k, k + 1) for k in range(0, 100, 2)], []),
    ],
)
def test_a_name_stands_where_no_other_work_lies_on_it(draw, held, places):
    (ax,) = draw(timeline, Trace([span("forward", 0, 100), *held], 1)).axes
    assert [t.get_position()[0] for t in ax.texts if t.get_text() == "forward"] == places


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_a_name_over_messages_is_set_off_from_them_and_the_title_stays_on_the_paper(draw, width):
    messages = [span("recv", 5 * k, 5 * k + 3, peer=0) for k in range(60)]
    picture = draw(timeline, Trace([span("F0", 0, 100), span("B0", 100, 300), *messages], 1), width=width)
    names = [t for t in picture.axes[0].texts if t.get_text() in ("F0", "B0")]
    assert len(names) == 2
    assert all(name.get_path_effects() for name in names)
    spent = "100% of the time computing, 0% only communicating; both at once 60% of the time"
    assert spent in picture.title.replace("\n", " ")


def test_names_from_a_file_are_not_taken_as_formulas(draw):
    spans = [span(r"$\nonsense{$", 0, 1), span("compute", 0, 1, stream=r"$\frac$")]
    words = draw(timeline, Trace(spans, 1)).words
    assert r"$\nonsense{$" in words
    assert r"$\frac$" in words


def test_what_only_begins_like_a_message_is_drawn_as_one(draw):
    spans = [span("send gradients", 0, 4), span("recv", 5, 9, peer=0)]
    (ax,) = draw(timeline, Trace(spans, 1)).axes
    assert len(boxes(ax, "send")) == len(boxes(ax, "recv")) == 1


def test_what_is_moved_lies_below_the_strip_in_a_colour_of_its_own(draw):
    spans = [span("all_reduce direct", 0, 10), span("move", 4, 8)]
    picture = draw(timeline, Trace(spans, 1))
    (ax,) = picture.axes
    ((left, right, top, _),) = boxes(ax, "move")
    assert (left, right) == (4, 8)
    assert top > max(bottom for *_, bottom in boxes(ax, "all_reduce"))
    assert picture.key == ["all_reduce", "move in shared memory"]
    assert picture.title == "1 rank, 10 s: 0% of the time computing, 100% communicating"


def test_a_frame_that_a_wait_fills_is_no_computing(draw):
    def program(comm):
        side = comm.stream("communication")
        work = side.start(side.comm.compute, seconds=2.0)
        with comm.span("synchronize gradients"):
            work.wait()
        with comm.span("initial weights"):  # takes no time
            pass

    trace = sd.run(program, 1).trace
    assert draw(timeline, trace).key == ["computing", "waiting"]
    roles = {s.name: box.role for s, box in zip(trace, placed(trace.spans), strict=True)}
    assert (roles["synchronize gradients"], roles["initial weights"]) == ("frame", "frame")


def test_no_two_things_in_the_key_look_alike(draw):
    names = ["step", "forward", "input", "compute", "backward", "update", "move", "send", "recv", "wait"]
    spans = [span("step", 0, 20), *(span(name, k, k + 1, peer=0) for k, name in enumerate(names))]
    picture = draw(timeline, Trace(spans, 1))
    (key,) = picture.figure.legends
    assert len({patch.get_facecolor() for patch in key.get_patches()}) == len(picture.key)
    assert picture.key[:4] == ["forward", "backward", "update", "other computing"]


def test_arrows(draw, run):
    (ax,) = draw(timeline, run, arrows=True).axes
    (lines,) = [c for c in ax.collections if isinstance(c, LineCollection)]
    assert len(lines.get_segments()) == len(run.messages())
    length, _ = style.unit_of_time(max(s.end_s for s in run))
    expected = sorted((send.start_s / length, recv.end_s / length) for send, recv in run.messages())
    assert np.array(sorted((a[0], b[0]) for a, b in lines.get_segments())) == pytest.approx(np.array(expected))


def test_too_many_ranks_are_left_out_and_it_says_so(draw):
    spans = [span("compute", 0, 1 + rank, rank) for rank in range(100)]
    picture = draw(timeline, Trace(spans, 100))
    (ax,) = picture.axes
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert len(names) == 32
    assert (names[0], names[-1]) == ("rank 0", "rank 99")
    assert picture.note == "32 of 100 ranks are shown, evenly spaced."
    assert picture.title.startswith("32 of 100 ranks")


def test_chosen_ranks_in_the_chosen_order(draw):
    spans = [span("compute", 0, 1, rank) for rank in range(100)]
    (ax,) = draw(timeline, Trace(spans, 100), ranks=[70, 3]).axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 70", "rank 3"]


def test_only_waits_with_room_for_them_are_hatched(draw):
    spans = [
        span("wait", 0, 50),
        *(span("wait", 60 + k / 9, 60 + (k + 1) / 9) for k in range(90)),
        span("compute", 99, 100),
    ]
    (ax,) = draw(timeline, Trace(spans, 1)).axes
    grey = to_hex(style.colour("wait"))
    waits = [c for c in ax.collections if isinstance(c, PolyCollection) and to_hex(c.get_facecolor()[0]) == grey]
    looks = {c.get_hatch(): (len(c.get_paths()), to_hex(c.get_edgecolor()[0])) for c in waits}
    assert looks == {"////": (1, "#888888"), None: (90, grey)}


@pytest.mark.parametrize("outer", ["forward", "backward", "weight gradient", "update"])
@pytest.mark.parametrize("inner", ["wait", "move", "compute", "disk"])
def test_what_is_within_is_drawn_in_front(draw, outer, inner):
    (ax,) = draw(timeline, Trace([span(inner, 40, 60), span(outer, 0, 100)], 1)).axes
    bars = [c for c in ax.collections if isinstance(c, PolyCollection)]
    place = {to_hex(c.get_facecolor()[0]): (c.get_zorder(), k) for k, c in enumerate(bars)}
    assert place[to_hex(style.colour(inner))] > place[to_hex(style.colour(outer))]


def test_too_many_arrows_are_left_out_and_it_says_so(draw):
    spans = [
        s for k in range(3000) for s in (span("send", k, k + 0.5, peer=1), span("recv", k, k + 0.9, rank=1, peer=0))
    ]
    picture = draw(timeline, Trace(spans, 2), arrows=True)
    assert "2,000 of 3,000 messages have an arrow." in picture.note
    lines = [one for ax in picture.axes for one in ax.collections if isinstance(one, LineCollection)]
    (segments,) = [segments for one in lines if len(segments := one.get_segments()) == 2000]
    begins = [segment[0][0] for segment in segments]
    assert (begins[0], begins[-1] > 0.999 * max(s.start_s for s in spans)) == (0, True)  # to the end


def test_too_many_spans_become_shares_and_it_says_so(draw):
    # A quarter of each period computing, half of it communicating; far narrower than a column.
    spans = [s for k in range(4000) for s in (span("compute", k, k + 0.25), span("send", k + 0.25, k + 0.75, peer=0))]
    picture = draw(timeline, Trace(spans, 1), most_spans=1000)
    (ax,) = picture.axes
    assert "8,000 spans are too many to draw individually" in picture.note
    assert picture.key == ["computing", "communicating", "waiting for a rank"]
    shares = []
    for fill in ax.collections:
        vertices = fill.get_paths()[0].vertices
        shares.append((vertices[:, 1].max() - vertices[:, 1].min()) / 0.9)
    assert shares[0] == pytest.approx(0.25, abs=0.06)
    assert shares[1] == pytest.approx(0.5, abs=0.12)


def test_a_run_that_took_no_time(draw):
    assert draw(timeline, Trace([span("compute", 0, 0)], 1)).title.startswith("1 rank")


def test_without_limits_of_time_everything_is_shown(run):
    assert timeline(run, start_s=-np.inf, end_s=np.inf).get_suptitle() == timeline(run).get_suptitle()


def test_trace_plot_is_the_timeline(run):
    assert run.plot(ranks=[1]).get_suptitle() == timeline(run, ranks=[1]).get_suptitle()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"ranks": [4]}, "rank 4 is not one of ranks 0 to 3"),
        ({"ranks": []}, "ranks is empty"),
        ({"start_s": 9.0}, "nothing was recorded from 9 s on, but from 0 s to "),
        ({"end_s": -1.0}, "nothing was recorded from 0 s to -1 s, but from 0 s to "),
        ({"end_s": float("nan")}, "end_s is nan; needs at least -inf"),
        ({"start_s": 2.0, "end_s": 1.0}, "nothing was recorded from 2 s to 1 s, but from 0 s to "),
        ({"width": 1.0}, "inches wide"),
    ],
)
def test_what_cannot_be_drawn(run, options, fault):
    with pytest.raises(ArgumentError, match=fault):
        timeline(run, **options)


def test_an_empty_trace():
    with pytest.raises(ArgumentError, match="no spans"):
        timeline(Trace([], 2))
