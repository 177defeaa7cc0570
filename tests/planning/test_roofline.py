"""What the books work out, and that it is where the collectives' formulas take as long as a device computes."""

from math import inf, sqrt

import numpy as np
import pytest

from simdist.cluster import Link, preset
from simdist.collectives import formula
from simdist.errors import ArgumentError
from simdist.planning import Workbench, planned
from simdist.planning.roofline import (
    data_parallel_tokens,
    expert_parallel_width,
    mixed_replicas,
    mixed_tokens,
    pipeline_weights,
    tensor_parallel_ranks,
)
from simdist.training import Config

H100 = preset("h100")
H100S = H100.device.flops_per_s
NODE = H100.between.bytes_per_s * H100.nics_per_node
V5P, AXIS = 459e12, 180e9  # an axis of its torus, both ways


def test_how_to_scale_your_model_on_gpus():
    inside, between = data_parallel_tokens(H100S, H100.inside.bytes_per_s), data_parallel_tokens(990e12, NODE)
    assert [inside, between] == pytest.approx([2200, 2475], rel=1e-3)
    assert data_parallel_tokens(990e12, 300e9) == 3300  # DeepSeek-V3's devices, as they are there
    assert data_parallel_tokens(preset("b200").device.flops_per_s, NODE) == 5625
    assert data_parallel_tokens(990e12, NODE, 2) == 1237.5
    assert data_parallel_tokens(990e12, NODE, sparsity=128 / 4) == 79_200
    assert tensor_parallel_ranks(28_000, 990e12, NODE) == pytest.approx(11.3, abs=0.05)


def test_experts_in_how_to_scale_your_model():
    """4Bk h f/(pC) of computation, 4Bh (p-8)/(pW) min(8k/p, 1) of messages; on many nodes f is nearly 8C/W."""
    for p, k in ((16, 8), (64, 8), (128, 4), (256, 1)):
        f, b, h = expert_parallel_width(p, 990e12, NODE, k), 1e6, 7168
        computing_s = 4 * b * k * h * f / (p * 990e12)
        assert computing_s == pytest.approx(4 * b * h * (p - 8) / (NODE * p) * min(8 * k / p, 1))
    assert expert_parallel_width(1e9, 990e12, NODE, 8) == pytest.approx(8 * 2475)
    assert expert_parallel_width(inf, 990e12, NODE, 8) == 8 * 2475, "the limit was inf times 0"
    assert expert_parallel_width(16, 990e12, NODE, 8) == 2475, "two nodes, and a token has experts on both"
    assert expert_parallel_width(8, 990e12, NODE, 8) == 0


def test_how_to_scale_your_model_on_tpus():
    assert data_parallel_tokens(V5P, AXIS) == 2550
    assert data_parallel_tokens(V5P, 3 * AXIS) == 850
    assert data_parallel_tokens(V5P, 6.25e9) == 73_440  # between pods
    assert int(tensor_parallel_ranks(28_672, V5P, AXIS)) == 11
    assert [round(mixed_tokens(f, V5P, 2 * AXIS, AXIS)) for f in (32_768, 28_672)] == [99, 113]
    assert round(mixed_replicas(48 * 1024, 32_768, 64, 2, 1), 1) == 13.9  # there 48,000
    assert round(mixed_replicas(4.19e6, 28_672, 8960, 2 * AXIS, AXIS)) == 1618


def test_the_ultra_scale_playbook():
    """Its ratios of times, with items of one byte, are of what is needed to what there is."""
    c, w, h, layers = 989e12, 450e9, 8192, 4
    data = data_parallel_tokens(c, w, 8, itemsize=1) / 4096
    assert data == pytest.approx(1 / (2 * 4096) * 7 / 8 * c / w)
    assert 7 / tensor_parallel_ranks(h, c, w, itemsize=1) == pytest.approx(7 / (2 * h) * c / w)
    assert pipeline_weights(h, c, w, itemsize=1) / (16 * h**2 * layers) == pytest.approx(c / (32 * h * layers * w))


@pytest.mark.parametrize("p", [2, 8, 64])
def test_there_the_ring_takes_as_long_as_the_matrices(p):
    device, link = H100.device, Link(0.0, H100.inside.bytes_per_s)
    h, f, tokens = 4096, 16_384, data_parallel_tokens(H100S, link.bytes_per_s, p)
    ring = formula("all_gather", "ring", ranks=p, num_bytes=2 * h * f)
    assert ring.at(0, 1 / link.bytes_per_s, 0) == pytest.approx(device.seconds(2 * tokens * h * f, 0))

    others = tensor_parallel_ranks(f, H100S, link.bytes_per_s)
    ring = formula("all_gather", "ring", ranks=p, num_bytes=2 * 1000 * h)
    share = ring.at(0, 1 / link.bytes_per_s, 0) / device.seconds(2 * 1000 * h * f / p, 0)
    assert share == pytest.approx((p - 1) / others)

    weights = pipeline_weights(h, H100S, link.bytes_per_s)
    assert link.seconds(2 * 1000 * h) == pytest.approx(device.seconds(2 * 1000 * weights, 0))


def test_the_best_mixture_is_the_best():
    ranks, f, tokens = 64, 32_768, 64 * mixed_tokens(32_768, V5P, 2 * AXIS, AXIS)
    replicas = np.linspace(1, ranks, 100_001)
    weights, activations = f * replicas / ranks / (2 * AXIS), tokens / replicas / AXIS
    slowest = np.maximum(weights, activations)
    best = mixed_replicas(tokens, f, ranks, 2 * AXIS, AXIS)
    assert replicas[slowest.argmin()] == pytest.approx(best, rel=1e-3)
    assert slowest.min() == pytest.approx(tokens * f / ranks / V5P, rel=1e-3)  # as long as the matrices
    assert best == pytest.approx(sqrt(2 * tokens * ranks / f))


@pytest.mark.parametrize(("times", "least", "most"), [(0.5, 0.3, 0.6), (2, 0.0, 0.05)])
def test_a_plan_waits_for_weights_that_too_few_tokens_hide(times, least, most):
    bench = Workbench(H100.with_(name="bare", inside=Link(0.0, H100.inside.bytes_per_s)), 8)
    tokens = int(times * data_parallel_tokens(H100S, H100.inside.bytes_per_s, 8))
    shape = {"model": "gpt", "layers": 16, "width": 8192, "heads": 64, "vocabulary": 1024, "flash_attention": True}
    run = {"context_bytes": tokens, "global_batch_size": 8, "zero": 3, "precision": "bf16", "device": "phantom"}
    step = planned(Config(**shape, **run), bench).step
    assert least <= step.gradients_s / step.seconds <= most


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: data_parallel_tokens(0, 1), "flops_per_s is 0; needs more than 0"),
        (lambda: data_parallel_tokens(1, 1, 0.5), "ranks is 0.5; needs at least 1"),
        (lambda: data_parallel_tokens(1, 1, sparsity=0.5), "sparsity is 0.5; needs at least 1"),
        (lambda: tensor_parallel_ranks(0, 1, 1), "ffn_width is 0"),
        (lambda: pipeline_weights(0, 1, 1), "width is 0"),
        (lambda: mixed_tokens(1, 1, 0, 1), "bytes_per_s is 0"),
        (lambda: mixed_replicas(1, 1, 0), "ranks is 0"),
        (lambda: mixed_replicas(0, 1, 1), "tokens is 0; needs more than 0"),
        (lambda: mixed_replicas(1, 1, 1, 1, 0), "tensor_bytes_per_s is 0; needs more than 0"),
        (lambda: expert_parallel_width(4, 1, 1), "ranks is 4; needs at least 8"),
        (lambda: expert_parallel_width(8, 1, 1, 0), "top_k is 0"),
        (lambda: expert_parallel_width(8, 1, 1, 1, 0), "ranks_per_node is 0"),
        (lambda: mixed_replicas(1, 1, 1, 1, 0), "tensor_bytes_per_s is 0"),
    ],
)
def test_numbers_that_mean_nothing(made, message):
    with pytest.raises(ArgumentError, match=message):
        made()
