"""The device's stand-in finds what a card gets wrong only now and then: barriers and waits that are missing."""

import numpy as np
import pytest
from device import stands_in

from simdist.arrays import moved, on_host

THREADS = 64  # two warps

SOURCE = r"""
extern "C" __global__ void turned(const float* x, float* y, bool wait) {
    __shared__ float items[64];
    items[threadIdx.x] = x[threadIdx.x];
    if (wait) __syncthreads();
    y[threadIdx.x] = items[63 - threadIdx.x];
}

extern "C" __global__ void turned_in_place(const float* x, float* y, bool wait) {
    __shared__ float items[64];
    items[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float item = items[63 - threadIdx.x];
    if (wait) __syncthreads();
    items[threadIdx.x] = item;
    y[threadIdx.x] = items[threadIdx.x];
}

extern "C" __global__ void copied(const float* x, float* y, bool wait) {
    __shared__ float items[64];
    items[threadIdx.x] = x[threadIdx.x];
    copy4(&items[threadIdx.x], x + 63 - threadIdx.x, true);
    if (wait) await_copies();
    y[threadIdx.x] = items[threadIdx.x];
}

extern "C" __global__ void copied_from_beyond(const float* x, float* y, bool wait) {
    __shared__ float items[64];
    const int i = threadIdx.x;
    copy4(&items[63 - i], x + i + !wait, true);
    await_copies();
    __syncthreads();
    y[i] = items[i];
}

extern "C" __global__ void copied_between(const float* x, float* y, bool wait) {
    __shared__ float items[65];
    const int i = threadIdx.x;
    copy4((char*)(items + 63 - i) + !wait, x + i, true);
    await_copies();
    __syncthreads();
    y[i] = items[i];
}

extern "C" __global__ void parted(const float* x, float* y, bool wait) {
    if (threadIdx.x < 32 || wait) __syncthreads();
    y[threadIdx.x] = x[63 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def launch(device):
    """launch(name, wait) -> whether the kernel turns an array round, and does so each time."""
    from simdist.arrays.kernels.source import compiled
    from simdist.arrays.kernels.units import UNITS

    if not stands_in():
        pytest.skip("of the stand-in only")

    def launch(name, wait):
        x = np.arange(2.0 * THREADS, dtype=np.float32).reshape(2, THREADS)
        kernel = compiled(UNITS + SOURCE, name, x.dtype)
        found = [moved(np.zeros_like(row), "cupy") for row in x]
        for row, y in zip(x, found, strict=True):
            kernel(1, THREADS, moved(row, y), y, np.bool_(wait))
        return all((on_host(y) == row[::-1]).all() for row, y in zip(x, found, strict=True))

    return launch


@pytest.mark.parametrize("name", ["turned", "turned_in_place", "copied"])
def test_what_is_not_waited_for_is_not_there(launch, name):
    assert launch(name, True)
    assert not launch(name, False)


def test_threads_that_wait_for_ever_are_told(launch):
    assert launch("parted", True)
    with pytest.raises(AssertionError, match="^parted has threads that wait for others for ever$"):
        launch("parted", False)
    assert launch("parted", True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("copied_from_beyond", "copies from outside of its arrays"),
        ("copied_between", "copies 4 or 16 bytes at an address that is no multiple of that"),
    ],
)
def test_copies_from_or_to_where_none_may_be_are_told(launch, name, told):
    assert launch(name, True)
    with pytest.raises(AssertionError, match=f"^{name} {told}$"):
        launch(name, False)
