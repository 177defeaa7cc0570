"""Steps that were measured on real machines, and what plans say of them with two numbers for all: what share of the
rates of arithmetic and of memory programs reached. They were chosen for the eight times of Korthikanti et al., and
not for those of Narayanan et al., whose programs were older."""

from dataclasses import replace

import pytest

from simdist.cluster import preset
from simdist.nn.formulas import megatron_flops
from simdist.planning import Workbench, planned, search
from simdist.training import Config

A100 = preset("a100")
REACHED = A100.with_(device=replace(A100.device, flops_efficiency=0.85, memory_efficiency=0.5))
GPT = {"model": "gpt", "precision": "bf16", "context_bytes": 2048, "vocabulary": 51200}
FULL = {"recompute": "full"}
SELECTIVE = {"recompute": "selective", "sequence_parallel": True}


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


@pytest.mark.parametrize(
    ("layers", "width", "heads", "pp", "ranks", "batch", "tflops"),
    [
        (48, 8192, 64, 2, 512, 1536, 138),  # 39.1B parameters
        (60, 10240, 80, 4, 1024, 1792, 140),  # 76.1B
        (80, 12288, 96, 8, 1536, 2304, 148),  # 145.6B
        (96, 16384, 128, 16, 1920, 2160, 155),  # 310.1B
        (105, 20480, 128, 35, 2520, 2520, 163),  # 529.6B
        (128, 25600, 160, 64, 3072, 3072, 163),  # 1008B
    ],
)
def test_narayanan_et_al_in_pipelines(layers, width, heads, pp, ranks, batch, tflops):
    """The same, tensor parallelism of 8; as 1F1B of micro-batches of one sequence, of which the paper does not tell."""
    size = {"layers": layers, "width": width, "heads": heads, "tp": 8, "pp": pp, "dp": ranks // 8 // pp}
    size |= {"global_batch_size": batch, "micro_batches": batch // (ranks // 8 // pp), **FULL}
    plan = planned(Config(**GPT | size, device="phantom"), Workbench(REACHED, ranks))
    flops = megatron_flops(layers, width, 51200, 2048, batch, "full") / ranks / plan.step.seconds
    assert flops / 1e12 == pytest.approx(tflops, rel=0.07)
