"""Colours that can be told apart, and words for figures."""

import subprocess
import sys
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Patch

from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.trace.kind import COLLECTIVES, COMMUNICATING, COMPUTING, MESSAGES

# How eyes without cones for red, or for green, see linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "full": np.eye(3),
    "without red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "without green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """Linear RGB as CIELAB, where distances are about what an eye makes of them."""
    xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.0888])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def lightness(colour):
    return lab(linear(colour))[0]


def test_every_kind_has_a_colour_of_its_own():
    kinds = [*COMPUTING, *COMMUNICATING]
    assert len({style.colour(kind) for kind in kinds}) == len(kinds)
    assert style.colour("something else") == style.colour("other")


GROUPS = [
    ("forward", "backward", "weight gradient"),
    ("forward", "compute", "update"),
    ("send", "recv"),
    ("forward", "wait"),
    ("compute", "wait"),
]


@pytest.mark.parametrize("group", GROUPS)
def test_what_stands_side_by_side_differs_on_a_grey_printer(group):
    for a, b in combinations(group, 2):
        assert abs(lightness(style.colour(a)) - lightness(style.colour(b))) > 15


@pytest.mark.parametrize("eye", EYES)
def test_kinds_differ_for_colour_blind_readers_too(eye):
    computing = [kind for kind in COMPUTING if kind != "update"]  # which is told from waiting by its hatches
    kinds = [*computing, *MESSAGES, "move", "wait", "all_reduce", "all_to_all"]
    for a, b in combinations(kinds, 2):
        seen = [lab(EYES[eye] @ linear(style.colour(kind))) for kind in (a, b)]
        assert np.linalg.norm(seen[0] - seen[1]) > 15, (a, b)


@pytest.mark.parametrize("eye", EYES)
def test_ranks_differ_for_colour_blind_readers_too(eye):
    for a, b in combinations(range(style.NUM_RANK_COLOURS), 2):
        seen = [lab(EYES[eye] @ linear(style.rank_colour(rank))) for rank in (a, b)]
        assert np.linalg.norm(seen[0] - seen[1]) > 15, (a, b)


@pytest.mark.parametrize("kind", [*COMPUTING, *COLLECTIVES, *MESSAGES, "move"])
def test_letters_on_a_colour_can_be_read(kind):
    ink = {"white": "#FFFFFF"}.get(style.ink_on(style.colour(kind)), style.INK)
    assert abs(lightness(ink) - lightness(style.colour(kind))) > 40


def test_a_tint_is_mixed_with_white():
    assert style.tint("#FF0033", 0.25) == pytest.approx((1, 0.75, 0.8))
    assert style.tint("#FF0033", 1.0) == pytest.approx((1, 0, 0.2))


def test_a_rank_has_a_light_colour():
    assert all(lightness(style.rank_colour(rank)) > 65 for rank in range(20))


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1020 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1023 * 1024, "1020 KiB"),
        (5 * 2**30, "5 GiB"),
        (2**42, "4 TiB"),
    ],
)
def test_sizes(num_bytes, text):
    assert style.size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ns"),
        (2e-9, "2 ns"),
        (1.234e-6, "1.23 µs"),
        (1e-3, "1 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (90, "90 s"),
        (1234, "1230 s"),
        (-5, "-5 s"),
    ],
)
def test_times(seconds, text):
    assert style.seconds(seconds) == text


@pytest.mark.parametrize(("width", "wrong"), [(2, 1.9), (100, 101), (3, float("nan")), (3, "wide")])
def test_too_narrow_or_too_wide(width, wrong):
    assert style.figure(width, 1).get_figwidth() == width
    with pytest.raises(ArgumentError, match=f"{wrong!r} inches wide"):
        style.figure(wrong, 1)


def test_drawing_needs_no_pyplot_and_no_display():
    code = "import sys, simdist.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_notebook_shows_a_picture_as_large_as_it_is_on_paper(monkeypatch):
    shown = {}

    def display(data, raw, metadata):
        assert raw
        shown.update(data=data, size=metadata["image/png"])

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    with style.styled():
        style.figure(3.4, 2.0)._ipython_display_()
    assert shown["data"]["image/png"].startswith(b"\x89PNG")
    assert shown["size"] == {"width": 340, "height": 200}


def test_a_long_title_takes_no_room_from_the_picture():
    def room(words):
        fig = style.figure(3.4, 1.5)
        ax = fig.subplots()
        style.title(fig, words)
        FigureCanvasAgg(fig).draw()
        return ax.get_window_extent().height / fig.dpi

    assert room("a title of many words " * 5) == pytest.approx(room("a title"), abs=0.02)


@pytest.mark.parametrize(("longest", "columns"), [("forward", 3), ("communication within layers", 2)])
def test_a_key_has_as_many_columns_as_its_longest_label_leaves_room_for(longest, columns):
    fig = style.figure(style.COLUMN, 1.5)
    style.legend(fig, [Patch(label=label) for label in (longest, "a", "b")])
    FigureCanvasAgg(fig).draw()
    assert len({round(text.get_window_extent().x0) for text in fig.legends[0].get_texts()}) == columns


@pytest.mark.parametrize("width", [style.COLUMN, 4.5, style.PAGE])
def test_no_word_is_alone_on_the_last_line(width):
    for n in range(2, 60):
        lines = style.wrapped("word " * n + "end", width, 9.1).split("\n")
        assert " ".join(lines) == "word " * n + "end"
        assert lines[-1].endswith("word end")
        assert max(map(len, lines)) * 0.56 * 9.1 <= width * 72


@pytest.mark.parametrize("text", ["two words. ", " a note of  two words.", "of two\nwords.", "words.", ""])
def test_no_word_is_repeated_whatever_space_there_is_between(text):
    """A note that ended with a space ended with its last two words twice."""
    assert style.wrapped(text, 4.5, 9.1) == " ".join(text.split())


def test_two_last_words_longer_than_a_line_are_in_two():
    last = "n" * 27
    assert style.wrapped(f"Loss of {last}", 2, 9.1).split("\n") == ["Loss of", last]
