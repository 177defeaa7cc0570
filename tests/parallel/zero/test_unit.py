"""Units: where a model is cut, and that each weight is in one chunk of one rank."""

import numpy as np
import pytest
from zero_training import MODELS

from simdist.nn import Shape, gpt
from simdist.parallel.zero.unit import Units


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 4000])
@pytest.mark.parametrize("least", [1, 500, 1 << 30])
@pytest.mark.parametrize("alignment", [1, 64])
def test_the_ranks_hold_each_weight_once(ranks, least, alignment):
    model = MODELS["gpt"]()
    count = np.zeros(model.parameters.size, int)
    some = {0, 1, ranks // 2, ranks - 1} & set(range(ranks)) if ranks > 8 else range(ranks)
    for rank in some:
        units = Units(model, ranks, rank, least, alignment)
        for stretch, room in zip(units.holding.stretches, units.holding.rooms, strict=True):
            count[stretch] += 1
            assert room.start % alignment == 0 or alignment == 1
    assert count.max() == 1 and (ranks > 8 or count.min() == 1)


def test_units_end_where_layers_do():
    model = gpt(Shape(layers=3, width=8, heads=2, context=6))
    embedding, block = 8 * (256 + 6), 12 * 64 + 13 * 8
    assert [unit.start for unit in Units(model, 4, 0)] == [0, *(embedding + i * block for i in range(4))]
    assert [unit.start for unit in Units(model, 4, 0, least=2 * block)] == [0, embedding + block]
    assert [unit.start for unit in Units(model, 4, 0, least=1 << 30)] == [0]


def test_what_is_apart_is_a_unit_each():
    model = gpt(Shape(layers=3, width=8, heads=2, context=6))
    for least in (1, 1 << 30):
        units = Units(model, 4, 0, least, apart=["block1.hidden.w", "embedding.tokens"])
        names = [[p.name for p in unit.parameters] for unit in units]
        assert [name for unit in names for name in unit] == [p.name for p in model.parameters]
        assert ["block1.hidden.w"] in names
        assert ["embedding.tokens"] in names
        assert len(names) == (8 if least == 1 else 4)
        assert [unit.start for unit in units] == [model.parameters.spans[unit[0]].start for unit in names]


def test_a_unit_knows_the_layers_that_use_it():
    tied, apart = (gpt(Shape(layers=2, width=8, heads=2, context=6, tied=tied)) for tied in (True, False))
    assert [(unit.first, unit.last) for unit in Units(tied, 2, 0)] == [(0, 3), (1, 1), (2, 2), (3, 3)]
    assert [(unit.first, unit.last) for unit in Units(apart, 2, 0)] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_padding_makes_chunks_even():
    units = Units(MODELS["mlp"](), 3, 1, alignment=64)
    for unit in units:
        assert unit.chunk.stop - unit.chunk.start == unit.room / 3
        assert unit.parameters.size <= unit.room < unit.parameters.size + 3 * 64
        assert unit.room % (3 * 64) == 0
