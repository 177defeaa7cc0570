"""Device: arrays in the memory of a GPU, by CuPy, which this file alone imports.

CuPy's arrays support NumPy's functions. Here is what NumPy lacks: copies to and from the device, products, kernels,
streams and events, and memory that other processes can open.
"""

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy import cuda

if TYPE_CHECKING:
    from simdist.arrays.kernels.matmul import Plan

__all__ = [
    "Event",
    "Kernel",
    "PeerEvent",
    "PeerMemory",
    "Stream",
    "capability",
    "copy_in",
    "copy_out",
    "empty",
    "exported",
    "failure",
    "from_host",
    "gemm",
    "memory_bytes",
    "milliseconds",
    "name",
    "num_devices",
    "num_processors",
    "pinned",
    "place_of",
    "select",
    "synchronize",
    "to_host",
    "versions",
]

_runtime = cuda.runtime
failure: Any = _runtime.CUDARuntimeError
"""The exception that CUDA raises."""
_EXPORT_BYTES = 2 << 20  # CUDA shares memory with other processes in pieces of 2 MiB

# -- arrays --------------------------------------------------------------------------------------------


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """A new array on this process's device."""
    return cupy.ndarray(shape, dtype)


def from_host(x: Any) -> Any:
    """A copy of a NumPy array on the device.

    Memory that is `pinned` is read later, at its turn among the work on arrays: until then it must not change.
    """
    return cupy.asarray(x, order="C")


def to_host(x: Any, locked: bool = False) -> Any:
    """A copy of a device array as NumPy's, complete when this returns; in `pinned` memory if it is to be `locked`."""
    return cupy.asnumpy(x, out=pinned(x.nbytes).view(x.dtype).reshape(x.shape) if locked else None)


def pinned(num_bytes: int) -> Any:
    """Page-locked host memory, which the device accesses directly: a NumPy array of bytes."""
    return np.frombuffer(cuda.alloc_pinned_memory(max(1, num_bytes)), np.uint8, num_bytes)


def copy_out(x: Any, host: Any, stream: Any) -> None:
    """Start to copy a contiguous device array into host memory of the same size."""
    x.data.copy_to_host_async(host.ctypes.data, x.nbytes, stream)


def copy_in(x: Any, host: Any, stream: Any) -> None:
    """Start to copy host memory into a contiguous device array of the same size."""
    x.data.copy_from_host_async(host.ctypes.data, x.nbytes, stream)


# -- the device ------------------------------------------------------------------------------------------


def num_devices() -> int:
    """The number of GPUs that this process sees; 0 without a driver."""
    try:
        return int(_runtime.getDeviceCount())
    except failure:
        return 0


def select(index: int) -> None:
    """Use this GPU from now on."""
    cuda.Device(index).use()


def place_of(index: int) -> str:
    """The PCI bus id of a GPU: the same in all processes, however they number their GPUs."""
    return str(_runtime.deviceGetPCIBusId(index))


def name() -> str:
    """The name of the GPU in use."""
    return str(_runtime.getDeviceProperties(_runtime.getDevice())["name"].decode(errors="replace"))


def num_processors() -> int:
    """The number of streaming multiprocessors of the GPU in use."""
    return int(_runtime.getDeviceProperties(_runtime.getDevice())["multiProcessorCount"])


def capability() -> int:
    """The compute capability of the GPU in use, times ten: 90 for Hopper."""
    return int(cuda.Device().compute_capability)


def versions() -> str:
    """The versions of CuPy, CUDA and the driver."""
    both = _runtime.runtimeGetVersion(), _runtime.driverGetVersion()
    runtime, driver = (f"{v // 1000}.{v % 1000 // 10}" for v in both)
    return f"CuPy {cupy.__version__}, CUDA {runtime}, driver for CUDA {driver}"


def memory_bytes() -> tuple[int, int]:
    """The free and the total memory of the GPU in use."""
    free, total = cuda.Device().mem_info
    return int(free), int(total)


def synchronize() -> None:
    """Wait for all work on arrays that this thread has started."""
    cuda.get_current_stream().synchronize()


# -- streams, events, kernels -----------------------------------------------------------------------------


class Stream:
    """A CUDA stream beside the one that arrays are computed on."""

    def __init__(self) -> None:
        self.raw = cuda.Stream(non_blocking=True)

    def after_arrays(self) -> None:
        """Make later work on this stream wait for the work on arrays so far."""
        self.raw.wait_event(cuda.get_current_stream().record(cuda.Event(disable_timing=True)))


class Event:
    """A CUDA event in the work on arrays, or on another stream.

    Args:
        timing: whether it can be given to `milliseconds`.
        shared: whether other processes can wait for it.
    """

    def __init__(self, timing: bool = False, shared: bool = False) -> None:
        self.raw = cuda.Event(disable_timing=not timing, interprocess=shared)

    def record(self, stream: Stream | None = None) -> None:
        """Place it after all work so far."""
        self.raw.record(stream.raw if stream else cuda.get_current_stream())

    def synchronize(self) -> None:
        """Wait for it."""
        self.raw.synchronize()

    @property
    def handle(self) -> bytes:
        """The handle with which another process opens it."""
        return bytes(_runtime.ipcGetEventHandle(self.raw.ptr))


def milliseconds(start: Event, end: Event) -> float:
    """The time between two events that have happened."""
    return float(cuda.get_elapsed_time(start.raw, end.raw))


class Kernel:
    """A function for the device, compiled at its first call; CuPy caches it on disk.

    Products and sums are rounded separately (no fused multiply-add), so sums in NumPy's order give NumPy's bits. But
    CuPy has float32 numbers below the least normal one count as zero.
    """

    def __init__(self, source: str, called: str) -> None:
        self._raw = cupy.RawKernel(source, called, options=("-std=c++17", "--fmad=false"))

    def __call__(self, blocks: int | tuple[int, ...], threads: int, *args: Any) -> None:
        """Launch it.

        Args:
            blocks: the number of blocks, in one dimension or more; nothing is launched for 0.
            threads: per block.
            args: contiguous arrays and NumPy scalars, of the types that the kernel takes.
        """
        grid = (blocks,) if isinstance(blocks, int) else blocks
        if all(grid):
            self._raw(grid, (threads,), args)


def gemm(plan: "Plan", x: Any, w: Any, y: Any, factors: tuple[Any, int, int], compute: int) -> None:
    """y = α x @ w + β y.

    cuBLAS takes matrices in column-major order, so it computes the transpose, wᵀ xᵀ.

    Args:
        plan: shapes, layouts and types.
        factors: α and β in host memory, as an array, and their addresses there.
        compute: cuBLAS's number for the type of arithmetic.
    """
    count, m, n, k = plan.shape
    (x_across, x_pitch, x_stride), (w_across, w_pitch, w_stride), y_at = plan.x, plan.w, plan.y
    (factor, result), (_, alpha, beta) = plan.types, factors
    _cublas().gemmStridedBatchedEx(
        cuda.get_cublas_handle(), int(w_across), int(x_across), n, m, k, alpha,
        w.data.ptr, factor, w_pitch, w_stride, x.data.ptr, factor, x_pitch, x_stride,
        beta, y.data.ptr, result, y_at.pitch, y_at.stride, count, compute, -1,
    )  # fmt: skip


@lru_cache
def _cublas() -> Any:
    """CuPy's module, loaded late: the library is large."""
    from cupy_backends.cuda.libs import cublas

    return cublas


# -- memory for other processes ---------------------------------------------------------------------------


def exported(num_bytes: int) -> tuple[Any, bytes]:
    """New memory, as an array of bytes, and the handle with which other processes open it.

    A handle is of a whole allocation, and those of CuPy's pool hold many arrays, so this one is made without the pool.
    """
    size = max(1, -(-num_bytes // _EXPORT_BYTES)) * _EXPORT_BYTES
    try:
        memory = cuda.Memory(size)
    except failure:  # the pool's unused memory may be enough
        cupy.get_default_memory_pool().free_all_blocks()
        memory = cuda.Memory(size)
    handle = bytes(_runtime.ipcGetMemHandle(memory.ptr))
    return cupy.ndarray((num_bytes,), np.uint8, cuda.MemoryPointer(memory, 0)), handle


class PeerMemory:
    """Memory of another process, opened by its handle. Close it before its owner frees it.

    Attributes:
        bytes: the memory as an array.
    """

    def __init__(self, handle: bytes, num_bytes: int) -> None:
        self._pointer = _runtime.ipcOpenMemHandle(handle)
        here = _runtime.getDevice()  # the device that accesses the memory, which may be on another
        memory = cuda.UnownedMemory(self._pointer, num_bytes, self, here)
        self.bytes = cupy.ndarray((num_bytes,), np.uint8, cuda.MemoryPointer(memory, 0))

    def close(self) -> None:
        """Close it. Its arrays must not be used afterwards."""
        if self._pointer:
            with suppress(failure):  # at exit CUDA may be gone already
                _runtime.ipcCloseMemHandle(self._pointer)
            self._pointer = 0


class PeerEvent:
    """Another process's event, opened by its handle."""

    def __init__(self, handle: bytes) -> None:
        self._raw = _runtime.ipcOpenEventHandle(handle)

    def wait(self) -> None:
        """Make later work on arrays wait for the event as last recorded, without blocking this process."""
        _runtime.streamWaitEvent(cuda.get_current_stream().ptr, self._raw)

    def close(self) -> None:
        """Close it."""
        if self._raw:
            with suppress(failure):
                _runtime.eventDestroy(self._raw)
            self._raw = 0
