"""The GPU's benchmark, on the device that there is, at sizes that a stand-in can bear."""

import sys
from argparse import Namespace
from pathlib import Path

import pytest

import simdist as sd
from simdist.nn import Shape


@pytest.fixture
def parts(device, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks import gpu_parts

    filled = gpu_parts._filled
    monkeypatch.setattr(gpu_parts, "_LARGE", 32)
    monkeypatch.setattr(gpu_parts, "_ROUNDS", 1)
    monkeypatch.setattr(gpu_parts, "_STEPS", 4)
    monkeypatch.setattr(gpu_parts, "BATCH", 1)
    monkeypatch.setattr(gpu_parts, "SHAPE", Shape(layers=1, width=8, heads=2, context=8, vocabulary=300))
    monkeypatch.setattr(gpu_parts, "_filled", lambda shape, dtype: filled(64 if shape == 1 << 30 else shape, dtype))
    return gpu_parts


def test_its_parts_measure_something(parts, capsys):
    from benchmarks import gpu

    args = Namespace(ranks=2, mib=1, precision="bf16")
    card, step = parts._card(args), parts._step(args)
    assert card["copy_bytes_per_s"] > 0 and set(card["matmul_flops_per_s"]) == {"bf16", "fp16", "float32", "tf32"}
    assert step["step_s"] > 0 and len(step["losses"]) == 4
    seen = sd.run(parts._paths, 2, args=("auto", 1 << 12)).results[0]
    assert seen["right"] and seen["all_reduce_s"] > 0
    gpu._tell_all_reduce({"ipc": seen, "cuda-aware": {"refused": "needs an MPI"}}, card, args)
    gpu._tell_step("bf16", step, {"step_s": 1.0}, card)
    told = capsys.readouterr().out
    assert "right" in told and "refused: needs an MPI" in told and "x PyTorch's speed" in told


def test_a_part_that_fails_says_why(parts, monkeypatch, capsys):
    from benchmarks import gpu

    monkeypatch.setattr(gpu, "_PART_S", 60.0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "failed" in gpu._part("card", Namespace(ranks=2, mib=1))
    gpu._tell_all_reduce({"failed": "connection refused"}, {"copy_bytes_per_s": 1.0}, Namespace(ranks=2, mib=1))
    assert "connection refused" in capsys.readouterr().out
