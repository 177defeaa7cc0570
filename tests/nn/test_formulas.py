"""The counts against the model itself, and against the figures that Megatron-LM's paper gives."""

from dataclasses import replace

import numpy as np
import pytest

from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import preset
from simdist.collectives import cost
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import Shape, gpt, published
from simdist.nn.formulas import (
    kv_cache_bytes,
    matmul_flops,
    megatron_activation_bytes,
    megatron_checkpoint_bytes,
    megatron_checkpoints,
    megatron_flops,
    megatron_outer_activation_bytes,
    megatron_parameters,
    megatron_pipeline_elements,
    megatron_tensor_elements,
    megatron_training_s,
    model_flops,
    num_active_parameters,
    num_parameters,
    training_flops,
)
from simdist.nn.functional.heads import num_pairs
from simdist.nn.layers import Gelu, Linear, Recompute, Sequence
from simdist.nn.memory import Cut, activation_bytes, paper_activation_bytes

OTHERS = [
    Shape(layers=2, width=12, heads=3, context=5, block="llama", recompute="full"),
    Shape(layers=1, width=16, heads=4, context=130, vocabulary=30, tied=False, block="llama", kv_heads=2, ffn_width=20),
    Shape(layers=1, width=12, heads=6, context=6, kv_heads=2),
    Shape(layers=1, width=8, heads=2, context=7, ffn_width=20),
    Shape(layers=2, width=10, heads=4, context=7, kv_heads=2, head_width=6, recompute="full"),
    Shape(layers=1, width=16, heads=2, context=130, block="llama", head_width=4, recompute="selective"),
    Shape(layers=1, width=8, heads=2, context=6, ffn_width=20, experts=3),
    Shape(layers=2, width=8, heads=4, context=6, block="llama", head_width=4, kv_latent_width=5, query_latent_width=3),
    Shape(layers=1, width=16, heads=4, context=130, block="llama", kv_latent_width=5, rope_width=6, flash=True),
    Shape(layers=1, width=16, heads=2, context=70, block="llama", kv_latent_width=5, recompute="selective"),
]
SHAPES = [
    Shape(layers=2, width=8, heads=2, context=5, recompute="full"),
    Shape(layers=3, width=24, heads=4, context=16, vocabulary=11, tied=False, recompute="selective"),
    Shape(layers=1, width=6, heads=1, context=7, vocabulary=100),
    Shape(layers=1, width=6, heads=2, context=130, recompute="selective"),
    Shape(layers=0, width=6, heads=2, context=3),
]
MIXTURES = [
    Shape(layers=2, width=8, heads=2, context=6, experts=4),
    Shape(layers=1, width=6, heads=1, context=12, experts=5, top_k=2, group=4, recompute="full"),
    Shape(layers=2, width=8, heads=4, context=6, experts=3, block="llama", ffn_width=10, kv_heads=2),
    Shape(layers=2, width=8, heads=2, context=6, experts=4, ffn_width=10, shared_experts=3, recompute="full"),
    Shape(layers=1, width=8, heads=2, context=6, experts=2, block="llama", ffn_width=10, shared_experts=2),
    Shape(layers=3, width=8, heads=2, context=6, experts=3, dense_layers=1, dense_ffn_width=14, recompute="full"),
    Shape(layers=3, width=8, heads=2, context=6, experts=3, block="llama", shared_experts=1, dense_layers=2),
    Shape(layers=6, width=8, heads=2, context=6, experts=3, dense_layers=1, expert_every=2, dense_ffn_width=14),
]


@pytest.mark.parametrize("shape", [*SHAPES, *OTHERS, *MIXTURES], ids=str)
def test_parameters_are_those_of_the_model(shape):
    assert gpt(shape).parameters.size == num_parameters(shape)


@pytest.mark.parametrize("shape", [*SHAPES, *OTHERS, *MIXTURES], ids=str)
def test_the_meter_counts_the_products_of_an_iteration(shape, monkeypatch):
    events = []

    def matmul(x, w, *, multiply=np.matmul, **options):
        y = multiply(x, w, **options)
        events.append(("product", 2 * y.size * x.shape[-1]))
        return y

    monkeypatch.setattr("numpy.matmul", matmul)
    monkeypatch.setattr("simdist.nn.functional.matrix.charge", lambda flops, _: events.append(("charge", flops)))
    model = gpt(shape)
    size = model.parameters.size
    model.parameters.bind(np.zeros(size), np.zeros(size))
    _, context = model.forward(np.zeros((3, shape.context + 1), np.uint8))
    model.backward(context, 1.0)
    products = [i for i, (what, _) in enumerate(events) if what == "product"]
    assert sum(events[i][1] for i in products) == matmul_flops(shape, 3)
    assert all(events[i + 1] == ("charge", events[i][1]) for i in products), "each is charged as soon as it is made"


def test_a_mixtures_idle_experts():
    """Of Mixtral, as it is told: 12.9 of 46.7 billion."""
    eight = published("mixtral-8x7b")
    two = num_active_parameters(replace(eight, experts=2))
    assert num_active_parameters(eight) == 12_879_925_248 == two + 32 * 6 * 4096


def test_models_with_shared_experts():
    """Of Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B, of 2.7 and 14.2 billion a token, but for the shared experts' gate of h
    weights a layer; and Llama 4 Scout's language model, of 17 billion a token.
    """
    for given, heads, shared, gates, size, active in (
        ((24, 2048, 16), {}, (60, 4, 1408, 4), 24 * 2048, 14_315_784_192, 2.7),
        ((28, 3584, 28), {"kv_heads": 4}, (64, 8, 2560, 8), 28 * 3584, 57_408_658_944, 14.2),
    ):
        count, top_k, inside, more = shared
        of = {"experts": count, "top_k": top_k, "ffn_width": inside, "shared_experts": more, "qkv_bias": True}
        shape = Shape(*given, 8192, 151_936, tied=False, block="llama", **heads, **of)
        assert num_parameters(shape) + gates == size
        assert num_active_parameters(shape) / 1e9 == pytest.approx(active, abs=0.05)
    scout = {"kv_heads": 8, "ffn_width": 8192, "experts": 16, "shared_experts": 1, "block": "llama"}
    shape = Shape(48, 5120, 40, 8192, 202_048, tied=False, **scout)
    assert round(num_parameters(shape) / 1e9, 1) == 107.8
    assert round(num_active_parameters(shape) / 1e9) == 17


def test_models_that_are_a_little_different():
    """Of Gemma 7B, Mistral Nemo, Qwen3 0.6B as their weights are counted; of PaLM's three as its table rounds them."""
    gemma = {"vocabulary": 256_000, "ffn_width": 24_576, "head_width": 256}
    assert num_parameters(Shape(28, 3072, 16, 8192, block="llama", **gemma)) == 8_537_680_896
    nemo = {"vocabulary": 131_072, "kv_heads": 8, "ffn_width": 14_336, "head_width": 128}
    assert num_parameters(Shape(40, 5120, 32, 4096, tied=False, block="llama", **nemo)) == 12_247_782_400
    qwen3 = {"vocabulary": 151_936, "kv_heads": 8, "head_width": 128, "qk_norm": True, "block": "llama"}
    assert num_parameters(Shape(28, 1024, 16, 8192, ffn_width=3072, **qwen3)) == 596_049_920
    for layers, width, heads, billions in ((32, 4096, 16, 8.63), (64, 8192, 32, 62.50), (118, 18_432, 48, 540.35)):
        palm = {"vocabulary": 256_000, "kv_heads": 1, "ffn_width": 4 * width, "head_width": 256}
        found = num_parameters(Shape(layers, width, heads, 2048, block="llama", **palm)) / 1e9
        assert found == pytest.approx(billions, abs=0.01)  # whose blocks have one norm, not two


def test_models_with_gpt_2s_blocks_but_no_table_of_places():
    """BLOOM, with ALiBi and a norm after the embedding, and GPT-NeoX-20B, which rotates: as their weights are counted.
    The Transformer of GPipe's table 1, whose places are sines: millions for 3 and 13 layers, billions for 103 to 1663.
    """
    bloom, neox = Shape(70, 14_336, 112, 2048, 250_880), Shape(44, 6144, 64, 2048, 50_432, tied=False)
    assert num_parameters(bloom) - 2048 * 14_336 + 2 * 14_336 == 176_247_271_424
    assert num_parameters(neox) - 2048 * 6144 == 20_554_567_680
    found = [
        num_parameters(Shape(n, 2048, 16, 1024, 32_000, tied=False)) - 1024 * 2048 for n in (3, 13, 103, 415, 1663)
    ]
    assert [round(size / 1e6, 1) for size in found[:2]] == [282.2, 785.7]  # 785.8 in the table
    assert [round(size / 1e9, 1) for size in found[2:]] == [5.3, 21.0, 83.9]


@pytest.mark.parametrize(
    ("shape", "inside"),
    [
        (published("gemma-2b"), 1_981_884_416),  # its report, table 2
        (published("gemma-7b"), 7_751_248_896),
        (Shape(12, 768, 12, 2048, 50_304, tied=False), 85_056_000),  # Pythia 160M and 410M, arXiv 2304.01373, table 1
        (Shape(24, 1024, 16, 2048, 50_304, tied=False), 302_311_424),
    ],
)
def test_parameters_without_embeddings(shape, inside):
    assert num_parameters(shape, embeddings=False) == inside


def test_active_parameters_without_embeddings():
    """Qwen3's card: 29.9 billion of 30.5, and 3.3 active."""
    qwen = published("qwen3-30b-a3b")
    assert num_parameters(qwen, embeddings=False) == pytest.approx(29.9e9, rel=0.001)
    idle = num_parameters(qwen) - num_active_parameters(qwen)
    assert num_active_parameters(qwen, embeddings=False) == num_parameters(qwen, embeddings=False) - idle


def test_a_token_meets_all_of_a_model_but_idle_experts():
    for shape in SHAPES:
        assert num_active_parameters(shape) == num_parameters(shape)
    experts = Shape(layers=3, width=8, heads=2, context=8, experts=5, top_k=2)
    routers = 3 * 8 * (5 - 2)
    assert num_active_parameters(experts) == num_parameters(replace(experts, experts=2)) + routers


def test_what_models_need_is_the_papers_of_a_gpt_and_counted_of_others():
    of_gpt = Shape(layers=3, width=24, heads=4, context=16, vocabulary=11)
    assert model_flops(of_gpt, 5) == pytest.approx(megatron_flops(3, 24, 11, 16, 5, "none"), rel=1e-14)
    full = Shape(layers=2, width=8, heads=2, context=8, experts=4, top_k=2, capacity_factor=1.0)  # no slot stays empty
    shared = replace(full, shared_experts=2)
    for shape in (*OTHERS[1:4], full, replace(full, block="llama"), shared, replace(shared, block="llama")):
        whole = replace(shape, context=60)  # of which attention scores all pairs
        assert model_flops(whole, 5) == pytest.approx(matmul_flops(whole, 5), rel=1e-14)


@pytest.mark.parametrize(("name", "gflops"), [("deepseek-v2", 155), ("deepseek-v3", 250)])
def test_a_tokens_operations_without_the_scores_that_the_mask_hides(name, gflops):
    shape = published(name)  # arXiv 2505.09343, table 2
    assert model_flops(shape, 1 / 4096, causal=True) / 1e9 == pytest.approx(gflops, abs=0.5)
    of_all_scores = matmul_flops(replace(OTHERS[2], layers=1), 1) - matmul_flops(replace(OTHERS[2], layers=0), 1)
    one, none = (model_flops(replace(OTHERS[2], layers=n), 1, causal=True) for n in (1, 0))
    assert one - none == of_all_scores - 6 * 6**2 * 12  # half of 12 s² q


@pytest.mark.parametrize(
    ("layers", "width", "sequences", "gpus", "seconds", "mfu"),
    [
        (96, 18_432, 768, 1536, 10.3, 42.4),
        (96, 18_432, 2304, 6144, 8.0, 41.0),
        (32, 6144, 384, 768, 0.57, 34.3),
        (32, 6144, 1152, 2304, 0.64, 30.5),
    ],
)
def test_utilisations_of_models_whose_heads_share_keys(layers, width, sequences, gpus, seconds, mfu):
    """Nemotron-4 340B and 15B on H100s: arXiv 2406.11704 and 2402.16819. Their seconds are rounded."""
    heads = width // 192 if layers == 96 else width // 128
    flops = model_flops(Shape(layers, width, heads, 4096, 256_000, kv_heads=8, tied=False), sequences)
    half_a_digit = 0.005 if seconds < 1 else 0.05
    percent = 100 * flops / (seconds * gpus * 989.4e12)
    assert percent == pytest.approx(mfu, abs=0.05 + half_a_digit / seconds * mfu)


@pytest.mark.parametrize(("causal", "tflops"), [(True, 385), (False, 432)])
def test_what_deepseeks_devices_did(causal, tflops):
    """arXiv 2505.09343, table 4: 272.8 billion tokens a day on 2048 H800."""
    flops = model_flops(published("deepseek-v3"), 272.8e9 / 4096, causal)
    assert flops / 86_400 / 2048 / 1e12 == pytest.approx(tflops, rel=0.004)


def test_what_latent_attention_saves():
    """DeepSeek-V2's report: 4.5 widths of a head for a token and layer; with 6 bits an item 93.3% less than its 67B."""
    latent = published("deepseek-v2")
    grouped = Shape(95, 8192, 64, 4096, 102_400, kv_heads=8, block="llama", ffn_width=22_016, tied=False)
    assert kv_cache_bytes(latent) == 2 * 4.5 * 128 * latent.layers
    assert round(1 - kv_cache_bytes(latent, item_bytes=6 / 8) / kv_cache_bytes(grouped), 3) == 0.933


@pytest.mark.parametrize(
    ("name", "num_bytes"), [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama3-405b", 516_096)]
)
def test_a_tokens_keys_and_values(name, num_bytes):
    assert kv_cache_bytes(published(name)) == num_bytes  # arXiv 2505.09343, table 1
    assert kv_cache_bytes(published(name), tokens=100, item_bytes=1) == 50 * num_bytes


@pytest.mark.parametrize(
    ("name", "tokens", "item_bytes", "num_bytes", "rel"),
    [
        ("opt-13b", 1, 2, 800 * 1024, 0),  # PagedAttention, arXiv 2309.06180, section 1
        ("opt-30b", 128 * 1024, 2, 180e9, 0.01),  # H2O, arXiv 2306.14048: 128 texts of 1024 tokens
        ("llama3-70b", 1, 1, 160 * 1024, 0),  # How to Scale Your Model, chapter 8
        ("llama2-13b", 8192, 2, 6.7e9, 0.01),  # the same, chapter 7
        ("opt-175b", 512 * 544, 2, 1.2 * 2**40, 0.01),  # FlexGen, arXiv 2303.06865, section 3
        ("llama-65b", 2**17, 2, 320 * 2**30, 0),  # KVQuant, arXiv 2401.18079
    ],
)
def test_more_keys_and_values(name, tokens, item_bytes, num_bytes, rel):
    assert kv_cache_bytes(published(name), tokens, item_bytes) == pytest.approx(num_bytes, rel=rel)


def test_windows_keep_fewer_keys_and_values():
    mistral, gemma = published("mistral-7b"), published("gemma3-27b")
    assert kv_cache_bytes(mistral, 32_768) / kv_cache_bytes(mistral, 32_768, window=4096) == 8  # arXiv 2310.06825
    assert kv_cache_bytes(mistral, 100, window=4096) == kv_cache_bytes(mistral, 100)
    whole = [layer % 6 == 5 for layer in range(62)]  # its config.json: five of these, then one of those
    kept = sum(32_768 if all_tokens else 1024 for all_tokens in whole)
    near = kv_cache_bytes(gemma, 32_768, window=1024, whole_every=6)
    assert near == kept * kv_cache_bytes(gemma) / 62


@pytest.mark.parametrize(
    ("heads", "head_width", "texts", "tokens", "rel"),
    [(1, 256, 128, 43_000, 0.01), (1, 256, 512, 10_700, 0.01), (64, 128, 128, 1320, 0.02), (64, 128, 512, 330, 0.02)],
)
def test_how_long_texts_may_be(heads, head_width, texts, tokens, rel):
    """arXiv 2211.05102, table 1: PaLM 540B, whose heads share keys, and with 64 smaller heads that do not, on 64 TPU v4
    with 30% of their memory for the cache.
    """
    palm = replace(published("palm-540b"), kv_heads=heads, heads=max(heads, 48), head_width=head_width)
    assert 0.3 * 64 * 32 * 2**30 / texts / kv_cache_bytes(palm) == pytest.approx(tokens, rel=rel)


def test_layers_share_keys_and_values():
    """Hunyuan-Large, arXiv 2411.02265: 2 n d l bytes a token of n groups' keys; in all 95% less."""
    whole = Shape(64, 6400, 80, 4096, 128_000, head_width=128, block="llama", ffn_width=18_304)
    grouped = replace(whole, kv_heads=8)
    assert kv_cache_bytes(grouped, sharing=2) == 2 * 8 * 128 * 64
    assert 1 - kv_cache_bytes(grouped, sharing=2) / kv_cache_bytes(whole) == pytest.approx(0.95)
    with pytest.raises(ArgumentError, match="sharing is 0.5; needs at least 1"):
        kv_cache_bytes(whole, sharing=0.5)


@pytest.mark.parametrize("cut", [1, 2])
def test_outside_its_layers_a_model_keeps_what_megatrons_paper_says(cut):
    shape = Shape(layers=3, width=24, heads=4, context=16, vocabulary=12)
    sizes = {"context": 16, "width": 24, "sequences": 5, "vocabulary": 12, "tensor_parallel": cut}
    ours = paper_activation_bytes(shape, 5, cut=Cut(cut, cut > 1))[1]
    assert megatron_outer_activation_bytes(**sizes) == ours
    assert megatron_outer_activation_bytes(**sizes, pipeline_parallel=3) == 3 * 16 * 5 * 24 / cut
    with pytest.raises(ArgumentError, match="tensor_parallel is 0; needs at least 1"):
        megatron_outer_activation_bytes(**sizes | {"tensor_parallel": 0})


def test_what_megatrons_own_estimate_keeps_of_other_mlps():
    """sbh (18 + 4f/h) / t in its theoretical_memory_usage.py, with sequence parallelism and selective recomputation."""
    llama = published("llama2-7b")
    sizes = {"context": 4096, "width": 4096, "heads": 32, "sequences": 2, "layers": 32, "tensor_parallel": 2}
    cut = sizes | {"sequence_parallel": True, "recompute": "selective"}
    kept = megatron_activation_bytes(**cut, ffn_width=llama.ffn_features)
    assert kept == pytest.approx(32 * 2 * 4096**2 * (18 + 4 * 11_008 / 4096) / 2)
    assert megatron_activation_bytes(**cut, ffn_width=4 * 4096) == megatron_activation_bytes(**cut)
    assert megatron_activation_bytes(**sizes, ffn_width=4 * 4096) == megatron_activation_bytes(**sizes)
    ours = [activation_bytes(Shape(1, 8, 2, 16, ffn_width=f), 3) for f in (20, 32)]  # which a ledger counts, too
    theirs = [megatron_activation_bytes(16, 8, 2, 3, ffn_width=f) for f in (20, 32)]
    assert ours[1] - ours[0] == theirs[1] - theirs[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_megatrons_parameters_are_this_models_but_for_the_last_norm_and_untied_logits(shape):
    counted = megatron_parameters(shape.layers, shape.width, shape.vocabulary, shape.context)
    untied = 0 if shape.tied else shape.vocabulary * shape.width
    assert num_parameters(shape) - 2 * shape.width - untied == round(counted)
    assert counted == pytest.approx(round(counted), abs=1e-6)


@pytest.mark.parametrize("layers", [0, 2])  # without blocks, too, there are logits
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_megatrons_operations_are_this_models(recompute, layers):
    shape = replace(SHAPES[0], recompute=recompute, layers=layers)
    sizes = shape.layers, shape.width, shape.vocabulary, shape.context
    assert megatron_flops(*sizes, 4, recompute) == pytest.approx(matmul_flops(shape, 4), rel=1e-14)


@pytest.mark.parametrize(
    ("tokens", "pairs"),
    [(1, 1), (64, 64**2), (128, 64**2 * 3), (130, 64**2 * 3 + 2 * 130), (256, 64**2 * 10), (4096, 512**2 * 36)],
)
def test_no_more_scores_than_tiles_hold(tokens, pairs):
    assert num_pairs(tokens) == pairs


@pytest.mark.parametrize(
    ("billions", "width", "layers"),
    [
        (1.7, 2304, 24),
        (3.6, 3072, 30),
        (7.5, 4096, 36),
        (18.4, 6144, 40),
        (39.1, 8192, 48),
        (76.1, 10240, 60),
        (145.6, 12288, 80),
        (310.1, 16384, 96),
        (529.6, 20480, 105),
        (1008.0, 25600, 128),
    ],
)
def test_the_papers_table(billions, width, layers):
    assert round(megatron_parameters(layers, width, 51200, 2048) / 1e9, 1) == billions


@pytest.mark.parametrize(
    ("parameters", "layers", "width"),
    [(124_439_808, 12, 768), (354_823_168, 24, 1024), (774_030_080, 36, 1280), (1_557_611_200, 48, 1600)],
)
def test_gpt_2_as_published(parameters, layers, width):
    assert num_parameters(Shape(layers, width, width // 64, 1024, vocabulary=50257)) == parameters


@pytest.mark.parametrize(
    ("layers", "width", "gpus", "sequences", "seconds", "mfu", "hfu"),
    [
        (48, 6144, 8, 4, 1.10, 41.5, 43.7),
        (96, 12288, 64, 64, 13.75, 51.4, 52.8),
        (105, 20480, 280, 280, 37.83, 56.0, 57.0),
        (128, 25600, 512, 512, 71.49, 56.3, 57.0),
    ],
)
def test_the_table_of_utilisation(layers, width, gpus, sequences, seconds, mfu, hfu):
    """Of A100s with selective recomputation; the seconds are rounded, by half a per cent at 1.10."""
    for recompute, percent in (("none", mfu), ("selective", hfu)):
        flops = megatron_flops(layers, width, 51200, 2048, sequences, recompute)
        assert 100 * flops / (seconds * gpus * 312e12) == pytest.approx(percent, abs=0.05 + 0.005 / seconds * percent)


@pytest.mark.parametrize(
    ("billions", "tokens", "gpus", "tflops", "days"), [(175, 300e9, 1024, 140, 34), (1008, 450e9, 3072, 163, 84)]
)
def test_the_days_that_training_takes(billions, tokens, gpus, tflops, days):
    assert round(megatron_training_s(billions * 1e9, tokens, gpus * tflops * 1e12) / 86400) == days


@pytest.mark.parametrize(
    ("layers", "width", "gpus", "tflops", "days"),
    [
        (96, 12_288, 384, 153, 84),
        (96, 12_288, 768, 149, 43),
        (96, 12_288, 1536, 141, 23),
        (105, 20_480, 560, 171, 156),
        (105, 20_480, 1120, 167, 80),
        (105, 20_480, 2240, 159, 42),
    ],
)
def test_the_days_of_the_papers_table_are_of_all_operations(layers, width, gpus, tflops, days):
    """arXiv 2104.04473, table 2, pipelines and tensor parallelism: 300 billion tokens."""
    flops = megatron_flops(layers, width, 51200, 2048, 300e9 / 2048)
    assert flops / (gpus * tflops * 1e12) / 86400 == pytest.approx(days, abs=0.5 + 0.5 / tflops * days)


@pytest.mark.parametrize(
    ("sequences", "gpus", "seconds", "mfu"),
    [(768, 256, 40.0, 53.0), (768, 1024, 11.9, 44.7), (6144, 3072, 29.02, 48.7), (6144, 12_288, 8.57, 41.2)],
)
def test_megatrons_utilisation_on_many_devices(sequences, gpus, seconds, mfu):
    """Of 175B on A100s: in arXiv 2402.15627, beside MegaScale, which has other blocks and windows of attention."""
    flops = megatron_flops(96, 12_288, 64_000, 2048, sequences, "none")
    assert 100 * flops / (seconds * gpus * 312e12) == pytest.approx(mfu, abs=0.25)


@pytest.mark.parametrize(
    ("billions", "tokens_per_s", "attention", "flops_per_s", "without", "mfu"),
    [
        (
            540.35,
            238.3e3,
            (118, 48 * 256, 2048),
            6144 * 275e12,
            45.7,
            46.2,
        ),  # PaLM, whose heads are less than its width
        (529.6, 65.43e3, (105, 20480, 2048), 2240 * 312e12, 29.7, 30.2),  # MT-NLG
    ],
)
def test_palms_utilisations(billions, tokens_per_s, attention, flops_per_s, without, mfu):
    assert 100 * training_flops(billions * 1e9, tokens_per_s) / flops_per_s == pytest.approx(without, abs=0.05)
    assert 100 * training_flops(billions * 1e9, tokens_per_s, *attention) / flops_per_s == pytest.approx(mfu, abs=0.05)


@pytest.mark.parametrize(
    ("billions", "tokens", "flops"),
    [(174.6, 300e9, 3.14e23), (70, 1.4e12, 5.88e23), (405, 15.6e12, 3.8e25)],  # GPT-3, Chinchilla, Llama 3
)
def test_the_operations_that_trainings_took(billions, tokens, flops):
    assert training_flops(billions * 1e9, tokens) == pytest.approx(flops, rel=0.005)


@pytest.mark.parametrize(
    ("billions", "tokens", "attention", "flops"),
    [
        (8.63, 780e9, (32, 4096, 2048), 4.29e22),  # PaLM, arXiv 2204.02311
        (62.5, 795e9, (64, 8192, 2048), 3.08e23),
        (540.35, 780e9, (118, 48 * 256, 2048), 2.56e24),
        (7, 1.5e12, (), 730 * 8.64e19),  # Falcon, arXiv 2311.16867, in petaflop-days
        (40, 1e12, (), 2800 * 8.64e19),
        (180, 3.5e12, (), 43_500 * 8.64e19),
    ],
)
def test_the_operations_of_palm_and_falcon(billions, tokens, attention, flops):
    assert training_flops(billions * 1e9, tokens, *attention) == pytest.approx(flops, rel=0.01)


def test_bloomberg_gpt():
    """arXiv 2303.17564: with ALiBi and a norm after the embedding; 569 billion tokens, with full recomputation."""
    assert num_parameters(Shape(70, 7680, 40, 2048, 131_072)) - 2048 * 7680 + 2 * 7680 == 50_558_868_480
    assert megatron_flops(70, 7680, 131_072, 2048, 569e9 / 2048) == pytest.approx(2.36e23, rel=0.02)


@pytest.mark.parametrize(
    ("millions", "days"),
    [(125, 2.60), (356, 7.42), (760, 15.8), (1320, 27.5), (2650, 55.2), (6660, 139), (12_850, 268), (174_600, 3640)],
)
def test_the_petaflop_days_of_gpt_3(millions, days):
    """arXiv 2005.14165, table D.1: 300 billion tokens."""
    assert training_flops(millions * 1e6, 300e9) / (1e15 * 86_400) == pytest.approx(days, rel=0.003)


@pytest.mark.parametrize(
    ("billions", "tokens", "flops"),
    [
        (0.4, 8.0e9, 1.92e19),
        (1, 20.2e9, 1.21e20),
        (10, 205.1e9, 1.23e22),
        (175, 3.7e12, 3.85e24),
        (280, 5.9e12, 9.90e24),
        (520, 11.0e12, 3.43e25),
        (1000, 21.2e12, 1.27e26),
    ],
)
def test_the_operations_that_chinchilla_would_have_larger_models_take(billions, tokens, flops):
    """arXiv 2203.15556, table 3, whose tokens are rounded."""
    assert training_flops(billions * 1e9, tokens) == pytest.approx(flops, rel=0.01)


def test_days_of_llama_3_70b_on_a_pod():
    """How to Scale Your Model, chapter 6: 15 trillion tokens on a pod of TPU v5p at 40% of its peak."""
    flops = training_flops(70e9, 15e12)
    assert flops == pytest.approx(6.3e24)
    pod = preset("tpu-v5p")
    assert round(flops / (0.4 * pod.devices_per_node * pod.device.flops_per_s) / 86_400) == 44


@pytest.mark.parametrize(
    ("name", "tokens_per_s", "tflops", "days"),
    [
        ("gpt3-175b", 726, 782, 156),
        ("gpt3-175b", 782, 842, 145),
        ("llama2-7b", 16_847, 776, 7),
        ("llama2-13b", 8646, 754, 13),
        ("llama2-70b", 1707, 759, 66),
        ("llama3-8b", 12_036, 697, 9),
        ("llama3-70b", 1533, 738, 74),
        (Shape(24, 4096, 32, 2048, 51_200), 22_521, 736, 5),
        (Shape(44, 6144, 48, 2048, 51_200), 5851, 750, 19),
        (Shape(32, 4096, 32, 4096, 256_000, tied=False), 12_701, 653, 9),
        (Shape(40, 6144, 48, 4096, 256_000, tied=False), 4256, 554, None),
        (Shape(96, 18_432, 96, 4096, 256_000, kv_heads=8, tied=False), 322, 678, 351),
    ],
)
def test_what_nvidias_devices_did(name, tokens_per_s, tflops, days):
    """NeMo's summary of its performance, 24.07, on H100s: a second, and days for 10 trillion tokens on 1,024."""
    shape = published(name) if isinstance(name, str) else name
    found = model_flops(shape, tokens_per_s / shape.context) / 1e12
    assert found == pytest.approx(tflops, abs=0.6 + 0.5 / tokens_per_s * tflops)
    if days:
        assert 10e12 / (1024 * tokens_per_s) / 86_400 == pytest.approx(days, abs=0.5)


@pytest.mark.parametrize(
    ("name", "context", "tokens_per_s", "tflops"),
    [
        ("llama3-8b", 8192, 37_556, 1933),
        ("llama3-70b", 8192, 4520, 2030),
        ("llama3-405b", 8192, 999, 2522),
        ("deepseek-v3", 4096, 3848, 961),
        ("qwen3-30b-a3b", 4096, 28_934, 666),
        ("qwen3-235b-a22b", 4096, 6131, 907),
    ],
)
def test_what_nvidias_devices_did_without_masked_scores(name, context, tokens_per_s, tflops):
    """Megatron Bridge's summary of performance, 25.11, on GB300s; of gpt-oss it has a third less for the experts."""
    shape = replace(published(name), context=context)
    assert model_flops(shape, tokens_per_s / context, causal=True) / 1e12 == pytest.approx(tflops, rel=0.003)


@pytest.mark.parametrize(
    ("layers", "width", "context", "devices", "tokens_per_s", "weights", "mfu"),
    [
        (80, 8192, 2048, 64, 66_523, 64_862_437_376, 42.57),
        (48, 7168, 8192, 8, 11_072, 30_019_254_272, 29.92),
        (48, 7168, 2048, 32, 73_860, 29_975_214_080, 43.92),
        (40, 5120, 32_768, 8, 15_812, 13_011_240_960, 31.68),
        (40, 5120, 4096, 8, 37_740, 12_864_440_320, 41.60),
        (32, 4096, 65_536, 8, 15_654, 6_918_905_856, 28.59),
        (32, 4096, 2048, 8, 85_144, 6_658_859_008, 46.44),
        (32, 2560, 65_536, 8, 26_099, 2_814_366_720, 26.81),
        (24, 2048, 65_536, 8, 44_050, 1_445_974_016, 26.34),
        (24, 1536, 512, 8, 669_998, 758_111_232, 40.42),
    ],
)
def test_utilisations_of_mpt(layers, width, context, devices, tokens_per_s, weights, mfu):
    """MosaicML's LLM Foundry, scripts/train/benchmarking, H100s."""
    assert num_parameters(Shape(layers, width, width // 128, context, 50_368)) == weights
    flops = training_flops(weights, tokens_per_s, layers, width, context)
    assert 100 * flops / (devices * preset("h100").device.flops_per_s) == pytest.approx(mfu, abs=0.011)


@pytest.mark.parametrize(
    ("name", "context", "tokens_per_s", "tflops"),
    [
        ("llama3-8b", 8192, 37_556, 1933),
        ("llama3-8b", 8192, 14_451, 744),
        ("llama3-70b", 8192, 4520, 2030),
        ("llama3-70b", 8192, 1602, 719),
        ("llama3-405b", 8192, 999, 2522),
        ("llama3-405b", 8192, 292, 737),
        ("deepseek-v3", 4096, 3848, 961),
        ("deepseek-v3", 4096, 4357, 1088),
        ("qwen3-30b-a3b", 4096, 28_934, 666),
        ("qwen3-30b-a3b", 4096, 5275, 121),
        ("qwen3-235b-a22b", 4096, 6131, 907),
        ("qwen3-235b-a22b", 4096, 4916, 728),
    ],
)
def test_what_nvidias_devices_did_without_the_scores_that_the_mask_hides(name, context, tokens_per_s, tflops):
    """The performance summary of Megatron Bridge, 25.11, on GB300, GB200 and H100."""
    found = model_flops(replace(published(name), context=context), tokens_per_s / context, causal=True)
    assert found / 1e12 == pytest.approx(tflops, abs=0.5 + 0.004 * tflops)


@pytest.mark.parametrize(
    ("name", "tokens_per_s", "mfu"),
    [
        ("llama3-8b", 2904, 56.8),
        ("llama3-8b", 2973, 58.2),
        ("llama3-70b", 331, 51.7),
        ("llama2-13b", 2162, 61.1),
        ("llama2-13b", 1914, 54.1),
        ("llama2-70b", 355, 50.8),
        ("llama2-70b", 353, 50.5),
    ],
)
def test_utilisations_of_torchtitan(name, tokens_per_s, mfu):
    """Its docs/performance.md of 2024, on A100s, with the embedding among the parameters."""
    shape = published(name)
    attention = shape.layers, shape.query_width, shape.context
    flops = training_flops(num_parameters(shape), tokens_per_s, *attention)
    assert 100 * flops / preset("a100").device.flops_per_s == pytest.approx(mfu, abs=0.1)


@pytest.mark.parametrize(("nodes", "seconds", "tflops"), [(280, 60.1, 126), (350, 50.2, 121), (420, 44.4, 113)])
def test_what_the_devices_of_mt_nlg_did(nodes, seconds, tflops):
    """arXiv 2201.11990, section 2.3: 1920 sequences, with full recomputation."""
    flops = megatron_flops(105, 20_480, 51_200, 2048, 1920)
    assert flops / (8 * nodes * seconds) / 1e12 == pytest.approx(tflops, abs=0.7)


def test_days_and_utilisation_of_tinyllama():
    """Its page: 24 thousand tokens a second and A100, 56% of the peak; 3 trillion in 90 days on 16 of them."""
    flops = model_flops(published("tinyllama-1.1b"), 24e3 / 2048)
    assert round(100 * flops / preset("a100").device.flops_per_s) == 56
    days = 3e12 / (16 * 24e3) / 86_400
    assert round(days) == 90


def test_shares_that_selective_recomputation_saves_and_costs():
    """arXiv 2205.05198, section 5, of GPT-3 and MT-NLG: 70% and 65% of the activations, for 2.7% and 1.6% more work."""
    for layers, width, heads, saved, more in ((96, 12_288, 96, 0.70, 0.027), (105, 20_480, 128, 0.65, 0.016)):
        kept = [megatron_activation_bytes(2048, width, heads, 1, recompute=r) for r in ("none", "selective")]
        work = [megatron_flops(layers, width, 51_200, 2048, 1, r) for r in ("none", "selective")]
        assert 1 - kept[1] / kept[0] == pytest.approx(saved, abs=0.005)
        assert work[1] / work[0] - 1 == pytest.approx(more, abs=0.0005)


def test_training_takes_what_megatron_counts_for_the_model():
    """But for places, biases and norms, which are in no product of matrices."""
    layers, h, v, s = 4, 4096, 51200, 512
    counted = training_flops(12 * layers * h**2 + v * h, 3 * s, layers, h, s)
    assert counted == pytest.approx(megatron_flops(layers, h, v, s, 3, "none"), rel=1e-14)


def test_an_unknown_recomputation():
    with pytest.raises(UnknownNameError, match="'some'.*selective"):
        megatron_flops(1, 8, 8, 8, 1, "some")
    with pytest.raises(UnknownNameError, match="'some'.*selective"):
        megatron_tensor_elements(8, 8, 1, 2, "some")


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_what_a_layer_sends_is_four_all_reduces(t):
    """Of bsh elements each, by the ring."""
    b, s, h = 2, 64, 128
    sent = cost("all_reduce", "ring", ranks=t, num_bytes=b * s * h).sent_bytes
    assert megatron_tensor_elements(h, s, b, t) == megatron_tensor_elements(h, s, b, t, "selective") == 4 * sent
    assert megatron_tensor_elements(h, s, b, t, "full") == 6 * sent


def test_what_a_stage_sends():
    b, s, h = 2, 64, 128
    assert megatron_pipeline_elements(h, s, b) == b * s * h
    assert megatron_pipeline_elements(h, s, b, 8, 4) == 4 * b * s * h / 8
    with pytest.raises(ArgumentError, match="chunks is 0"):
        megatron_pipeline_elements(h, s, b, chunks=0)


def test_numbers_below_their_limits():
    with pytest.raises(ArgumentError, match="tensor_parallel is 0"):
        megatron_tensor_elements(8, 8, 1, 0)
    with pytest.raises(ArgumentError, match="flops_per_s is 0"):
        megatron_training_s(1e9, 1e9, 0)


# -- checkpoints -------------------------------------------------------------------------------------


def held_with(checkpoints, layers, width, tokens):
    """The most activations held by this many runs of MLPs, each of which keeps only its input."""
    mlps = [
        Sequence([Linear(f"in{i}", width, 4 * width), Gelu(), Linear(f"out{i}", 4 * width, width)])
        for i in range(layers)
    ]
    each = layers // checkpoints
    runs = Sequence(Recompute(Sequence(mlps[i : i + each])) for i in range(0, layers, each))
    for parameter in runs.parameters:
        parameter.data, parameter.gradient = (phantom(parameter.shape, np.float32) for _ in range(2))
    ledger = Ledger()
    with recorded(ledger):
        y, context = runs.forward(phantom((tokens, width), np.float32))
        runs.backward(context, y)
    return ledger.peaks["activations"]


def test_with_the_root_of_the_layers_as_checkpoints_the_least_is_held():
    layers, width, tokens = 36, 8, 5
    input_bytes = 4 * tokens * width
    layer_bytes = 9 * input_bytes  # a linear map keeps its input, Gelu its own, four times as wide, as its output is
    counts = [c for c in range(1, layers + 1) if layers % c == 0]
    held = {c: held_with(c, layers, width, tokens) for c in counts}
    for c in counts:  # the input of the first layer of a run is that of the run: it is there once
        assert held[c] == megatron_checkpoint_bytes(layers, c, input_bytes, layer_bytes) - input_bytes
    best = megatron_checkpoints(layers, input_bytes, layer_bytes)
    assert best == 18 == min(held, key=held.get)
    assert megatron_checkpoint_bytes(layers, best, input_bytes, layer_bytes) == 2 * best * input_bytes
    assert megatron_checkpoints(100, 7, 7) == 10  # the root, if a layer keeps no more than its input


def test_without_a_checkpoint_or_an_input_there_is_nothing_to_count():
    with pytest.raises(ArgumentError, match="checkpoints is 0; needs at least 1"):
        megatron_checkpoint_bytes(4, 0, 1, 1)
    with pytest.raises(ArgumentError, match="input_bytes is 0; needs more than 0"):
        megatron_checkpoints(4, 0, 1)
