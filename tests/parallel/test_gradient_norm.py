"""The oracle is np.linalg.norm of the whole gradient, and PyTorch's clipping."""

import math

import numpy as np
import pytest

from simdist.arrays import Meter, metered, partition
from simdist.errors import ArgumentError
from simdist.optim import norms
from simdist.parallel.gradient_norm import clip_factor, clip_gradient, combine_over

SIZE = 20_011


def gradient(dtype="float32"):
    rng = np.random.default_rng(4)
    return (rng.normal(size=SIZE) * 10.0 ** rng.uniform(-3, 1, size=SIZE)).astype(dtype)


def norm_of_shard(comm, dtype, wrong=None):
    whole = gradient(dtype)
    if wrong is not None:
        whole[SIZE // 2] = wrong
    shard = whole[partition(SIZE, comm.size)[comm.rank]]
    first = len(comm.recorder.rows)
    (found,) = norms([shard], combine_over(comm))
    return found, [span.bytes for span in comm.recorder.spans()[first:] if span.name.startswith("all_reduce")]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_shards_give_the_bits_of_the_whole(spmd, p, dtype):
    (expected,) = norms([gradient(dtype)])
    assert expected == pytest.approx(np.linalg.norm(gradient(dtype).astype(np.float64)), rel=1e-12)
    assert spmd(norm_of_shard, p, dtype) == [(expected, [8, 16])] * p


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_one_ranks_inf_or_nan_is_known_to_all(spmd, wrong):
    for found, _ in spmd(norm_of_shard, 3, "float32", wrong):
        assert found == pytest.approx(wrong, nan_ok=True)


@pytest.mark.parametrize("share", [1e-3, 0.5, 0.999, 1.001, 10])
def test_a_gradient_keeps_its_direction(share):
    whole = gradient("float64")
    (norm,) = norms([whole])
    assert clip_gradient(whole, share * norm) == norm
    np.testing.assert_allclose(whole, gradient("float64") * min(1, share), rtol=1e-14)
    assert np.linalg.norm(whole) == pytest.approx(min(1, share) * norm, rel=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.5, 2])
def test_it_clips_as_pytorch_does(share):
    torch = pytest.importorskip("torch")
    ours = gradient("float64")
    (norm,) = norms([ours])
    theirs = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    theirs.grad = torch.tensor(ours)
    assert float(torch.nn.utils.clip_grad_norm_([theirs], share * norm)) == pytest.approx(norm, rel=1e-12)
    clip_gradient(ours, share * norm)
    np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=2e-6 / (share * norm))  # PyTorch adds 1e-6 to the norm


def test_clipping_reads_and_writes_the_gradient_once_more():
    costs = []
    for share in (2, 0.5):
        with metered(meter := Meter()):
            clip_gradient(gradient(), share * norms([gradient()])[0])
        costs.append((meter.flops, meter.bytes))
    left_alone, clipped = costs
    assert np.subtract(clipped, left_alone).tolist() == [SIZE, 2 * 4 * SIZE]


def test_what_is_not_finite_is_left_alone():
    for wrong in (math.inf, math.nan):
        x = np.array([1.0, wrong, 3.0])
        assert clip_gradient(x, 0.5) == pytest.approx(wrong, nan_ok=True)
        np.testing.assert_array_equal(x, [1.0, wrong, 3.0])
    assert clip_factor(0.0, 1.0) == 1.0


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan])
def test_the_limit_has_limits(wrong):
    with pytest.raises(ArgumentError, match="max_norm is"):
        clip_factor(1.0, wrong)
