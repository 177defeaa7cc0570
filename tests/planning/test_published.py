"""Steps that were measured on real machines, and what plans say of them with two numbers for all: what share of the
rates of arithmetic and of memory programs reached. They were chosen for the eight times of Korthikanti et al., and
not for those of Narayanan et al., whose programs were older; on H100s for those of Llama 3 and of MosaicML."""

from dataclasses import replace

import pytest

from simdist.cluster import preset
from simdist.nn.formulas import megatron_flops, model_flops
from simdist.planning import Workbench, planned, search
from simdist.training import Config
from simdist.training.models import shape

A100 = preset("a100")
REACHED = A100.with_(device=replace(A100.device, flops_efficiency=0.85, memory_efficiency=0.5))
H100 = preset("h100")
H100_REACHED = H100.with_(device=replace(H100.device, flops_efficiency=0.6, memory_efficiency=0.4))
GPT = {"model": "gpt", "precision": "bf16", "context_bytes": 2048, "vocabulary": 51200}
FULL = {"recompute": "full"}
SELECTIVE = {"recompute": "selective", "sequence_parallel": True}


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("layers", "width", "heads", "pp", "chunks", "batch", "micro_batch", "full_s", "selective_s"),
    [
        (48, 6144, 64, 1, None, 4, 4, 1.42, 1.10),  # 22B parameters
        (96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75),  # 175B
        (105, 20480, 128, 35, 3, 280, 1, 49.05, 37.83),  # 530B
        (128, 25600, 160, 64, None, 512, 1, 94.42, 71.49),  # 1T
    ],
)
def test_korthikanti_et_al(layers, width, heads, pp, chunks, batch, micro_batch, full_s, selective_s):
    """arXiv 2205.05198, tables 3 and 5: tensor parallelism of 8, no data parallelism."""
    line = {"pp": pp, "micro_batches": batch // micro_batch} if pp > 1 else {}
    line |= {"schedule": "interleaved-1f1b", "chunks": chunks} if chunks else {}
    size = GPT | {"layers": layers, "width": width, "heads": heads, "tp": 8, "global_batch_size": batch}
    bench = Workbench(REACHED, 8 * pp)
    for memory, measured_s in ((FULL, full_s), (SELECTIVE, selective_s)):
        plan = planned(Config(**size, **line, **memory, device="phantom"), bench)
        assert plan.step.seconds == pytest.approx(measured_s, rel=0.07), memory
        assert plan.num_bytes < REACHED.device.memory_bytes, "as it did there"


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("layers", "width", "heads", "tp", "ranks", "batch", "tflops"),
    [
        (24, 2304, 24, 1, 32, 512, 137),  # 1.7B parameters
        (30, 3072, 32, 2, 64, 512, 138),  # 3.6B
        (36, 4096, 32, 4, 128, 512, 142),  # 7.5B
        (40, 6144, 48, 8, 256, 1024, 135),  # 18.4B
    ],
)
def test_narayanan_et_al(layers, width, heads, tp, ranks, batch, tflops):
    """arXiv 2104.04473, table 1, which leaves the size of micro-batches open."""
    given = {"layers": layers, "width": width, "heads": heads, "tp": tp, "dp": ranks // tp, "zero": 0}
    given |= {"global_batch_size": batch, "sequence_parallel": False, **FULL}
    (best,) = search(GPT | given, Workbench(REACHED, ranks)).best
    flops = megatron_flops(layers, width, 51200, 2048, batch, "full") / ranks / best.step.seconds
    assert 1 < flops / 1e12 / tflops < 1.2


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("layers", "width", "heads", "pp", "ranks", "batch", "tflops"),
    [
        (48, 8192, 64, 2, 512, 1536, 138),  # 39.1B parameters
        (60, 10240, 80, 4, 1024, 1792, 140),  # 76.1B
        (80, 12288, 96, 8, 1536, 2304, 148),  # 145.6B
        (96, 16384, 128, 16, 1920, 2160, 155),  # 310.1B
        (105, 20480, 128, 35, 2520, 2520, 163),  # 529.6B
        (128, 25600, 160, 64, 3072, 3072, 163),  # 1008B
        (96, 12288, 96, 12, 384, 1536, 153),  # 174.6B; this and what follows are of table 2
        (96, 12288, 96, 12, 768, 1536, 149),
        (96, 12288, 96, 12, 1536, 1536, 141),
        (105, 20480, 128, 35, 560, 2240, 171),  # 529.6B
        (105, 20480, 128, 35, 1120, 2240, 167),
        (105, 20480, 128, 35, 2240, 2240, 159),
    ],
)
def test_narayanan_et_al_in_pipelines(layers, width, heads, pp, ranks, batch, tflops):
    """The same, tensor parallelism of 8; as 1F1B of micro-batches of one sequence, as in table 2. The
    schedule is not told."""
    size = {"layers": layers, "width": width, "heads": heads, "tp": 8, "pp": pp, "dp": ranks // 8 // pp}
    size |= {"global_batch_size": batch, "micro_batches": batch // (ranks // 8 // pp), **FULL}
    plan = planned(Config(**GPT | size, device="phantom"), Workbench(REACHED, ranks))
    flops = megatron_flops(layers, width, 51200, 2048, batch, "full") / ranks / plan.step.seconds
    assert flops / 1e12 == pytest.approx(tflops, rel=0.07)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(("dp", "measured_s"), [(8, 60.1), (10, 50.2), (12, 44.4)])
def test_megatron_turing_nlg(dp, measured_s):
    """arXiv 2201.11990, section 2.3: 126 to 113 TFLOP/s, where Megatron-LM's own pipeline reached 159 (above)."""
    size = {"layers": 105, "width": 20480, "heads": 128, "tp": 8, "pp": 35, "dp": dp}
    size |= {"global_batch_size": 1920, "micro_batches": 1920 // dp, **FULL}
    plan = planned(Config(**GPT | size, device="phantom"), Workbench(REACHED, 280 * dp))
    assert 1.28 < measured_s / plan.step.seconds < 1.35


@pytest.mark.slow(but=1)
def test_bloom():
    """arXiv 2211.05100, section 3.2: 156 TFLOP/s in the fastest configuration, and about 150 while it was trained, on
    DeepSpeed's pipeline, too; each node had four links of Omni-Path, of 100 Gb/s."""
    jean_zay = REACHED.with_(between=replace(REACHED.between, bytes_per_s=12.5e9), nics_per_node=4)
    mesh = {"tp": 4, "pp": 12, "dp": 8, "zero": 1, "schedule": "1f1b", "micro_batches": 128, **FULL}
    config = Config(model="bloom-176b", precision="bf16", global_batch_size=2048, **mesh, device="phantom")
    plan = planned(config, Workbench(jean_zay, 384))
    bloom = shape(config)
    flops = megatron_flops(bloom.layers, bloom.width, bloom.vocabulary, bloom.context, 2048) / 384 / plan.step.seconds
    assert 1.2 < flops / 150e12 < 1.24


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("model", "card", "ranks", "how", "batch", "tflops", "ratio"),
    [
        ("gpt-neox-20b", "a100-40", 96, {"tp": 2, "pp": 4, "zero": 1, "micro_batches": 32}, 1536, 117, 1.36),
        ("opt-175b", "a100", 992, {"tp": 8, "zero": 3}, 992, 147, 1.24),
    ],
)
def test_gpt_neox_and_opt(model, card, ranks, how, batch, tflops, ratio):
    """arXiv 2204.06745, on DeepSpeed's pipeline, batches of 3.15 million tokens; and 2205.01068, by FSDP with tensor
    parallelism, of two million. Both count full recomputation among the operations.
    """
    config = Config(model=model, precision="bf16", global_batch_size=batch, **how, **FULL, device="phantom")
    cluster = preset(card)
    device = replace(cluster.device, flops_efficiency=0.85, memory_efficiency=0.5)
    plan = planned(config, Workbench(cluster.with_(device=device), ranks))
    assert plan.num_bytes < device.memory_bytes, "as it did there"
    size = shape(config)
    flops = megatron_flops(size.layers, size.width, size.vocabulary, size.context, batch) / ranks / plan.step.seconds
    assert flops / 1e12 / tflops == pytest.approx(ratio, abs=0.01)


def llama_3(ranks, cluster=H100, **more):
    """The plan of 405B on H100s, at their peak if not given, and TFLOP/s a device."""
    size = {"block": "llama", "layers": 126, "width": 16384, "heads": 128, "kv_heads": 8, "ffn_width": 53248}
    size |= {"context_bytes": 8192, "vocabulary": 128_256, "logits": "untied", "global_batch_size": 2048}
    mesh = {"tp": 8, "sequence_parallel": True, "pp": 16, "dp": ranks // 128, "micro_batches": 2048 // (ranks // 128)}
    config = Config(**GPT | size | mesh, zero=1, device="phantom", **more)
    plan = planned(config, Workbench(cluster, ranks))
    return plan.num_bytes, model_flops(shape(config), 2048) / plan.step.seconds / ranks / 1e12


def test_llama_3():
    """arXiv 2407.21783, table 4: 430 TFLOP/s a device on 8,192 of them, and 400 on 16,384, without recomputation."""
    devices_have = H100.device.memory_bytes
    assert llama_3(16384, schedule="1f1b")[0] > 2 * devices_have, "if all probabilities were kept"
    assert llama_3(16384, schedule="1f1b", flash_attention=True)[0] < devices_have
    few, many = (llama_3(p, schedule="interleaved-1f1b", chunks=8, flash_attention=True)[1] for p in (8192, 16384))
    assert many / few == pytest.approx(400 / 430, rel=0.03), "half as many micro-batches, the same pipeline"
    assert 1.5 < few / 430 < 1.6
    for ranks, tflops in ((8192, 430), (16384, 400)):
        reached = llama_3(ranks, H100_REACHED, schedule="interleaved-1f1b", chunks=8, flash_attention=True)[1]
        assert reached == pytest.approx(tflops, rel=0.03)


MPT = {"3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 64), "70b": (80, 8192, 64)}
"""Layers, width and heads; they have ALiBi and no biases."""


def mosaic(cluster, model, context, ranks, batch, micro_batches, recompute):
    """The seconds of a step of MosaicML's, by FSDP."""
    size = dict(zip(("layers", "width", "heads"), MPT[model], strict=True)) | {"vocabulary": 50368}
    size |= {"context_bytes": context, "global_batch_size": batch, "micro_batches": micro_batches}
    how = {"zero": 3, "recompute": recompute, "flash_attention": True}
    return planned(Config(**GPT | size | how, device="phantom"), Workbench(cluster, ranks)).step.seconds


@pytest.mark.slow(but=2)
@pytest.mark.parametrize(
    ("peak", "run", "tokens_per_s"),
    [
        (H100, ("3b", 2048, 16, 480, 3, "none"), 386_285),
        (H100, ("3b", 2048, 64, 1152, 3, "none"), 1_441_663),
        (H100, ("7b", 2048, 8, 48, 1, "none"), 85_144),
        (H100, ("7b", 4096, 8, 256, 2, "full"), 68_893),
        (H100, ("7b", 8192, 8, 128, 2, "full"), 55_481),
        (H100, ("13b", 2048, 8, 16, 1, "none"), 38_336),
        (H100, ("13b", 2048, 64, 128, 1, "none"), 307_209),
        (H100, ("13b", 4096, 8, 240, 3, "full"), 37_740),
        (H100, ("30b", 2048, 16, 480, 3, "full"), 36_209),
        (H100, ("30b", 2048, 32, 1344, 3, "full"), 73_860),
        (H100, ("70b", 2048, 32, 1024, 16, "full"), 28_242),
        (H100, ("70b", 2048, 64, 2048, 4, "full"), 66_523),
        (A100, ("3b", 2048, 8, 160, 2, "none"), 86_491),
        (A100, ("7b", 2048, 8, 96, 2, "none"), 37_130),
        (A100, ("7b", 4096, 8, 256, 2, "full"), 29_472),
        (A100, ("13b", 2048, 8, 48, 3, "none"), 18_097),
        (A100, ("30b", 2048, 8, 504, 21, "full"), 7_330),
        (A100, ("70b", 2048, 32, 1024, 16, "full"), 11_962),
        (A100, ("70b", 2048, 64, 2048, 4, "full"), 26_274),
    ],
    ids=str,
)
def test_mosaicml(peak, run, tokens_per_s):
    """github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md, tables of H100 and A100 80GB in bf16."""
    measured_s = run[1] * run[3] / tokens_per_s
    assert 1.25 < measured_s / mosaic(peak, *run) < 2.1, "as plans at the peak say"
    reached, least, most = (H100_REACHED, 0.89, 1.18) if peak is H100 else (REACHED, 1.03, 1.24)
    assert least < measured_s / mosaic(reached, *run) < most


@pytest.mark.parametrize(("reached", "tokens_per_s"), [(H100_REACHED, 26_550), (REACHED, 13_382)])
def test_attention_of_long_windows_takes_longer_than_products(reached, tokens_per_s):
    """The same tables, windows of 32,768 tokens: what they took, 1.55 to 1.75 times the prediction, README tells."""
    run = "7b", 32768, 8, 32, 2, "full"
    assert 1.55 < run[1] * run[3] / tokens_per_s / mosaic(reached, *run) < 1.75


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("model", "context", "ranks", "how", "tokens_per_s"),
    [
        ("llama2-7b", 4096, 8, {"zero": 1}, 16_634),
        ("llama2-70b", 4096, 64, {"tp": 4, "pp": 4, "chunks": 20}, 1_717),
        ("llama3-8b", 8192, 8, {"zero": 3}, 14_079),
        ("llama3-70b", 8192, 64, {"tp": 4, "pp": 8, "chunks": 5}, 1_619),
    ],
)
def test_products_in_8_bits(model, context, ranks, how, tokens_per_s):
    """NVIDIA/NeMo, docs/source/performance/performance_summary.md (24.07), and NVIDIA-NeMo/Megatron-Bridge,
    docs/performance-summary.md (25.09): a GPU's tokens, micro-batches of one window. For plans the device has its rate
    for 8 bits, and all else 16."""
    if "pp" in how:
        how = how | {"sequence_parallel": True, "schedule": "interleaved-1f1b", "zero": 1}
    device = replace(H100_REACHED.device, flops_per_s=H100.device.float8_flops_per_s)
    run = {"model": model, "precision": "bf16", "flash_attention": True, "device": "phantom", "context_bytes": context}
    dp = ranks // (how.get("tp", 1) * how.get("pp", 1))
    plan = planned(
        Config(**run, **how, global_batch_size=128, micro_batches=128 // dp),
        Workbench(H100_REACHED.with_(device=device), ranks),
    )
    assert 128 * context / plan.step.seconds / ranks == pytest.approx(tokens_per_s, rel=0.15)


@pytest.mark.slow
def test_deepseek_v3():
    """arXiv 2412.19437, section 1 and table 1: 180,000 hours of 2,048 H800s for 10¹² tokens, in 8 bits, with the
    exchange between experts hidden behind another micro-batch, where here only experts hide it: README tells this."""
    run = {"model": "deepseek-v3", "precision": "bf16", "flash_attention": True, "capacity_factor": 1.0}
    run |= {"pp": 16, "ep": 64, "zero": 1, "schedule": "dualpipe", "recompute": "full"}
    run |= {"global_batch_size": 15360, "micro_batches": 120, "device": "phantom"}
    bench = Workbench("h800", 2048)
    plain, plan = (planned(Config(**run, overlap_degree=degree), bench) for degree in (1, 2))
    measured_s = 180e3 * 3600 / 2048 * 15360 * 4096 / 1e12
    _, within_s, *_ = plan.parts_s(bench)
    assert measured_s / plain.step.seconds == pytest.approx(0.43, abs=0.005)
    assert measured_s / plan.step.seconds == pytest.approx(0.48, abs=0.005)
    assert plan.step.seconds - within_s < 1.1 * measured_s
