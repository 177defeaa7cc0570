"""The oracle is np.linalg.norm of the whole gradient, and PyTorch's clipping."""

import math

import numpy as np
import pytest

from simdist.arrays import Meter, metered, partition
from simdist.collectives import cost
from simdist.errors import ArgumentError
from simdist.parallel.gradient_norm import clip_factor, clip_gradient, global_norm

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
    found = global_norm(shard, comm, "ring")
    sent = [span.bytes for span in comm.recorder.spans()[first:] if span.name == "send"]
    return found, sum(sent)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_shards_give_the_bits_of_the_whole(spmd, p, dtype):
    expected = global_norm(gradient(dtype))
    assert expected == pytest.approx(np.linalg.norm(gradient(dtype).astype(np.float64)), rel=1e-12)
    for rank, (found, sent) in enumerate(spmd(norm_of_shard, p, dtype)):
        assert found == expected
        messages = [cost("all_reduce", "ring", ranks=p, num_bytes=n, itemsize=8, rank=rank) for n in (8, 16)]
        assert sent == sum(message.sent_bytes for message in messages)


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_one_ranks_inf_or_nan_is_known_to_all(spmd, wrong):
    for found, _ in spmd(norm_of_shard, 3, "float32", wrong):
        assert found == pytest.approx(wrong, nan_ok=True)


def clipped_shard(comm, max_norm):
    shard = gradient("float64")[partition(SIZE, comm.size)[comm.rank]]
    return clip_gradient(shard, max_norm, comm), shard


@pytest.mark.parametrize("share", [1e-3, 0.5, 0.999, 1.001, 10])
@pytest.mark.parametrize("p", [1, 3])
def test_clipping_shards_is_clipping_the_whole(spmd, p, share):
    whole = gradient("float64")
    norm = global_norm(whole)
    assert clip_gradient(whole, share * norm) == norm
    found = spmd(clipped_shard, p, share * norm)
    assert {n for n, _ in found} == {norm}
    np.testing.assert_array_equal(np.concatenate([shard for _, shard in found]), whole)
    np.testing.assert_allclose(whole, gradient("float64") * min(1, share), rtol=1e-14)
    assert np.linalg.norm(whole) == pytest.approx(min(1, share) * norm, rel=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.5, 2])
def test_it_clips_as_pytorch_does(share):
    torch = pytest.importorskip("torch")
    ours, norm = gradient("float64"), global_norm(gradient("float64"))
    theirs = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    theirs.grad = torch.tensor(ours)
    assert float(torch.nn.utils.clip_grad_norm_([theirs], share * norm)) == pytest.approx(norm, rel=1e-12)
    clip_gradient(ours, share * norm)
    np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=2e-6 / (share * norm))  # PyTorch adds 1e-6 to the norm


def test_clipping_reads_and_writes_the_gradient_once_more():
    costs = []
    for share in (2, 0.5):
        with metered(meter := Meter()):
            clip_gradient(gradient(), share * global_norm(gradient()))
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
