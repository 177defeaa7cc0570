"""What a rank keeps of a batch where texts are cut over sp, and of experts: measured, and by the formulas."""

from dataclasses import replace

import pytest
from activations_held import check_held

from simdist.nn import Shape
from simdist.nn.formulas import megatron_activation_bytes
from simdist.nn.memory import Cut, activations
from simdist.nn.shape import BLOCKS

SHAPE = Shape(layers=2, width=32, heads=8, context=32, vocabulary=64, dropout=0.1)
EXPERTS = replace(SHAPE, experts=4, top_k=2, group=4, capacity_factor=2.0, shared_experts=1)
recomputations = pytest.mark.parametrize("recompute", ["none", "selective", "full"])
kinds = pytest.mark.parametrize("attention", ["ring", "even-ring", "ulysses"])


@pytest.mark.slow(but=4)
@kinds
@recomputations
@pytest.mark.parametrize(
    ("sizes", "dtype", "sharded"),
    [
        ({"sp": 4}, "float16", False),
        ({"sp": 2, "tp": 2}, "float64", True),
        pytest.param({"sp": 2, "tp": 2}, "float16", False, marks=pytest.mark.slow),
    ],
)
def test_what_is_held_is_what_the_formulas_say(sizes, recompute, attention, dtype, sharded):
    check_held(sizes, replace(SHAPE, recompute=recompute), dtype, attention=attention, sequence_parallel=sharded)


@kinds
def test_fewer_tokens_than_go_evenly_on_all_ranks(attention):
    check_held({"sp": 2, "tp": 4}, replace(SHAPE, context=4), "float16", attention=attention)  # 12 tokens, 8 ranks


@pytest.mark.slow(but=4)
@recomputations
@pytest.mark.parametrize(
    ("sizes", "sharded"),
    [({"ep": 2}, False), ({"ep": 2, "tp": 2}, False), ({"ep": 2, "tp": 2}, True), ({"ep": 2, "sp": 2}, False)],
    ids=str,
)
@pytest.mark.parametrize("block", BLOCKS)
def test_experts(sizes, sharded, recompute, block):
    check_held(sizes, replace(EXPERTS, recompute=recompute, block=block), "float16", sequence_parallel=sharded)


@kinds
@recomputations
@pytest.mark.parametrize(("t", "sharded"), [(1, False), (2, False), (2, True)])
def test_the_papers_bytes_and_every_difference_to_them(t, sharded, recompute, attention):
    """Its p-th part; of a ring without 5as/h, since no scores are kept there."""
    shape, p, ring = replace(SHAPE, recompute=recompute), 4, attention != "ulysses"
    s, b, h = shape.context, 3, shape.width
    block = [kept for kept in activations(shape, b, cut=Cut(t, sharded, p, ring)) if kept.layer.startswith(".")]
    mode = "selective" if ring and recompute == "none" else recompute
    told = {"tensor_parallel": t, "sequence_parallel": sharded, "recompute": mode}
    paper = megatron_activation_bytes(s, h, shape.heads, b, **told) / p
    assert sum(kept.paper_bytes for kept in block) == pytest.approx(paper, rel=1e-12)
    for kept in block:
        assert bool(kept.why) == (kept.num_bytes != kept.paper_bytes), kept
