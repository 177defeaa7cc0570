"""CUDA's memory, streams and events, of one pretended card, which is as slow as it may be.

What is started on a stream is done when something waits for it: the host for the stream or an event in it, or another
stream that comes to its turn. So numbers are wrong where a wait is missing, and memory that is freed too early is told.
"""

import ctypes
import mmap
import os
import threading
import time
import weakref
from collections import deque

import numpy as np

_ROUND = 1 << 12
_cards = 1


def at(ptr, shape, dtype):
    """The array that lies at an address."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) if not isinstance(shape, int) else shape
    if not count:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(ptr)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


class Memory:
    """A file in memory, without a name of its own, that other processes can map as long as this one lives."""

    def __init__(self, size):
        self.size = size
        self.device_id = runtime.getDevice()
        handle = os.memfd_create("simdist-fake-cuda")
        os.truncate(handle, max(1, -(-size // _ROUND)) * _ROUND)
        self._map = mmap.mmap(handle, 0)
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        runtime._exported[self.ptr] = f"/proc/{os.getpid()}/fd/{handle}"
        weakref.finalize(self, _forget, handle, self.ptr)


def _forget(handle, ptr):
    os.close(handle)
    runtime._exported.pop(ptr, None)


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, max(0, device_id)

    def alive(self):
        """A weak reference to what owns the memory."""
        base = self._owner.base
        return weakref.ref(self._owner if base is None else base)


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset

    def copy_to_host_async(self, mem, size, stream=None):
        self._start_copy(mem, self.ptr, mem, size, stream)

    def copy_from_host_async(self, mem, size, stream=None):
        self._start_copy(self.ptr, mem, mem, size, stream)

    def _start_copy(self, to, start, host, size, stream):
        here, there = self.mem.alive(), pinned_at(host)
        stream = stream or Stream.null

        def copy():
            if here() is None or (there is not None and there() is None):
                raise RuntimeError(f"{size} bytes were freed before their copy was done")
            ctypes.memmove(to, start, size)

        stream.start(copy)
        if there is None:  # memory that the system may page out is copied before the call returns
            stream.synchronize()


_pinned = {}  # by address: size, and a weak reference


def alloc_pinned_memory(size):
    made = np.full(max(size, 1), 0xCD, np.uint8)
    _pinned[made.ctypes.data] = made.nbytes, weakref.ref(made)
    weakref.finalize(made, _pinned.pop, made.ctypes.data).atexit = False
    return made


def pinned_at(address):
    """A weak reference to the page-locked memory in which this address lies, if there is such."""
    return next((ref for start, (size, ref) in _pinned.copy().items() if start <= address < start + size), None)


class Event:
    _made = 0

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        Event._made += 1
        self.ptr, self._time_s, self._interprocess, self.wait = Event._made, None, interprocess, lambda: None

    def record(self, stream=None):
        stream = stream or Stream.null
        self._time_s, self.wait = time.perf_counter(), stream.mark()
        if self._interprocess:  # nobody there can do what is started here
            stream.synchronize()

    def synchronize(self):
        self.wait()


def get_elapsed_time(start_event, end_event):
    return (end_event._time_s - start_event._time_s) * 1e3


class Stream:
    """One that does not wait for the default stream, nor that for it; see above."""

    null = None
    _turn = threading.RLock()  # of the thread that does what was started

    def __init__(self, null=False, non_blocking=False, ptds=False, *, priority=None):
        if not (null or non_blocking):
            raise NotImplementedError("a stream that waits for the default stream")
        self.ptr = 0
        self._todo, self._done = deque(), 0

    def start(self, work):
        self._todo.append(work)

    def synchronize(self, end=None):
        with Stream._turn:
            while self._todo and (end is None or self._done < end):
                self._done += 1
                try:
                    self._todo.popleft()()
                except BaseException:  # after a failure a card does no more
                    self._done += len(self._todo)
                    self._todo.clear()
                    raise

    def mark(self):
        """A function that returns when all that is started by now is done."""
        with Stream._turn:
            end = self._done + len(self._todo)
        return lambda: self.synchronize(end)

    def wait_event(self, event):
        self.start(event.wait)

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event


Stream.null = Stream(null=True)


def get_current_stream(device_id=-1):
    return Stream.null


def get_cublas_handle():
    return 1


class Device:
    def __init__(self, device=None):
        self.id = runtime.getDevice() if device is None else device
        self.mem_info = (1 << 33, 1 << 34)
        self.compute_capability = "90"

    def use(self):
        runtime.setDevice(self.id)


class MemoryPool:
    def free_all_blocks(self):
        return None


class runtime:
    """As of CuPy; every call that opens or closes something is noted in `calls`."""

    class CUDARuntimeError(RuntimeError):
        pass

    calls = []
    _exported = {}
    _opened = {}
    _device = 0

    @staticmethod
    def getDeviceCount():
        return int(os.environ.get("FAKE_CUDA_CARDS", _cards))

    @classmethod
    def getDevice(cls):
        return cls._device

    @classmethod
    def setDevice(cls, device):
        cls._device = device

    @staticmethod
    def deviceGetPCIBusId(device):
        return f"0000:{device:02x}:00.0"

    @staticmethod
    def getDeviceProperties(device):
        return {"name": b"no card at all", "multiProcessorCount": 4, "totalGlobalMem": 1 << 34}

    @staticmethod
    def runtimeGetVersion():
        return 13000

    @staticmethod
    def driverGetVersion():
        return 13000

    @classmethod
    def ipcGetMemHandle(cls, ptr):
        if os.environ.get("FAKE_CUDA_IPC") == "0":
            raise cls.CUDARuntimeError("cudaErrorNotSupported: operation not supported")
        if ptr not in cls._exported:
            raise cls.CUDARuntimeError("cudaErrorInvalidValue: no start of a plain allocation")
        cls.calls.append(("export", ptr))
        return cls._exported[ptr].encode().ljust(64, b"\0")

    @classmethod
    def ipcOpenMemHandle(cls, handle, flags=1):
        path = handle.rstrip(b"\0").decode()
        if path in cls._exported.values():
            raise cls.CUDARuntimeError("cudaErrorInvalidContext: opened in the process that exported it")
        with open(path, "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        ptr = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        cls._opened[ptr] = mapped
        cls.calls.append(("open", ptr))
        return ptr

    @classmethod
    def ipcCloseMemHandle(cls, ptr):
        if Stream.null._todo:
            raise RuntimeError("memory of another process is closed, and not all work is done")
        del cls._opened[ptr]
        cls.calls.append(("close", ptr))

    @staticmethod
    def ipcGetEventHandle(event):
        return str(event).encode().ljust(64, b"\0")

    @staticmethod
    def ipcOpenEventHandle(handle):
        return int(handle.rstrip(b"\0"))

    @staticmethod
    def eventDestroy(event):
        return None

    @staticmethod
    def streamWaitEvent(stream, event, flags=0):
        return None
