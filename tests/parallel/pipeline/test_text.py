"""Text: everything that can be said comes back the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.errors import ScheduleError
from simdist.parallel.pipeline import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Overlapped,
    Schedule,
    Weights,
    parse,
    schedule,
    schedules,
    to_text,
)
from simdist.parallel.pipeline.placement import bidirectional, linear, looped, v_shape
from simdist.parallel.pipeline.text import grid, is_action, load


@st.composite
def anything(draw):
    """A schedule of whatever actions, valid or not."""
    ranks = draw(st.integers(1, 4))
    placement = draw(st.sampled_from([linear(ranks), looped(ranks, 3), v_shape(ranks), bidirectional(2 * ranks)]))
    chunk = st.integers(0, len(placement[0]) - 1)
    parts = [st.builds(kind, st.integers(0, 20), chunk) for kind in (Forward, Backward, BackwardInput, BackwardWeight)]
    pairs = st.builds(Overlapped, parts[0], st.one_of(parts[1:3]))
    rows = [draw(st.lists(st.one_of(*parts, pairs), max_size=8)) for _ in placement]
    weights = draw(st.sampled_from([Weights(), Weights("stashing", 1), Weights("vertical sync", 3), Weights("2bw", 4)]))
    return Schedule(draw(st.sampled_from(["mine", "a b: c", "1f1b"])), rows, placement, 21, weights)


@settings(max_examples=200)
@given(anything())
def test_anything_comes_back(one):
    assert parse(to_text(one)) == one


@settings(max_examples=60)
@given(st.sampled_from(schedules()), st.integers(1, 4), st.integers(1, 12))
def test_every_schedule_comes_back(name, half, micro_batches):
    one = schedule(name, stages=2 * half, micro_batches=micro_batches)
    assert parse(to_text(one)) == one


def test_rows_alone():
    one = parse("F0 F1 B0 B1\n\n F0 B0   F1 B1\n", "mine")
    assert one == Schedule("mine", [[Forward(0), Forward(1), Backward(0), Backward(1)],
                                    [Forward(0), Backward(0), Forward(1), Backward(1)]])  # fmt: skip


def test_stages_are_read_from_the_words():
    one = parse("0F0 3F0\n1F0 2F0\n")
    assert one.placement == v_shape(2)
    assert one.rows[1] == (Forward(0), Forward(0, 1))


def test_how_it_looks():
    assert to_text(schedule("zb-h1", stages=2, micro_batches=3)) == (
        "# zb-h1: 2 ranks, 3 micro-batches, flush\nF0 F1 I0 W0 F2 I1 W1 I2 W2\nF0 I0 F1 I1 W0 F2 I2 W1 W2\n"
    )
    assert to_text(schedule("pipedream", stages=1, micro_batches=1)) == (
        "# pipedream: 1 rank, 1 micro-batch, stashing every 1\nF0 B0\n"
    )
    assert to_text(schedule("v-min", stages=2, micro_batches=1)).splitlines()[1] == "# stages 0 3 | 1 2"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "needs a row"),
        ("# only a remark", "needs a row"),
        ("F0 X0", "'X0' in the row of rank 0 is no action"),
        ("F0\nF0 F", "'F' in the row of rank 1"),
        ("F0&F1", "'F0&F1'"),
        ("F0&W0", "'F0&W0'"),
        ("# stages 0 3 | 1 2\n0F0\n0F0", "0F0 in the row of rank 1, which has stages"),
        ("# stages 0 | 1\nF0", "1 rows, but the line # stages is for 2 ranks"),
        ("# cut: 3 ranks, 1 micro-batch, flush\nF0 B0\nF0 B0", "2 rows, but the first line is for 3 ranks"),
    ],
)
def test_what_cannot_be_read(text, fault):
    with pytest.raises(ScheduleError, match=fault):
        parse(text)


def test_words_that_are_actions():
    assert all(map(is_action, ["F0", "12B3", "2F8&5B0", "I1", "0W11"]))
    assert not any(map(is_action, ["F", "send", "F0 ", "F0&", "2", "", "FB1", "forward"]))


def test_the_grid_is_cut_to_what_is_near():
    one = schedule("gpipe", stages=64, micro_batches=100)
    lines = grid(one, [(40, 60), (41, 61)]).splitlines()
    assert len(lines) == 16
    assert max(map(len, lines)) < 250
    (first, second) = (line for line in lines if ">" in line)
    assert first.startswith("  rank 40  … F48 ") and ">F60<" in first
    assert second.startswith("  rank 41") and ">F61<" in second
    assert grid(parse("F0"), [(0, 1)]) == "  rank 0  F0 ><"


@pytest.mark.parametrize("words", ["", "F0 X0"])
def test_a_fault_in_a_file_names_the_file(tmp_path, words):
    file = tmp_path / "mine.txt"
    file.write_text(words)
    with pytest.raises(ScheduleError, match=r"mine\.txt: "):
        load(file)


@pytest.mark.parametrize(
    "line",
    [
        "# mine: 2 ranks, 4 microbatches, stashing",  # or weights would have one version
        "# mine: 2 ranks, 4 micro-batches",
        "# stages 1 | x",
        "# stage 1 | 0",
        "#stages: 1 | 0",
    ],
)
def test_a_line_about_the_schedule_that_cannot_be_read_is_refused(line):
    with pytest.raises(ScheduleError, match=r"is no line about a schedule: needs '# mine: 2 ranks, .* '# stages 0 3"):
        parse(f"{line}\nF0 B0\nF0 B0")


@pytest.mark.parametrize("line", ["# by hand", "# the stages are of equal length", "# first: rank 0 waits"])
def test_other_lines_are_comments(line):
    assert parse(f"{line}\nF0 B0\nF0 B0") == parse("F0 B0\nF0 B0")
