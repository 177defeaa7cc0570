"""The sweep: crossover points against the roots of the formulas, and what the picture says."""

from dataclasses import replace
from itertools import pairwise

import pytest

from simdist.errors import ArgumentError
from simdist.plots import Crossover, Measurement, crossovers, style, sweep

SIZES = [4**k for k in range(3, 14)]
ALPHA, BETA = 1e-5, 1e-9
LATENCIES = {"ring": lambda p: 2 * (p - 1), "doubling": lambda p: (p - 1).bit_length()}
BYTES = {"ring": lambda p: 2 * (p - 1) / p, "doubling": lambda p: (p - 1).bit_length()}


def seconds(name, p, n):
    return LATENCIES[name](p) * ALPHA + BYTES[name](p) * n * BETA


def crossing(p):
    return (LATENCIES["ring"](p) - LATENCIES["doubling"](p)) * ALPHA / (BYTES["doubling"](p) - BYTES["ring"](p)) / BETA


def figures(p, **factors):
    """Times by the formula, each source off by a factor."""
    return [
        Measurement(
            "all_reduce", name, p, n, **{f"{source}_s": f * seconds(name, p, n) for source, f in factors.items()}
        )
        for name in ("ring", "doubling")
        for n in SIZES
    ]


def test_a_single_size_is_seen(draw):
    rows = [row for row in figures(4, predicted=1.0, formula=1.1) if row.num_bytes == SIZES[0]]
    (ax,) = draw(sweep, rows).axes
    lines = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert len(lines) == 4 and all(line.get_marker() for line in lines)


@pytest.mark.parametrize(
    ("sources", "marked"), [({"predicted": 1.0, "formula": 1.1}, "--"), ({"measured": 2.0, "predicted": 1.0}, "-")]
)
def test_the_lines_that_are_compared_have_the_markers_of_the_key(draw, sources, marked):
    (ax,) = draw(sweep, figures(4, **sources)).axes
    lines = [line for line in ax.lines if len(line.get_xdata()) == len(SIZES)]
    assert {line.get_linestyle() for line in lines if line.get_marker()} == {marked}


@pytest.mark.parametrize("p", [4, 8, 16])
def test_straight_lines_cross_where_the_formulas_do(p):
    lines = {name: {n: seconds(name, p, n) for n in SIZES} for name in LATENCIES}
    first, second = crossovers(lines)
    assert first == Crossover(SIZES[0], "doubling")
    assert second.algorithm == "ring"
    assert second.num_bytes == pytest.approx(crossing(p))


def test_one_algorithm_does_not_cross():
    assert crossovers({"ring": {1: 2.0, 2: 3.0}}) == [Crossover(1, "ring")]


def test_sizes_that_one_lacks_are_passed_over():
    assert crossovers({"a": {1: 1.0, 2: 1.0, 4: 9.0}, "b": {1: 2.0, 4: 2.0}}) == [
        Crossover(1, "a"),
        Crossover(1 + 3 / 8, "b"),
    ]
    assert crossovers({"a": {1: 1.0}, "b": {2: 1.0}}) == []
    assert crossovers({}) == []


def test_nobody_overtakes_an_equal():
    """Times that are equal but for rounding take no turns, and an equal that stays so is named from the start."""
    noise = {1: 1 + 1e-15, 2: 1 - 1e-15, 4: 1 + 2e-15}
    assert crossovers({"a": dict.fromkeys(noise, 1.0), "b": noise}) == [Crossover(1, "a")]
    assert crossovers({"a": {0: 1.0, 8: 3.0}, "b": {0: 1.0, 8: 2.0}}) == [Crossover(0, "b")]
    assert crossovers({"a": {0: 1.0, 8: 1.0, 16: 2.0}, "b": {0: 2.0, 8: 1.0 - 1e-15, 16: 1.0}}) == [
        Crossover(0, "a"),
        Crossover(8, "b"),
    ]


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_the_picture(draw, width):
    rows = [row for p in (4, 8, 16) for row in figures(p, measured=1.5, predicted=1.0, formula=1.0)]
    picture = draw(sweep, rows, width=width)
    assert [ax.get_title() for ax in picture.axes] == ["4 ranks", "8 ranks", "16 ranks"]
    assert picture.key == ["ring", "doubling", "measured", "predicted", "formula"]
    for ax, p in zip(picture.axes, (4, 8, 16), strict=True):
        assert f"ring from {style.size(crossing(p))}" in [t.get_text() for t in ax.texts]
        assert len([line for line in ax.lines if len(line.get_xdata()) == len(SIZES)]) == 6
    assert picture.title.startswith(
        f"Fastest all_reduce on 4 ranks: doubling, ring from {style.size(crossing(4))}; on 16 ranks"
    )
    assert picture.title.endswith("Measured and predicted differ by a factor of 1.5 (median)")


def test_the_lowest_panel_of_each_column_has_its_sizes_written(draw):
    picture = draw(sweep, [row for p in (2, 4, 8, 16, 32) for row in figures(p, formula=1.0)])
    below = [any(t.get_text() and t.get_visible() for t in ax.get_xticklabels()) for ax in picture.axes]
    assert below == [False, False, True, True, True]
    assert [bool(ax.get_xlabel()) for ax in picture.axes] == below


@pytest.mark.parametrize("decades", [1, 3, 6, 9])
def test_times_on_the_axis_do_not_touch(draw, decades):
    rows = [
        Measurement("all_reduce", "ring", 4, n, 1e-6 * 10 ** (decades * k)) for k, n in enumerate((1 << 10, 1 << 20))
    ]
    (ax,) = draw(sweep, rows).axes
    low, high = ax.get_ylim()
    marks = [t.label1 for t in ax.yaxis.get_major_ticks() if low <= t.get_loc() <= high]
    boxes = [mark.get_window_extent() for mark in marks]
    assert len(boxes) >= 2
    assert all(a.y1 < b.y0 for a, b in pairwise(boxes))


@pytest.mark.parametrize("panels", [1, 3])
@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_sizes_on_the_axis_are_level_and_do_not_touch(draw, width, panels):
    rows = [row for p in (4, 8, 16)[:panels] for row in figures(p, formula=1.0)]
    ax = draw(sweep, rows, width=width).axes[-1]
    low, high = ax.get_xlim()
    marks = [t.label1 for t in ax.xaxis.get_major_ticks() if low <= t.get_loc() <= high]
    boxes = [mark.get_window_extent() for mark in marks]
    assert len(boxes) >= 2 and not any(mark.get_rotation() for mark in marks)
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_too_long_is_as_far_off_as_too_short(draw):
    found = [
        Measurement("all_reduce", "ring", 2, n, 1.0, predicted) for n, predicted in ((1, 4.0), (2, 0.25), (4, 2.0))
    ]
    assert draw(sweep, found).title.endswith("differ by a factor of 4 (median)")


def test_without_measurements_the_marks_are_the_predictions(draw):
    picture = draw(sweep, figures(8, predicted=1.0))
    assert picture.axes[0].get_title() == "8 ranks, fastest as predicted"
    assert picture.key == ["ring", "doubling", "predicted"]
    picture = draw(sweep, figures(8, formula=1.0))
    assert picture.axes[0].get_title() == "8 ranks, fastest by formula"


def test_chosen_algorithms(draw):
    picture = draw(sweep, figures(8, formula=1.0), algorithms=["ring"])
    assert picture.title == "Fastest all_reduce on 8 ranks: ring"


def test_one_rank_has_nothing_to_do_and_is_no_mistake(draw):
    rows = [*figures(8, predicted=1.0), *(replace(row, ranks=1, predicted_s=0.0) for row in figures(8, predicted=1.0))]
    picture = draw(sweep, rows)
    assert [ax.get_title() for ax in picture.axes] == ["1 rank", "8 ranks, fastest as predicted"]
    assert picture.title.startswith("Fastest all_reduce on 1 rank: nothing to compare; on 8 ranks: doubling, ring from")


def test_an_empty_array_is_left_out_and_it_says_so(draw):
    rows = [*figures(8, formula=1.0), Measurement("all_reduce", "ring", 8, 0, formula_s=1e-5)]
    assert draw(sweep, rows).note == "1 figure for an empty array left out: a log scale has no 0."


@pytest.mark.parametrize(
    ("rows", "fault"),
    [([], r"these are 0"), ([*figures(4, formula=1.0), Measurement("broadcast", "chain", 4, 8, 1.0)], "these are 2")],
)
def test_what_cannot_be_drawn(rows, fault):
    with pytest.raises(ArgumentError, match=fault):
        sweep(rows)
