import itertools
import math

import numpy as np
import pytest

import simdist as sd
from simdist.arrays import Meter, metered, phantom
from simdist.collectives import algorithms, cost
from simdist.errors import ArgumentError
from simdist.parallel.compression import PowerSGD

N, M = 30, 12
MATRICES = [(slice(5, 5 + N * M), (N, M)), (slice(5 + N * M, 5 + N * M + 24), (2, 3, 4))]
SIZE = 5 + N * M + 24 + 3


def reduce_once(comm, rank, kind):
    rng = np.random.default_rng(comm.rank)
    x = rng.normal(size=SIZE)
    if kind == "low rank":  # all ranks' matrices have the same two directions
        for span, shape in MATRICES:
            common = np.random.default_rng(9).normal(size=(shape[0], 2))
            x[span] = (common @ rng.normal(size=(2, np.prod(shape[1:])))).reshape(-1)
    kept = x.copy()
    compressor = PowerSGD(x, MATRICES, rank=rank)
    compressor.reduce(x, comm)
    return kept, x, compressor.state["residual"], compressor.sent_bytes


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_full_rank_gives_the_sum(spmd, p):
    found = spmd(reduce_once, p, 100, "any")
    total = sum(kept for kept, *_ in found)
    for _, x, _, _ in found:
        np.testing.assert_allclose(x, total, rtol=0, atol=1e-12)


def test_a_sum_of_low_rank_is_exact(spmd):
    found = spmd(reduce_once, 3, 2, "low rank")
    total = sum(kept for kept, *_ in found)
    for _, x, residual, _ in found:
        np.testing.assert_allclose(x, total, rtol=0, atol=1e-12)
        np.testing.assert_allclose(residual, 0, rtol=0, atol=1e-12)


def test_what_is_no_matrix_is_summed_as_it_is(spmd):
    found = spmd(reduce_once, 3, 1, "any")
    total = sum(kept for kept, *_ in found)
    for _, x, residual, _ in found:
        for rest in (slice(0, 5), slice(SIZE - 3, SIZE)):
            np.testing.assert_allclose(x[rest], total[rest], rtol=1e-14)
            np.testing.assert_array_equal(residual[rest], 0)
        for (span, shape), r in zip(MATRICES, (1, 1), strict=True):
            assert np.linalg.matrix_rank(x[span].reshape(shape[0], -1)) == r
            assert np.abs(x - total)[span].max() > 0.1


@pytest.mark.parametrize("p", [1, 2, 3])
def test_bytes_are_those_stated(spmd, p):
    """The algorithm is whatever `auto` finds, so it is asked what each sends; of a tree some ranks send less than of a
    ring, but all together no less.
    """
    items = (N * 2 + 2 * 2 + 8, M * 2 + 12 * 2)
    every = [sent for *_, sent in spmd(reduce_once, p, 2, "any")]
    for rank, sent in enumerate(every):
        known = [
            {
                cost("all_reduce", name, ranks=p, num_bytes=8 * n, itemsize=8, rank=rank).sent_bytes
                for name in algorithms("all_reduce")
            }
            for n in items
        ]
        assert sent in {a + b for a in known[0] for b in known[1]}
    assert sum(every) >= sum(2 * 8 * n * (p - 1) for n in items)


def iterate(comm, steps):
    """The same matrix again and again: how far the sum is from it, along the way."""
    u, s, v = np.linalg.svd(np.random.default_rng(1).normal(size=(20, 20)))
    matrix = (u * s * 0.5 ** np.arange(20)) @ v
    compressor, off = PowerSGD(np.zeros(400), [(slice(0, 400), (20, 20))], rank=3), []
    for _ in range(steps):
        compressor.state["residual"][...] = 0
        x = matrix.reshape(-1) * (comm.rank + 1)
        compressor.reduce(x, comm)
        off.append(np.linalg.norm(x.reshape(20, 20) / 3 - matrix))
    best = np.linalg.norm((s * 0.5 ** np.arange(20))[3:])
    return off, best


def test_it_finds_the_best_directions_step_by_step(spmd):
    """From one step to the next Q is kept, so this is a power iteration: it ends at the truncated SVD."""
    off, best = spmd(iterate, 2, 12)[0]
    assert off[0] > 1.05 * best
    assert best <= off[-1] * (1 + 1e-12) < 1.001 * best


def after_zero(comm):
    compressor, sums = PowerSGD(np.zeros(12), [(slice(0, 12), (4, 3))], rank=3), []
    for value in (0.0, 1.0):
        x = np.arange(12) * value
        compressor.reduce(x, comm)
        sums.append(x)
    return sums


def test_a_gradient_of_zero_does_not_stop_it(spmd):
    nothing, something = spmd(after_zero, 2)[0]
    np.testing.assert_array_equal(nothing, 0)
    np.testing.assert_allclose(something, 2.0 * np.arange(12), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rank", [1, 100])
@pytest.mark.parametrize(("dtype", "most"), [("float32", 3e38), ("float64", 1.7e308)])
def test_factors_of_huge_gradients_stay_finite(dtype, most, rank):
    """The columns' norms overflowed, or Q did: the residual was NaN from then on, and so was every sum."""

    def program(comm):
        compressor = PowerSGD(np.empty(SIZE, dtype), MATRICES, rank=rank)
        given, applied = [], []
        for top in (1, most, 1, 1):
            x = top * np.random.default_rng(comm.rank + 1).uniform(-1, 1, SIZE).astype(dtype)
            given.append(x.copy())
            compressor.reduce(x, comm)
            applied.append(x)
        return given, applied, compressor.state["residual"]

    found = sd.run(program, 2).results
    (_, applied, left), (_, others, left_there) = found
    np.testing.assert_array_equal(applied, others)
    np.testing.assert_array_equal([np.isnan(x).all() for x in applied], [False, True, False, False])
    assert np.isfinite(np.delete(applied, 1, axis=0)).all()
    exact = sum(given[step].astype(float) for given, *_ in found for step in (0, 2, 3))
    np.testing.assert_allclose(np.nansum(applied, axis=0, dtype=float) + left + left_there, exact, atol=1e-4)


@pytest.mark.parametrize("r", [1, 3])
def test_four_thin_products_and_two_orthonormal_bases(spmd, r):
    """n × r by r × m takes 2nmr operations; Householder's n × r basis 2nr² to find, and as many to write out."""

    def program(comm):
        with metered(meter := Meter()):
            PowerSGD(np.zeros(N * M), [(slice(0, N * M), (N, M))], rank=r).reduce(np.ones(N * M), comm)
        return meter.flops

    assert spmd(program, 1) == [4 * 2 * N * M * r + 2 * 2 * (N * r**2 + M * r**2)]


def test_arguments_have_limits():
    like = np.zeros(12)
    for matrices, message in (
        ([(slice(0, 12), (4, 4))], "has 12 items"),
        ([(slice(4, 16), (4, 3))], "ends at 16"),
        ([(slice(0, 8), (4, 2)), (slice(4, 12), (4, 2))], "overlap"),
    ):
        with pytest.raises(ArgumentError, match=message):
            PowerSGD(like, matrices)
    with pytest.raises(ArgumentError, match="rank is 0"):
        PowerSGD(like, [], rank=0)


def test_the_ratio_of_the_paper():
    """Of a 512 x 512 x 3 x 3 convolution 461 by rank 1, of an embedding of 28869 x 650 636, and so on by rank."""
    for shape, ratio in (((512, 512, 3, 3), 461), ((28869, 650), 636), ((64, 3, 3, 3), 19)):
        n = math.prod(shape)
        for rank in (1, 2, 4):
            found = PowerSGD(phantom(n), [(slice(0, n), shape)], rank).ratio
            assert found == pytest.approx(ratio / rank, rel=2e-3)
    assert PowerSGD(phantom(10), [(slice(0, 4), (2, 2))], 1).ratio == 10 / (4 + 6)


def ratio(shapes, others, rank):
    """Of a model with weights of these shapes, and so many numbers that are no matrix's."""
    sizes = [math.prod(shape) for shape in shapes]
    ends = np.cumsum([0, *sizes]).tolist()
    spans = [(slice(*span), shape) for span, shape in zip(itertools.pairwise(ends), shapes, strict=True)]
    return PowerSGD(phantom(ends[-1] + others), spans, rank).ratio


def test_whole_models_of_the_paper():
    """Its tables of ResNet18 on CIFAR10, 243, 136 and 72 times, and of an LSTM of three layers, 310, 203 and 120."""
    widths = [64, 64, 128, 256, 512]
    convolutions = [(64, 3, 3, 3)]
    for before, width in itertools.pairwise(widths):
        convolutions += [(width, before, 3, 3)] + [(width, width, 3, 3)] * 3
        convolutions += [(width, before, 1, 1)] if before < width else []
    norms = 2 * sum(shape[0] for shape in convolutions)
    found = [ratio([*convolutions, (10, 512)], norms + 10, rank) for rank in (1, 2, 4)]
    assert [round(times) for times in found] == [243, 136, 72]
    lstm = [(28869, 650), *[(2600, 650)] * 6]
    found = [ratio(lstm, 6 * 2600 + 28869, rank) for rank in (1, 2, 4)]
    assert [round(times) for times in found] == [310, 203, 120]
