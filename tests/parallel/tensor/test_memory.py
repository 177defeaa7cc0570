"""What a rank keeps of a batch on tp: measured, by the formulas, and by the paper's, each difference listed."""

from dataclasses import replace

import numpy as np
import pytest
from harness import VirtualRanks

from simdist.arrays import Ledger, phantom, recorded
from simdist.comm import Mesh
from simdist.nn import Noise, Shape, gpt
from simdist.nn.memory import Cut, activation_bytes, activations, megatron_activation_bytes, peak_activation_bytes
from simdist.parallel.parts import MeshParts

SHAPE = Shape(layers=2, width=32, heads=8, context=32, vocabulary=64, dropout=0.1)
virtual = VirtualRanks()
modes = pytest.mark.parametrize("sequence_parallel", [False, True], ids=["tensor", "sequence"])
recomputations = pytest.mark.parametrize("recompute", ["none", "selective", "full"])


def measure(comm, shape, sequences, dtype, sequence_parallel):
    """Of one rank of phantoms: what is held between forward and backward, and at most."""
    model, ledger = gpt(shape, MeshParts(Mesh(comm, tp=comm.size), sequence_parallel=sequence_parallel)), Ledger()
    model.parameters.bind(*(phantom(model.parameters.size, dtype) for _ in range(2)))
    windows = phantom((sequences, shape.context + 1), np.uint8)
    with recorded(ledger):
        _, context = model.forward(windows, Noise(0, 0, np.arange(sequences)))
        between = ledger.now.of("activations")
        model.backward(context, 1.0)
        del context, windows
    return between, ledger.peaks["activations"], ledger.now.of("activations")


@modes
@recomputations
@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_what_is_held_is_what_the_formulas_say(t, recompute, sequence_parallel, dtype):
    shape = replace(SHAPE, recompute=recompute)
    cut = Cut(t, sequence_parallel)
    for between, peak, after in virtual(measure, t, shape, 3, dtype, sequence_parallel):
        assert between == activation_bytes(shape, 3, np.dtype(dtype).itemsize, cut)
        assert peak == peak_activation_bytes(shape, 3, np.dtype(dtype).itemsize, cut)
        assert after == 0


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
