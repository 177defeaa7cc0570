"""Steps that were measured on real machines, and what plans say of them with two numbers for all: what share of the
rates of arithmetic and of memory programs reached. They were chosen for the eight times of Korthikanti et al.; those
of Narayanan et al., with older programs, are by others."""

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
