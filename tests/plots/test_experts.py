"""The load of experts."""

import json

import numpy as np
import pytest
from matplotlib.colors import to_hex

import simdist as sd
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Shape, gpt
from simdist.parallel.parts import MeshParts
from simdist.plots import expert_load, style
from simdist.trace import Span


def told(rank, own, asked, dropped, layer="block0.experts", tokens=10, slots=4):
    detail = json.dumps(
        {"tokens": tokens, "asked": asked, "dropped": dropped, "slots": slots, "auxiliary": 0.01, "own": own}
    )
    return Span(rank, "main", f"route {layer}", 0.0, 1.0, detail=detail)


SPANS = [told(0, [0, 2], [6, 2, 2, 0], [2, 0, 0, 0]), told(1, [2, 4], [5, 1, 3, 1], [1, 0, 0, 0])]


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_bars_of_what_was_kept_and_dropped(draw, width):
    picture = draw(expert_load, SPANS, width=width)
    share = "4 experts on 2 ranks: the busiest is asked for 2.2 times its share; 15.0% of choices are dropped"
    assert picture.title == share
    assert picture.key == ["on rank 0", "on rank 1", "dropped", "slots", "even share"]
    (ax,) = picture.axes
    kept, lost = ax.containers
    np.testing.assert_allclose([bar.get_height() for bar in kept], [8 / 20, 3 / 20, 5 / 20, 1 / 20])
    np.testing.assert_allclose([bar.get_height() for bar in lost], [3 / 20], err_msg="of the first")
    assert [bar.get_y() for bar in lost] == [8 / 20]
    colours = [to_hex(bar.get_facecolor()) for bar in kept]
    assert colours == [style.rank_colour(rank).lower() for rank in (0, 0, 1, 1)]
    even, slots = (line.get_ydata()[0] for line in ax.lines)
    assert (even, slots) == (0.25, 8 / 20)


def test_slots_are_a_share_of_the_choices_and_not_of_the_tokens(draw):
    """Ten tokens with two choices each."""
    (ax,) = draw(expert_load, [told(0, [0, 2], [12, 8], [0, 0], tokens=10, slots=15)]).axes
    assert [line.get_ydata()[0] for line in ax.lines] == [1 / 2, 15 / 20]


def test_experts_that_ranks_share_are_named_with_all_of_them(draw):
    spans = [told(rank, [own, own + 1], [3, 3], [0, 0]) for rank, own in enumerate((0, 0, 1, 1))]
    assert draw(expert_load, spans).key == ["on ranks 0, 1", "on ranks 2, 3", "dropped", "slots", "even share"]
    many = [told(rank, [0, 2], [3, 3], [0, 0]) for rank in range(6)]
    assert draw(expert_load, many).key[0] == "on ranks 0, 1, 2, 3, …"


def test_some_of_many_layers(draw):
    spans = [told(0, [0, 2], [5, 5], [0, 0], layer=f"block{i}.experts") for i in range(7)]
    assert draw(expert_load, spans).note == "3 more layers not shown."
    picture = draw(expert_load, spans, ["block6.experts"])
    assert [ax.get_title() for ax in picture.axes] == ["block6.experts"]
    assert picture.title.startswith("2 experts on 1 rank: the busiest is asked for 1 times its share")


def test_of_a_run(draw):
    shape = Shape(2, 16, 2, 32, vocabulary=64, experts=8, top_k=2, capacity_factor=1.0)

    def program(comm):
        model = gpt(shape, MeshParts(Mesh(comm, ep=4)))
        model.parameters.bind(np.empty(model.parameters.size), np.zeros(model.parameters.size))
        model.parameters.initialize(0)
        model.forward(np.random.default_rng(comm.rank).integers(0, 64, (4, 33), dtype=np.uint8))

    picture = draw(expert_load, sd.run(program, ranks=4).trace.spans)
    assert picture.key == ["on rank 0", "on rank 1", "on rank 2", "on rank 3", "dropped", "slots", "even share"]


def test_layers_may_be_any_iterable(draw):
    assert draw(expert_load, iter(SPANS), iter(["block0.experts"])).title.startswith("4 experts on 2 ranks")


def test_a_layer_without_tokens_is_not_drawn(draw):
    picture = draw(expert_load, [*SPANS, told(0, [0, 2], [0, 0], [0, 0], layer="block1.experts", tokens=0)])
    assert [ax.get_title() for ax in picture.axes] == ["block0.experts"]


def test_nothing_to_draw():
    with pytest.raises(ArgumentError, match="no tokens"):
        expert_load([])
    with pytest.raises(ArgumentError, match="no layer 'block9'.* block0.experts"):
        expert_load(SPANS, ["block9"])
    with pytest.raises(ArgumentError, match="without numbers"):
        expert_load([told(0, [0, 1], [float("nan")], [float("nan")])])
