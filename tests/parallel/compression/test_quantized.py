import numpy as np
import pytest

import simdist as sd
from simdist.arrays import phantom
from simdist.collectives import all_reduce
from simdist.errors import ArgumentError
from simdist.parallel.compression import Quantized


def both(comm, n, block, dtype):
    """Items that 8 bits can hold, with sums that they can hold too: multiples of a power of two."""
    x = np.random.default_rng(7).integers(-127, 128, size=n).astype(dtype) / 8
    x[:: max(1, min(block, n // comm.size))] = 127 / 8
    plain = x.copy()
    all_reduce(plain, comm)
    compressor = Quantized(x, block)
    compressor.reduce(x, comm)
    return x, plain, compressor.sent_bytes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_what_8_bits_can_hold_gives_the_sum(spmd, p, dtype):
    for x, plain, _ in spmd(both, p, 256, 64, dtype):
        np.testing.assert_array_equal(x, plain)


@pytest.mark.parametrize(("n", "blocks", "items"), [(256, 1, 64), (257, 2, 33), (1000, 4, 63), (3, 1, 1), (0, 0, 0)])
def test_bytes_are_those_stated(spmd, n, blocks, items):
    for _, _, sent in spmd(both, 4, n, 64, "float32"):
        assert sent == 2 * 3 * blocks * (items + 4)


def rounded(comm, n):
    rng = np.random.default_rng(comm.rank)
    x = rng.normal(size=n) * np.repeat([1.0, 1e-3], n // 2)
    kept = x.copy()
    compressor = Quantized(x, n // 8)
    compressor.reduce(x, comm)
    return kept, x, compressor.state["residual"], compressor.saved_share


def test_errors_are_as_small_as_a_block_allows(spmd):
    """Half a step of 1/127 of the largest of its block, on each rank and once more on the sum."""
    n = 8000
    found = spmd(rounded, 4, n)
    total = sum(kept for kept, *_ in found)
    for half in (slice(0, n // 2), slice(n // 2, n)):
        largest = sum(np.abs(kept[half]).max() for kept, *_ in found)
        for _, x, residual, _ in found:
            assert np.abs(x - total)[half].max() <= 2 * largest / 254 * 1.001
            assert 0 < np.abs(residual[half]).max() <= largest / 254
    assert found[0][3] > 0.87  # of 8 bytes an item


def small(comm, size):
    x = np.full(10, size)
    compressor = Quantized(x)
    compressor.reduce(x, comm)
    return x


def test_numbers_that_the_scale_cannot_hold(spmd):
    for found in spmd(small, 2, 1e-300):
        np.testing.assert_array_equal(found, 0)
    for found in spmd(small, 2, 1e300):
        assert np.isnan(found).all()


def test_blocks_have_limits():
    with pytest.raises(ArgumentError, match="block is 0"):
        Quantized(np.zeros(3), 0)


@pytest.mark.parametrize(("dtype", "block"), [("float32", 1024), ("float64", 32)])
def test_the_ratio_is_that_of_the_bytes_of_full_blocks(dtype, block):
    def program(comm):
        quantized = Quantized(phantom(8 * block, dtype), block)
        quantized.reduce(phantom(8 * block, dtype), comm)
        return quantized.ratio, quantized.plain_bytes / quantized.sent_bytes

    assert all(ratio == pytest.approx(found) for ratio, found in sd.run(program, 4).results)
