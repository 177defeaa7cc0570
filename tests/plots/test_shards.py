"""Who has what of a model."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import simdist as sd
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Place, Shape, gpt
from simdist.parallel.parts import MeshParts
from simdist.plots import shards, style


def held(sizes, p, sequence_parallel=False, layers=1):
    shape = Shape(layers=layers, width=24, heads=4, context=8, vocabulary=32)

    def program(comm):
        parts = MeshParts(Mesh(comm, **sizes), sequence_parallel=sequence_parallel)
        count = shape.context // (sizes["tp"] if sequence_parallel else 1)
        return {p.name: p.place for p in gpt(shape, parts).parameters}, parts.region.tokens(count)

    found = sd.run(program, p).results
    return [places for places, _ in found], [tokens for _, tokens in found]


def area(picture):
    """What is filled with each colour, as shares of all."""
    (ax,) = picture.figure.axes
    found = {}
    for patch in ax.findobj(Rectangle):
        if patch is not ax.patch and patch.get_fill():
            colour = to_hex(patch.get_facecolor()).upper()
            found[colour] = found.get(colour, 0) + patch.get_width() * patch.get_height()
    return {colour: size / sum(found.values()) for colour, size in found.items()}


@pytest.mark.parametrize("width", [4.5, style.PAGE])
def test_a_model_on_four_ranks(draw, width):
    places, tokens = held({"tp": 4}, 4, sequence_parallel=True)
    picture = draw(shards, places, tokens, width=width)
    whole = sum(np.prod(place.shape) for place in places[0].values())
    mine = sum(np.prod([s.stop - s.start for s in place.index] or place.shape) for place in places[0].values())
    assert picture.title == f"Of {whole:,} weights rank 0 of 4 holds {mine:,}: {mine / whole:.1%}"
    assert picture.key == ["rank 0", "rank 1", "rank 2", "rank 3", "all ranks"]
    for words in ("block0.qkv.w", "24 × 72", "block0.thought.w", "96 × 24", "8 tokens of a text", "all"):
        assert words in picture.words
    shares = area(picture)
    assert len({round(shares[style.rank_colour(rank)], 6) for rank in range(4)}) == 1
    assert 0 < shares[style.FAINT] < 0.3


@pytest.mark.parametrize(("layers", "shown"), [(4, "0123"), (6, "03")])
def test_of_many_blocks_those_that_differ_are_drawn(draw, layers, shown):
    """On two stages: of the blocks of either, the first."""
    places, _ = held({"tp": 2}, 2, layers=layers)
    stages = [
        {name: place for name, place in own.items() if (name[:5] == "block" and int(name[5]) >= layers / 2) == late}
        for late in (False, True)
        for own in places
    ]
    picture = draw(shards, stages)
    assert [name[5] for name in picture.words if name.endswith(".qkv.w")] == list(shown)
    assert ("Of blocks that are split alike the first is drawn: 2 of 6 in all." in picture.note) == (layers == 6)
    assert f"{sum(np.prod(place.shape) for place in places[0].values()):,} weights" in picture.title


def test_ranks_that_have_the_same(draw):
    picture = draw(shards, *held({"dp": 2, "tp": 2}, 4))
    assert picture.note == "Ranks side by side in one frame hold the same part."
    assert "0 2" in picture.words
    assert "1 3" in picture.words


def test_a_mixture_of_experts_side_by_side(draw):
    places = [{"experts.w": Place((8, 6, 9), (slice(2 * r, 2 * r + 2), slice(0, 6), slice(0, 9)))} for r in range(4)]
    picture = draw(shards, places)
    assert "8 × 6 × 9" in picture.words
    assert [share for _, share in sorted(area(picture).items())] == pytest.approx([0.25] * 4)


def test_more_experts_than_features(draw):
    """Of 64 experts of 32 by 128 each rank has half: as few frames as ranks, side by side."""
    box = [(slice(32 * r, 32 * r + 32), slice(0, 32), slice(0, 128)) for r in range(2)]
    picture = draw(shards, [{"experts.w": Place((64, 32, 128), index)} for index in box])
    frames = [p for p in picture.figure.axes[0].findobj(Rectangle) if p.get_fill() and p.get_width() < 5]
    frames = sorted((p for p in frames if p is not picture.figure.axes[0].patch), key=lambda p: p.get_x())
    assert frames[0].get_y() == frames[1].get_y()
    assert frames[0].get_x() + frames[0].get_width() == pytest.approx(frames[1].get_x())


def test_experts_that_ranks_share(draw):
    """Ranks 0 and 1 have half of the columns each of two experts, 2 and 3 of the other two."""
    box = [(slice(2 * (r // 2), 2 * (r // 2) + 2), slice(0, 6), slice(4 * (r % 2), 4 * (r % 2) + 4)) for r in range(4)]
    picture = draw(shards, [{"experts.w": Place((4, 6, 8), index)} for index in box])
    assert [share for _, share in sorted(area(picture).items())] == pytest.approx([0.25] * 4)
    frames = [p for p in picture.figure.axes[0].findobj(Rectangle) if p.get_fill() and p.get_width() < 5]
    frames = sorted((p for p in frames if p is not picture.figure.axes[0].patch), key=lambda p: p.get_x())
    owners = [style.rank_colour(r) for r in (0, 1, 0, 1, 2, 3, 2, 3)]
    assert [to_hex(p.get_facecolor()).upper() for p in frames] == owners


@pytest.mark.parametrize("experts", [(), (3,)], ids=str)
def test_a_gate_beside_what_it_is_on(draw, experts):
    """Of a perceptron or of three experts; ranks have half of the columns of each."""
    shape = (*experts, 6, 2, 8)
    whole = [slice(0, n) for n in shape[:-1]]
    picture = draw(shards, [{"w": Place(shape, (*whole, slice(4 * r, 4 * r + 4)))} for r in range(2)])
    assert " × ".join(map(str, shape)) in picture.words
    assert [share for _, share in sorted(area(picture).items())] == pytest.approx([0.5] * 2)
    frames = [p for p in picture.figure.axes[0].findobj(Rectangle) if p.get_fill() and p.get_width() < 5]
    frames = sorted((p for p in frames if p is not picture.figure.axes[0].patch), key=lambda p: p.get_x())
    owners = [style.rank_colour(r) for r in (0, 1) * (2 * math.prod(experts))]
    assert [to_hex(p.get_facecolor()).upper() for p in frames] == owners


def test_single_numbers_and_vectors_are_drawn_as_matrices_and_empty_ones_not(draw):
    picture = draw(shards, [{"scale": Place(()), ".b": Place((4,)), "none": Place((0, 4))}] * 2)
    assert picture.title == "Of 5 weights rank 0 of 2 holds 5: 100.0%"
    written = {t.get_text() for t in picture.figure.axes[0].texts}
    assert {"scale", ".b"} <= written and "none" not in written


def test_rows_lie_below_each_other(draw):
    places = [{"w": Place((6, 9), (slice(2 * r, 2 * r + 2), slice(0, 9)))} for r in range(3)]
    (ax,) = draw(shards, places).figure.axes
    tops = {to_hex(p.get_facecolor()).upper(): (p.get_y(), p.get_height()) for p in ax.patches if p.get_fill()}
    (y, high), *below = (tops[style.rank_colour(rank)] for rank in range(3))
    assert below == [pytest.approx((y + high, high)), pytest.approx((y + 2 * high, high))]


def test_one_rank_has_its_own_colour(draw):
    assert area(draw(shards, [{"w": Place((6, 9))}])) == {style.rank_colour(0): 1.0}


def test_tokens_in_two_runs(draw):
    zigzag = [np.array([0, 1, 6, 7]), np.array([2, 3, 4, 5])]
    picture = draw(shards, [{"w": Place((2, 3))}] * 2, zigzag)
    assert "8 tokens of a text" in picture.words


def test_very_many_ranks(draw):
    places = [{"w": Place((24, 48), (slice(0, 24), slice(2 * r, 2 * r + 2)))} for r in range(24)]
    assert draw(shards, places).note == "Colours repeat after 8 ranks."


def test_nothing_to_draw():
    with pytest.raises(ArgumentError, match="no parameters on 2 ranks"):
        shards([{}, {}])
