import numpy as np
import pytest

import simdist as sd
from simdist.arrays import Meter, metered, moved, on_host, phantom
from simdist.collectives import all_reduce
from simdist.comm.device import use_device
from simdist.errors import ArgumentError, ArrayError
from simdist.parallel.compression import TopK


def both(comm, share, dtype):
    x = np.random.default_rng(comm.rank).integers(-1000, 1000, size=101).astype(dtype)
    plain = x.copy()
    all_reduce(plain, comm)
    top = TopK(x, share)
    top.reduce(x, comm)
    return x, plain, top.num_items, top.sent_bytes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_all_items_give_the_sum(spmd, p, dtype):
    for x, plain, k, sent in spmd(both, p, 1.0, dtype):
        np.testing.assert_array_equal(x, plain)  # whole numbers: no rounding
        assert k == 101
        assert sent == (p - 1) * 101 * (4 + x.itemsize)


def test_bytes_are_those_stated(spmd):
    for _, _, k, sent in spmd(both, 4, 0.05, "float32"):
        assert k == 6  # 5.05, rounded up
        assert sent == 3 * 6 * 8


def pictured(comm):
    """The docstring's picture, on rank 0."""
    x = np.array([0.1, -2.0, 0.3, 0.1, 1.5, -0.2]) * (comm.rank == 0)
    top = TopK(x, 2 / 6)
    top.reduce(x, comm)
    return x, top.state["residual"]


def test_the_largest_are_sent_and_the_others_kept(spmd):
    (x, residual), (same, _) = spmd(pictured, 2)
    np.testing.assert_array_equal(x, [0, -2.0, 0, 0, 1.5, 0])
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(residual, [0.1, 0, 0.3, 0.1, 0, -0.2])


def patient(comm):
    top, came = TopK(np.zeros(4), 0.25), []
    for _ in range(12):
        x = np.array([1.0, 0.0, 0.25, 0.0])
        top.reduce(x, comm)
        came.append(x[2])
    return came


def test_what_is_small_comes_late(spmd):
    came = spmd(patient, 2)[0]
    assert came[0] == 0
    assert set(came) - {0.0}
    assert sum(came) >= 2 * 12 * 0.25 - 2 * 2


def test_packets_of_an_odd_number_of_items_on_a_device(spmd, device):
    """12 bytes each: on a device the second packet's 8-byte numbers cannot be read where they are."""

    def program(comm):
        use_device(comm, "cuda")
        x = moved(np.array([0.0, 10.0**comm.rank, 0.0]), "cupy")
        TopK(x, 1 / 3).reduce(x, comm)
        return on_host(x)

    assert [x.tolist() for x in spmd(program, 3)] == [[0, 111, 0]] * 3


@pytest.mark.parametrize("p", [1, 3])
def test_every_value_that_comes_is_added_where_it_belongs(spmd, p):
    def work(comm, share):
        x = np.ones(100)
        top = TopK(x, share)
        with metered(meter := Meter()):
            top.reduce(x, comm)
        return meter.flops, meter.bytes

    few, many = (np.array(spmd(work, p, share)) for share in (0.2, 0.7))
    assert few[0].tolist() == [4 * 100 + p * 20, (4 + 1) * 100 * 8 + p * 20 * 3 * 8], "4 operations an item to choose"
    assert (many - few).tolist() == [[p * 50, p * 50 * 3 * 8]] * p


@pytest.mark.parametrize("share", [0, -0.5, 1.1, float("nan")])
def test_the_share_has_limits(share):
    with pytest.raises(ArgumentError, match="share is"):
        TopK(np.zeros(3), share)


def test_an_index_has_four_bytes():
    assert TopK(phantom(2**32 - 1), 1e-9).num_items == 5
    with pytest.raises(ArrayError, match=r"a gradient of 4294967296 items; top-k needs fewer than 2\*\*32"):
        TopK(phantom(2**32), 1e-9)


@pytest.mark.parametrize(
    ("share", "n", "k"), [(0.07, 100, 7), (0.55, 100, 55), (0.1, 15, 2), (1e-12, 5, 1), (1.0, 3, 3)]
)
def test_k_is_rounded_up_but_not_for_what_decimals_lack(share, n, k):
    assert TopK(np.zeros(n), share).num_items == k


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_ratio_is_that_of_two_ranks_bytes(dtype):
    def program(comm):
        top = TopK(phantom(1000, dtype), 0.02)
        top.reduce(phantom(1000, dtype), comm)
        return top.ratio, top.plain_bytes / top.sent_bytes

    assert all(ratio == found for ratio, found in sd.run(program, 2).results)
    assert TopK(phantom(0), 0.02).ratio == 0
