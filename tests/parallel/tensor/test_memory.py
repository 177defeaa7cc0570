"""What a rank keeps of a batch on tp: measured, by the formulas, and by the paper's, each difference listed."""

from dataclasses import replace

import pytest
from activations_held import check_held

from simdist.nn import Shape
from simdist.nn.formulas import megatron_activation_bytes
from simdist.nn.memory import Cut, activations

SHAPE = Shape(layers=2, width=32, heads=8, context=32, vocabulary=64, dropout=0.1)
modes = pytest.mark.parametrize("sequence_parallel", [False, True], ids=["tensor", "sequence"])
recomputations = pytest.mark.parametrize("recompute", ["none", "selective", "full"])


@pytest.mark.slow(but=4)
@modes
@recomputations
@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_what_is_held_is_what_the_formulas_say(t, recompute, sequence_parallel, dtype):
    check_held({"tp": t}, replace(SHAPE, recompute=recompute), dtype, sequence_parallel=sequence_parallel)


@modes
@recomputations
@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_the_papers_bytes_and_every_difference_to_them(t, recompute, sequence_parallel):
    """sbh (10 + 24/t + 5as/(ht)) and its kin, entry by entry."""
    shape = replace(SHAPE, recompute=recompute)
    s, b, h = shape.context, 3, shape.width
    block = [kept for kept in activations(shape, b, cut=Cut(t, sequence_parallel)) if kept.layer.startswith(".")]
    told = {"tensor_parallel": t, "sequence_parallel": sequence_parallel, "recompute": recompute}
    paper = megatron_activation_bytes(s, h, shape.heads, b, **told)
    assert sum(kept.paper_bytes for kept in block) == pytest.approx(paper, rel=1e-12)
    for kept in block:
        assert bool(kept.why) == (kept.num_bytes != kept.paper_bytes), kept
    ours = sum(kept.num_bytes for kept in block)
    scale = 2 * 4 * s * b // (t if sequence_parallel else 1)  # of two norms, a number a row
    if recompute == "none":
        assert ours - paper == pytest.approx(scale - 2 * shape.heads * s * s * b / t)  # a mask instead of a product
    elif recompute == "selective":
        assert ours - paper == pytest.approx(scale)
    else:
        assert ours == paper / (t if sequence_parallel else 1)
