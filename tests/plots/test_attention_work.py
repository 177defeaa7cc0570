import numpy as np
import pytest

import simdist as sd
from simdist.arrays import phantom
from simdist.errors import ArgumentError
from simdist.parallel.sequence import Even, RingAttention, Zigzag
from simdist.plots import attention_work, style
from simdist.trace import Span, Trace


def trace(split, ranks, backward=False):
    def program(comm):
        layer = RingAttention("it", 2, split(comm))
        _, context = layer.forward(phantom((1, 2048, 3 * 64)))
        if backward:
            layer.backward_input(context, phantom((1, 2048, 64)))

    return sd.run(program, ranks).trace


@pytest.mark.parametrize("width", [4.5, style.PAGE])
def test_even_and_zigzag(draw, width):
    picture = draw(attention_work, {"even": trace(Even, 4), "zigzag": trace(Zigzag, 4, backward=True)}, width=width)
    assert (
        picture.title == "Most work of a rank in ring attention: even 6.8 times the least, zigzag 1.0 times the least"
    )
    assert picture.key == [f"keys of rank {j}" for j in range(4)]
    even, zigzag = picture.axes
    assert even.get_xlabel() == "computing (ms)"
    assert [text.get_text().strip() for text in even.texts] == ["1.0", "2.9", "4.8", "6.8"]
    assert [text.get_text().strip() for text in zigzag.texts] == ["1.0"] * 4
    assert [len(ax.patches) for ax in picture.axes] == [1 + 2 + 3 + 4, 16]
    colours = [patch.get_facecolor() for legend in picture.figure.legends for patch in legend.get_patches()]
    for ax in picture.axes:
        for row in (0, 1, 2, 3):
            bars = [bar for bar in ax.patches if bar.get_y() < row < bar.get_y() + bar.get_height()]
            ends = np.cumsum([bar.get_width() for bar in bars])
            owners = [(row - step) % 4 for step in range(len(bars))]  # of keys, which go round the ring
            assert [bar.get_facecolor() for bar in bars] == [colours[owner] for owner in owners]
            assert [bar.get_x() for bar in bars] == pytest.approx([0, *ends[:-1]]), "one after the other"
            assert ax.texts[row].get_position() == pytest.approx((ends[-1], row))


def test_forward_and_backward_of_all_layers_are_added_up(draw):
    spans = [
        Span(rank, "main", f"{way} attention", float(t), t + took, detail="block 1")
        for rank, took in ((0, 2.0), (1, 1.0), (2, 6.0))
        for t, way in ((0, "forward"), (10, "forward"), (20, "backward"))
    ]
    picture = draw(attention_work, {"one": Trace(spans, 3)})
    assert picture.title == "Most work of a rank in ring attention: 6.0 times the least"
    assert [bar.get_width() for bar in picture.axes[0].patches] == [6, 3, 18]


def test_many_ranks(draw):
    picture = draw(attention_work, {"zigzag": trace(Zigzag, 20), "of few": trace(Even, 2)})
    assert len(picture.key) == 8
    assert picture.axes[0].get_ylim() == (19.5, -0.5)
    assert picture.note.endswith("Colours repeat after 8 ranks.")


FORGED = Trace([Span(0, "main", "forward attention", 0.0, 1.0, detail="block 0")], 10**9)


OWN = sd.run(lambda comm: comm.compute(1.0, name="forward attention"), 2).trace


@pytest.mark.parametrize(
    "runs",
    [
        {},
        {"empty": Trace([], 2)},
        {"own": OWN},
        {"other": sd.run(lambda comm: comm.barrier(), 2).trace},
        {"of too many": FORGED},
    ],
)
def test_nothing_to_draw(runs):
    what = f"in the record of {next(iter(runs))} not every rank has worked on keys" if runs else "nothing to draw"
    with pytest.raises(ArgumentError, match=what):
        attention_work(runs)
