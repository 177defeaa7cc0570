"""The device's stand-in finds what a card gets wrong only now and then: barriers and waits that are missing.

Oracles are CUDA's own rules: Programming Guide, sections on streams, on events and on asynchronous copies.
"""

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

// Items move by one, from one block or thread to the next.
extern "C" __global__ void moved_on(float* x, int step, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (0 <= i - step && i - step < size) x[i] = x[i - step];
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


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize(("blocks", "threads"), [(THREADS, 1), (2, 32), (1, THREADS)])
def test_blocks_and_threads_run_in_no_order(launch, step, blocks, threads):
    from simdist.arrays.kernels.source import compiled
    from simdist.arrays.kernels.units import UNITS

    del launch
    x = np.arange(THREADS, dtype=np.float32)
    moved_on = np.concatenate([x[:1], x[:-1]]) if step > 0 else np.concatenate([x[1:], x[-1:]])
    found = []
    for _ in range(2):
        y = moved(x, "cupy")
        compiled(UNITS + SOURCE, "moved_on", x.dtype)(blocks, threads, y, np.int32(step), np.int32(THREADS))
        found.append((on_host(y) == moved_on).all())
    assert sorted(found) == [False, True]


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


# -- streams ------------------------------------------------------------------------------------------------


@pytest.fixture
def beside(device):
    """A device array of four, to be doubled by work that is still to be done; host memory for it; and a stream."""
    if not stands_in():
        pytest.skip("of the stand-in only")
    x, host = moved(np.ones(4), "cupy"), device.pinned(32).view(np.float64)
    x[...] = moved(np.full(4, 2.0), x)
    host[...] = 0
    return x, host, device.Stream()


@pytest.mark.parametrize(("waits", "found"), [("", 0), ("host", 1), ("stream", 0), ("both", 2)])
def test_a_copy_beside_the_arrays_waits_for_them_and_the_host_for_it_only_if_told_to(device, beside, waits, found):
    x, host, stream = beside
    if waits in ("stream", "both"):
        stream.after_arrays()
    device.copy_out(x, host, stream.raw)
    if waits in ("host", "both"):
        stream.raw.synchronize()
    assert (host == found).all()


@pytest.mark.parametrize("waits", [False, True])
def test_arrays_wait_for_a_copy_beside_them_only_if_told_to(device, beside, waits):
    x, host, stream = beside
    stream.after_arrays()
    device.copy_in(x, host, stream.raw)
    if waits:
        stream.raw.synchronize()
    assert (on_host(x) == (0 if waits else 2)).all()


@pytest.mark.parametrize("waits", [False, True])
def test_what_is_copied_from_the_host_is_read_later(device, beside, waits):
    x, host, stream = beside
    stream.after_arrays()
    device.copy_in(x, host, stream.raw)
    event = device.Event()
    event.record(stream)
    y = device.from_host(host)
    if waits:
        event.synchronize()
        device.synchronize()
    host[...] = 3
    stream.raw.synchronize()
    assert (on_host(x) == on_host(y)).all() and (on_host(x) == (0 if waits else 3)).all()


@pytest.mark.parametrize("freed", ["device", "host"])
def test_memory_is_not_freed_before_a_copy_is_done(device, beside, freed):
    stream, kept = beside[2], {"device": moved(np.ones(4), "cupy"), "host": device.pinned(32)}
    device.copy_out(kept["device"], kept["host"], stream.raw)
    del kept[freed]
    with pytest.raises(RuntimeError, match="^32 bytes were freed before their copy was done$"):
        stream.raw.synchronize()
