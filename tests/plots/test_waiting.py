import numpy as np
import pytest

import simdist as sd
from simdist.errors import ArgumentError
from simdist.plots import style, waiting
from simdist.trace import Span, Trace


def trace(seconds):
    """Rank 0 waits for rank 1, which computes for so long; rank 0 has computed for a second."""

    def program(comm):
        x = np.zeros(1)
        comm.compute(seconds=(1.0, seconds)[comm.rank])
        if comm.rank:
            comm.send(x, 0)
        else:
            comm.recv(x)

    return sd.run(program, 2).trace


@pytest.mark.parametrize("width", [4.5, style.PAGE])
def test_waiting_stands_apart_from_work(draw, width):
    picture = draw(waiting, {"slow": trace(4.0), "slower": trace(10.0)}, width=width)
    assert picture.title == "Time waited, mean over the ranks: slow 37% (0% to 75%), slower 45% (0% to 90%)"
    assert picture.key == ["computing", "communicating", "waiting"]
    bars = picture.axes[0].containers
    assert [bar.get_width() for bar in bars[0]] == pytest.approx([0.25, 1.0], abs=1e-4)
    assert [bar.get_width() for bar in bars[2]] == pytest.approx([0.75, 0.0], abs=1e-4)
    assert picture.note == ""


def test_one_part_of_a_bar_after_the_other(draw):
    """A message that takes 4 s, asked for 2 s before it sets out."""
    spans = [Span(0, "main", "compute", 0.0, 4.0), Span(0, "main", "recv", 4.0, 10.0, 8, 1)]
    spans += [Span(1, "main", "compute", 0.0, 6.0), Span(1, "main", "send", 6.0, 10.0, 8, 0)]
    (ax,) = draw(waiting, {"one": Trace(spans, 2)}).axes
    bars = [[(bar.get_x(), bar.get_width()) for bar in part] for part in ax.containers]
    for rank, expected in enumerate(([(0, 0.4), (0.4, 0.4), (0.8, 0.2)], [(0, 0.6), (0.6, 0.4), (1.0, 0)])):
        assert [part[rank] for part in bars] == [pytest.approx(bar) for bar in expected]


def test_who_ends_early_leaves_white(draw):
    def program(comm):
        comm.compute(seconds=(1.0, 2.0)[comm.rank])

    assert draw(waiting, {"run": sd.run(program, 2).trace}).note == "White: none of these was recorded."


def test_one_rank(draw):
    run = sd.run(lambda comm: comm.compute(seconds=1.0), 1)
    assert not any(draw(waiting, {"run": run.trace}).axes[0].get_yticks() % 1)


def test_many_ranks(draw):
    run = sd.run(lambda comm: comm.compute(seconds=1.0 + comm.rank), 100)
    assert "0% (0% to 0%)" in draw(waiting, {"run": run.trace}).title


@pytest.mark.parametrize("runs", [{}, {"empty": Trace([], 2)}])
def test_nothing_to_draw(runs):
    with pytest.raises(ArgumentError, match="no spans"):
        waiting(runs)


def test_runs_of_different_numbers_of_ranks(draw):
    spans = [Span(rank, "main", "compute", 0.0, 1.0) for rank in range(4)]
    picture = draw(waiting, {"four": Trace(spans, 4), "two": Trace(spans[:2], 2)})
    assert [ax.get_ylim() for ax in picture.axes] == [(3.5, -0.5)] * 2
