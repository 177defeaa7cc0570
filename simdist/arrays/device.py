"""Device: arrays in the memory of a GPU, by CuPy, which this file alone imports.

CuPy's arrays answer to NumPy's functions. Here is what NumPy has no word for: ways in and out, products, kernels,
streams and events, and memory that other processes can open.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy import cuda

if TYPE_CHECKING:
    from simdist.arrays.kernels.matmul import Matrices

__all__ = [
    "Event",
    "Kernel",
    "PeerEvent",
    "PeerMemory",
    "Stream",
    "address",
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
"""What CUDA raises."""
_EXPORT_BYTES = 2 << 20  # CUDA hands out memory for other processes in pieces of two megabytes

# -- arrays --------------------------------------------------------------------------------------------


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """A new array on this process's device."""
    return cupy.empty(shape, np.dtype(dtype))


def from_host(x: Any) -> Any:
    """A copy of a NumPy array on the device."""
    return cupy.asarray(x, order="C")


def to_host(x: Any, locked: bool = False) -> Any:
    """A copy of a device array as NumPy's, complete when this returns; in `pinned` memory if it is to be `locked`."""
    return cupy.asnumpy(x, out=pinned(x.nbytes).view(x.dtype).reshape(x.shape) if locked else None)


def address(x: Any) -> int:
    """Where an array begins in the device's memory."""
    return int(x.data.ptr)


def pinned(num_bytes: int) -> Any:
    """Memory of the host that the device reads and writes by itself: a NumPy array of bytes."""
    return np.frombuffer(cuda.alloc_pinned_memory(max(1, num_bytes)), np.uint8, num_bytes)


def copy_out(x: Any, host: Any, stream: Any) -> None:
    """Begin to copy a contiguous device array into host memory of as many bytes."""
    x.data.copy_to_host_async(host.ctypes.data, x.nbytes, stream)


def copy_in(x: Any, host: Any, stream: Any) -> None:
    """Begin to copy host memory into a contiguous device array of as many bytes."""
    x.data.copy_from_host_async(host.ctypes.data, x.nbytes, stream)


# -- the device ------------------------------------------------------------------------------------------


def num_devices() -> int:
    """How many GPUs this process sees; 0 where there is no driver."""
    try:
        return int(_runtime.getDeviceCount())
    except failure:
        return 0


def select(index: int) -> None:
    """Use this GPU from now on."""
    cuda.Device(index).use()


def place_of(index: int) -> str:
    """Which GPU of the machine this is, whatever number a process has for it."""
    return str(_runtime.deviceGetPCIBusId(index))


def name() -> str:
    """What the GPU in use is called."""
    return str(_runtime.getDeviceProperties(_runtime.getDevice())["name"].decode(errors="replace"))


def num_processors() -> int:
    """How many streaming multiprocessors it has."""
    return int(_runtime.getDeviceProperties(_runtime.getDevice())["multiProcessorCount"])


def versions() -> str:
    """Of CuPy, CUDA and the driver."""
    both = _runtime.runtimeGetVersion(), _runtime.driverGetVersion()
    runtime, driver = (f"{v // 1000}.{v % 1000 // 10}" for v in both)
    return f"CuPy {cupy.__version__}, CUDA {runtime}, driver for CUDA {driver}"


def memory_bytes() -> tuple[int, int]:
    """How much of the GPU's memory is free, and how much there is."""
    free, total = cuda.Device().mem_info
    return int(free), int(total)


def synchronize() -> None:
    """Return when all that this thread has begun on the device is done."""
    cuda.get_current_stream().synchronize()


# -- streams, events, kernels -----------------------------------------------------------------------------


class Stream:
    """A line of work on the device, beside the one that arrays are computed on."""

    def __init__(self) -> None:
        self.raw = cuda.Stream(non_blocking=True)

    def after_arrays(self) -> None:
        """Let what comes on it wait for what has been begun on arrays until now."""
        self.raw.wait_event(cuda.get_current_stream().record(cuda.Event(disable_timing=True)))

    def before_arrays(self) -> None:
        """Let what comes on arrays wait for what has been begun on it until now."""
        cuda.get_current_stream().wait_event(self.raw.record(cuda.Event(disable_timing=True)))


class Event:
    """A moment in the work on arrays, or on another stream.

    Args:
        timing: whether times between it and others will be asked for.
        shared: whether other processes will wait for it.
    """

    def __init__(self, timing: bool = False, shared: bool = False) -> None:
        self.raw = cuda.Event(disable_timing=not timing, interprocess=shared)

    def record(self, stream: Stream | None = None) -> None:
        """It is when all that has been begun until now is done."""
        self.raw.record(stream.raw if stream else cuda.get_current_stream())

    def synchronize(self) -> None:
        """Return when it has been."""
        self.raw.synchronize()

    @property
    def handle(self) -> bytes:
        """What another process opens it by."""
        return bytes(_runtime.ipcGetEventHandle(self.raw.ptr))


def milliseconds(start: Event, end: Event) -> float:
    """The time between two events that have been."""
    return float(cuda.get_elapsed_time(start.raw, end.raw))


class Kernel:
    """A function for the device, compiled when it is first called; CuPy keeps it on disk for the next process.

    Products and sums are rounded apart, as NumPy rounds them: so what adds in the same order gives the same bits.
    """

    def __init__(self, source: str, called: str) -> None:
        self._raw = cupy.RawKernel(source, called, options=("-std=c++17", "--fmad=false"))

    def __call__(self, blocks: int | tuple[int, ...], threads: int, *args: Any) -> None:
        """Launch it.

        Args:
            blocks: how many, in one direction or more; nothing happens if there is none.
            threads: in each.
            args: arrays, contiguous, and NumPy's own numbers, each of the type that the kernel takes.
        """
        grid = (blocks,) if isinstance(blocks, int) else blocks
        if all(grid):
            self._raw(grid, (threads,), args)


_CUDA_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # CUDA's library_types.h
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77  # cublas_api.h


def gemm(
    shape: tuple[int, int, int, int], x: "Matrices", w: "Matrices", y: "Matrices", scale: float, add: bool, tf32: bool
) -> None:
    """y = scale x @ w, or y += scale x @ w, with sums of 32 bits at least.

    cuBLAS takes matrices column by column, and so is asked for the transpose, wᵀ xᵀ.

    Args:
        shape: how many products, and their m, n and k.
        y: row by row; of the dtype of x and w, or float32 where these are of 16 bits.
        tf32: whether float32 may be rounded to the 19 bits that matrix units multiply.
    """
    from cupy_backends.cuda.libs import cublas  # the library is large, and needed by products alone

    count, m, n, k = shape
    wide = x.x.itemsize == 8
    compute = _COMPUTE_64F if wide else _COMPUTE_TF32 if tf32 and x.x.itemsize == 4 else _COMPUTE_32F
    factor, result = (_CUDA_TYPES[z.x.dtype.name] for z in (x, y))
    factors = np.array([scale, add], np.float64 if wide else np.float32)
    alpha, beta = factors.ctypes.data, factors.ctypes.data + factors.itemsize
    cublas.gemmStridedBatchedEx(
        cuda.get_cublas_handle(), int(w.across), int(x.across), n, m, k, alpha,
        address(w.x), factor, w.pitch, w.stride, address(x.x), factor, x.pitch, x.stride,
        beta, address(y.x), result, y.pitch, y.stride, count, compute, -1,
    )  # fmt: skip


# -- memory for other processes ---------------------------------------------------------------------------


def exported(num_bytes: int) -> tuple[Any, bytes]:
    """New memory, as an array of bytes, and what other processes open it by.

    CuPy's pool cuts many arrays out of one allocation, and a handle is of a whole one: so this is its own.
    """
    size = max(1, -(-num_bytes // _EXPORT_BYTES)) * _EXPORT_BYTES
    try:
        memory = cuda.Memory(size)
    except failure:  # what the pool keeps for later may be enough
        cupy.get_default_memory_pool().free_all_blocks()
        memory = cuda.Memory(size)
    handle = bytes(_runtime.ipcGetMemHandle(memory.ptr))
    return cupy.ndarray((num_bytes,), np.uint8, cuda.MemoryPointer(memory, 0)), handle


class PeerMemory:
    """Memory of another process, opened by its handle; to be closed before its owner frees it.

    Attributes:
        bytes: all of it, as an array.
    """

    def __init__(self, handle: bytes, num_bytes: int) -> None:
        self._pointer = _runtime.ipcOpenMemHandle(handle)
        here = _runtime.getDevice()  # as the memory is reached from here, wherever it lies
        memory = cuda.UnownedMemory(self._pointer, num_bytes, self, here)
        self.bytes = cupy.ndarray((num_bytes,), np.uint8, cuda.MemoryPointer(memory, 0))

    def close(self) -> None:
        """Let go of it; its arrays are not to be used any more."""
        if self._pointer:
            with suppress(failure):  # at the end of a process CUDA may be gone before
                _runtime.ipcCloseMemHandle(self._pointer)
            self._pointer = 0


class PeerEvent:
    """Another process's event, opened by its handle."""

    def __init__(self, handle: bytes) -> None:
        self._raw = _runtime.ipcOpenEventHandle(handle)

    def wait(self) -> None:
        """Let what comes on arrays wait for the event as it was last recorded; this process goes on."""
        _runtime.streamWaitEvent(cuda.get_current_stream().ptr, self._raw)

    def close(self) -> None:
        """Let go of it."""
        if self._raw:
            with suppress(failure):
                _runtime.eventDestroy(self._raw)
            self._raw = 0
