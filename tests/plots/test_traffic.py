"""The map of who sent how much to whom."""

import numpy as np
import pytest

import simdist as sd
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError
from simdist.plots import style, traffic
from simdist.trace import Span, Trace


def program(comm, name):
    all_reduce(np.ones(4096, np.float32), comm, algorithm=name)


def shown(picture):
    """The bytes behind the colours; 0 where nothing is shown."""
    return np.ma.filled(picture.axes[0].images[0].get_array(), 0)


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_a_ring(draw, width):
    picture = draw(traffic, sd.run(program, ranks=4, args=("ring",)).trace, width=width)
    expected = np.zeros((4, 4))
    for rank in range(4):
        expected[rank, (rank + 1) % 4] = 6 * 4096
    assert (shown(picture) == expected).all()
    assert picture.title == "96 KiB in 24 messages: each of 4 ranks sends to 1 of the others, at most 24 KiB to one"
    assert picture.words.count("24 KiB") == 4


def test_many_ranks_without_figures(draw):
    picture = draw(traffic, sd.run(program, ranks=16, args=("recursive_doubling",)).trace)
    assert (np.count_nonzero(shown(picture), axis=1) == 4).all()
    assert picture.title.startswith("1 MiB in 64 messages: each of 16 ranks sends to 4 of the others")
    assert not picture.axes[0].texts


def test_very_different_amounts_and_empty_messages(draw):
    spans = [Span(0, "main", "send", 0.0, 1.0, 10, 1), Span(1, "main", "send", 0.0, 1.0, 10**7, 2)]
    spans.append(Span(2, "main", "send", 0.0, 1.0, 0, 0))
    picture = draw(traffic, Trace(spans, 3))
    assert shown(picture)[1, 2] == 10**7
    assert "sends to 0–1 of the others" in picture.title


def test_senders_are_rows_and_receivers_columns(draw):
    picture = draw(traffic, Trace([Span(0, "main", "send", 0.0, 1.0, 10 * dst, dst) for dst in (1, 2)], 3))
    (ax, _) = picture.axes
    assert {t.get_position(): t.get_text() for t in ax.texts} == {(1, 0): "10\nB", (2, 0): "20\nB"}
    assert picture.title.startswith("30 B in 2 messages: each of 3 ranks sends to 0–2 of the others")


def test_a_rank_is_none_of_its_others(draw):
    spans = [Span(0, "main", "send", 0.0, 1.0, 500, 0), Span(1, "main", "send", 0.0, 1.0, 10, 0)]
    picture = draw(traffic, Trace(spans, 2))
    assert shown(picture)[0, 0] == 500
    assert picture.title.endswith("each of 2 ranks sends to 0–1 of the others, at most 10 B to one")


def test_empty_messages_alone(draw):
    assert draw(traffic, Trace([Span(0, "main", "send", 0.0, 1.0, 0, 1)], 2)).title.startswith("0 B in 1 message")


def test_a_trace_without_messages():
    with pytest.raises(ArgumentError, match="no messages"):
        traffic(Trace([Span(0, "main", "compute", 0.0, 1.0)], 1))


def test_bytes_are_readable_on_every_shade(draw):
    """On a log scale the shade of 3% of the most is already dark."""
    sent = {1: 10, 2: 30_000, 3: 1 << 20}
    spans = [Span(0, "main", "send", 0.0, 1.0, num_bytes, peer) for peer, num_bytes in sent.items()]
    (ax, _) = draw(traffic, Trace(spans, 4)).axes
    assert [text.get_color() for text in ax.texts] == [style.INK, "white", "white"]


@pytest.mark.parametrize(
    ("sent", "marks"),
    [
        ((0, 0), ["0 B", "1 B"]),
        ((1, 1), ["0 B", "1 B"]),
        ((999, 999), ["0 B", "500 B"]),
        ((1500, 1500), ["0 KiB", "0.5 KiB", "1 KiB"]),
        ((37_000_000, 1_000_000), ["0 MiB", "10 MiB", "20 MiB", "30 MiB"]),
        ((12_000_000_000, 12_000_000_000), ["0 GiB", "5 GiB", "10 GiB"]),
        ((3, 700), ["4 B", "16 B", "64 B", "256 B"]),
        ((10, 10**7), ["16 B", "512 B", "16 KiB", "512 KiB"]),
    ],
)
def test_the_scale_has_round_numbers_at_the_bytes_that_they_name(draw, sent, marks):
    spans = [Span(src, "main", "send", 0.0, 1.0, sent[src], 1 - src) for src in (0, 1)]
    scale = draw(traffic, Trace(spans, 2)).axes[1]
    assert [text.get_text() for text in scale.get_yticklabels()] == marks
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    named = [float(mark.split()[0]) * units[mark.split()[1]] for mark in marks]
    assert scale.get_yticks().tolist() == pytest.approx(named)
