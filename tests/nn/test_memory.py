"""What the ledger finds is what the formulas say, and the differences to the paper's are those listed."""

import gc
import tracemalloc

import numpy as np
import pytest

from simdist.arrays import Ledger, hold, phantom, recorded
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import Noise, Shape, gpt, mlp
from simdist.nn.formulas import megatron_activation_bytes
from simdist.nn.layers import TiedLinear
from simdist.nn.layers.layer import label
from simdist.nn.memory import activation_bytes, activations, peak_activation_bytes

SHAPES = {
    "small": {"layers": 2, "width": 12, "heads": 3, "context": 7, "vocabulary": 11},
    "many scores": {"layers": 3, "width": 8, "heads": 4, "context": 96, "vocabulary": 32},
    "wide": {"layers": 3, "width": 64, "heads": 2, "context": 5},
    "many words": {"layers": 1, "width": 8, "heads": 2, "context": 6, "vocabulary": 250},
    "llama": {"layers": 2, "width": 12, "heads": 3, "context": 7, "vocabulary": 11, "block": "llama", "kv_heads": 1},
    "experts of llama": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "context": 8,
        "block": "llama",
        "ffn_width": 20,
        "experts": 3,
        "capacity_factor": 3.0,
    },
    "shared experts": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "context": 8,
        "ffn_width": 10,
        "experts": 3,
        "capacity_factor": 3.0,
        "shared_experts": 2,
    },
    "dense, then experts": {
        "layers": 5,
        "width": 12,
        "heads": 3,
        "context": 8,
        "block": "llama",
        "ffn_width": 6,
        "experts": 2,
        "capacity_factor": 2.0,
        "dense_layers": 2,
        "dense_ffn_width": 30,
    },
    "experts in every other block": {
        "layers": 5,
        "width": 12,
        "heads": 3,
        "context": 8,
        "ffn_width": 6,
        "experts": 2,
        "capacity_factor": 2.0,
        "expert_every": 2,
        "dense_ffn_width": 90,
    },
    "dense and wide, then experts": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "context": 8,
        "ffn_width": 2,
        "experts": 2,
        "capacity_factor": 2.0,
        "dense_layers": 1,
        "dense_ffn_width": 200,
    },
    "latent": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "context": 7,
        "block": "llama",
        "head_width": 6,
        "kv_latent_width": 5,
        "query_latent_width": 7,
        "rope_width": 2,
    },
    "latent keys and values": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "context": 70,
        "block": "llama",
        "kv_latent_width": 20,
        "flash": True,
    },
    "wide heads": {
        "layers": 2,
        "width": 12,
        "heads": 3,
        "context": 7,
        "block": "llama",
        "kv_heads": 1,
        "head_width": 6,
        "qkv_bias": True,
    },
    "normalized heads": {
        "layers": 2,
        "width": 12,
        "heads": 6,
        "context": 7,
        "block": "llama",
        "kv_heads": 2,
        "head_width": 4,
        "qk_norm": True,
    },
    "narrow heads": {"layers": 2, "width": 12, "heads": 2, "context": 7, "head_width": 3},
    "half as wide inside": {"layers": 2, "width": 12, "heads": 3, "context": 7, "block": "llama", "ffn_width": 24},
    "narrow": {"layers": 2, "width": 12, "heads": 3, "context": 7, "ffn_width": 10},
    "long": {"layers": 2, "width": 8, "heads": 2, "context": 150},
    "flash": {"layers": 2, "width": 8, "heads": 4, "context": 96, "flash": True},
    "flash of llama": {"layers": 2, "width": 12, "heads": 3, "context": 7, "block": "llama", "flash": True},
    "experts": {"layers": 2, "width": 12, "heads": 3, "context": 8, "experts": 4, "capacity_factor": 4.0},
    "two of the experts": {
        "layers": 1,
        "width": 8,
        "heads": 2,
        "context": 8,
        "experts": 4,
        "top_k": 2,
        "group": 4,
        "capacity_factor": 2.0,
    },
}
every_shape = pytest.mark.parametrize("name", SHAPES)
every_mode = pytest.mark.parametrize("recompute", ["none", "selective", "full"])


def measure(shape, sequences, dtype, kind):
    """The ledger of a forward and a backward, and what of activations there was between them."""
    model, ledger = gpt(shape), Ledger()
    size = model.parameters.size
    vectors = [phantom(size, dtype) if kind == "phantom" else np.zeros(size, dtype) for _ in range(2)]
    model.parameters.bind(*vectors)
    if kind == "numpy":
        model.parameters.initialize(0)
    length = shape.context + 1
    windows = phantom((sequences, length), np.uint8) if kind == "phantom" else np.ones((sequences, length), np.uint8)
    noise = Noise(0, 0, np.arange(sequences)) if shape.dropout else None
    with recorded(ledger):
        hold("parameters", vectors[0])
        hold("gradients", vectors[1])
        _, context = model.forward(windows, noise)
        between = ledger.now.of("activations")
        model.backward(context, 1.0)
        del context, windows
    return ledger, between


@pytest.mark.slow(but=50)
@every_shape
@every_mode
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "kind"), [("float16", "phantom"), ("float32", "numpy"), ("float64", "phantom")])
def test_what_is_held_is_what_the_formulas_say(name, recompute, dropout, dtype, kind):
    shape, itemsize = Shape(**SHAPES[name], dropout=dropout, recompute=recompute), np.dtype(dtype).itemsize
    ledger, between = measure(shape, 3, dtype, kind)
    assert between == activation_bytes(shape, 3, itemsize)
    assert ledger.peaks["activations"] == peak_activation_bytes(shape, 3, itemsize)
    size = gpt(shape).parameters.size
    assert (ledger.peaks["parameters"], ledger.peaks["gradients"]) == (size * itemsize, size * itemsize)
    assert ledger.now.of("activations") == 0, "backward uses its context up"
    assert ledger.now.of("buffers") == 0


def test_both_moments_of_the_peak_occur():
    """Else the formula's other half would be untried."""
    shapes = [Shape(**sizes, recompute="selective") for sizes in SHAPES.values()]
    assert {peak_activation_bytes(shape, 3) > activation_bytes(shape, 3) for shape in shapes} == {True, False}


@every_mode
@pytest.mark.parametrize(("heads", "width", "context"), [(4, 64, 32), (8, 64, 16), (2, 32, 64)])
def test_the_entries_add_up_to_the_papers_formula(recompute, heads, width, context):
    shape = Shape(layers=5, width=width, heads=heads, context=context, dropout=0.1, recompute=recompute)
    block = [kept for kept in activations(shape, 3) if kept.layer.startswith(".")]
    paper = megatron_activation_bytes(context, width, heads, 3, recompute=recompute)
    assert sum(kept.paper_bytes for kept in block) == paper
    around = [kept for kept in activations(shape, 3) if not kept.layer.startswith(".")]
    s, b, h, v = context, 3, width, 256
    assert sum(kept.paper_bytes for kept in around) == pytest.approx(s * b * h + 4 * s * b * h * (1 + v / h))


@every_shape
@every_mode
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_every_difference_to_the_paper_is_explained(name, recompute, dropout):
    for kept in activations(Shape(**SHAPES[name], dropout=dropout, recompute=recompute), 2):
        assert bool(kept.why) == (kept.num_bytes != kept.paper_bytes), kept


def test_the_papers_table():
    """22B, 175B and 530B with tensor parallelism over 8: what is left of it, as the paper's section 5 has it."""
    for heads, width, saved in ((64, 6144, None), (96, 12288, 0.70), (128, 20480, 0.65)):
        of = {
            (sp, mode): megatron_activation_bytes(
                2048, width, heads, 1, tensor_parallel=8, sequence_parallel=sp, recompute=mode
            )
            for sp in (False, True)
            for mode in ("none", "selective", "full")
        }
        assert of[False, "none"] == 2048 * width * (10 + 24 / 8 + 5 * heads * 2048 / (width * 8))
        assert of[True, "none"] == pytest.approx(2048 * width * (34 + 5 * heads * 2048 / width) / 8)
        assert of[True, "selective"] == 34 * 2048 * width / 8
        assert of[False, "selective"] == 13 * 2048 * width
        assert of[False, "full"] == of[True, "full"] == 2 * 2048 * width
        if saved:  # of GPT-3 and of MT-NLG, whose 5as/h are 80 and 64
            assert 1 - of[True, "selective"] / of[True, "none"] == pytest.approx(saved, abs=0.005)


def test_what_cannot_be():
    with pytest.raises(ArgumentError, match="tensor_parallel is 0"):
        megatron_activation_bytes(8, 8, 2, 1, tensor_parallel=0)
    with pytest.raises(UnknownNameError, match="selective"):
        megatron_activation_bytes(8, 8, 2, 1, recompute="some")


def test_the_peak_names_the_layer_that_was_at_work():
    plain = measure(Shape(**SHAPES["many scores"]), 3, "float16", "phantom")[0]
    assert (plain.peak.largest, plain.peak.at) == ("activations", "loss")
    full = measure(Shape(**SHAPES["many scores"], recompute="full"), 3, "float16", "phantom")[0]
    assert full.peak.at.startswith("block2")
    layers = [moment.at for moment in plain.moments if moment.at]
    seen = list(dict.fromkeys(layers))
    assert seen[:4] == ["embedding", "block0.norm1", "block0.qkv", "block0.attention"]
    assert "block0.hidden gelu" in seen
    assert seen[-2:] == ["logits", "loss"]


def test_labels():
    model = gpt(Shape(**SHAPES["small"], recompute="full"))
    assert [label(layer) for layer in model.layers.layers[1:-1]] == ["block0", "block1"]
    assert label(TiedLinear(model.layers.layers[0].parameters[0])) == "logits"
    assert mlp(3, 4, 8, 1).layers.labels == ["embedding", "hidden0", "hidden0 gelu", "logits"]


@every_mode
def test_halves_of_backward_hold_what_is_pending(recompute):
    shape = Shape(**SHAPES["small"], recompute=recompute)
    model, ledger = gpt(shape), Ledger()
    size = model.parameters.size
    model.parameters.bind(np.zeros(size), np.zeros(size))
    with recorded(ledger):
        _, context = model.forward(np.ones((2, 8), np.uint8))
        before = ledger.now.of("activations")
        pending = model.backward_input(context, 1.0)
        assert ledger.now.of("activations") > before
        model.backward_weight(context, pending)
        del context, pending
    assert ledger.now.of("activations") == 0


def test_a_ledger_sees_most_of_what_python_allocates():
    """For orientation: beside what is held there is what operations allocate and free before they return."""
    shape = Shape(layers=4, width=64, heads=4, context=64)
    measure(shape, 8, "float32", "numpy")  # caches
    gc.collect()
    tracemalloc.start()
    try:
        ledger, _ = measure(shape, 8, "float32", "numpy")
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.6 < ledger.peak.total / allocated < 1.0


def test_what_the_first_stage_keeps_is_that_of_all_layers():
    """The 175 billion of Korthikanti et al., table 3: 96 layers on 8 stages of 3 chunks; figure 7's 1 + 7/24."""
    told = {"tensor_parallel": 8, "sequence_parallel": True, "recompute": "selective"}
    layer = megatron_activation_bytes(2048, 12288, 96, 1, **told)
    assert layer == 34 * 2048 * 12288 / 8
    assert megatron_activation_bytes(2048, 12288, 96, 1, **told, layers=96, pipeline_parallel=8) == 96 * layer
    kept = megatron_activation_bytes(2048, 12288, 96, 1, **told, layers=96, pipeline_parallel=8, chunks=3)
    assert kept == pytest.approx(96 * layer * (1 + 7 / 24), rel=1e-15)
    with pytest.raises(ArgumentError, match="chunks is 0; needs at least 1"):
        megatron_activation_bytes(8, 8, 2, 1, chunks=0)
