"""Every kernel is taken by CUDA's own compiler, which needs no card; skipped where it is not installed."""

import ctypes
import importlib
import pkgutil
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
OTHERS = [np.dtype(t) for t in (np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64)]


@pytest.fixture(scope="module")
def nvrtc():
    found = [p for entry in sys.path for p in Path(entry).glob("nvidia/*/lib/libnvrtc.so.*")]
    if not found:
        pytest.skip("needs the compiler of pip's nvidia-cuda-nvrtc")
    return ctypes.CDLL(str(found[0]))


def errors(nvrtc, source):
    """What the compiler says against a source; nothing if it takes it."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    options = [b"--gpu-architecture=compute_90", b"-std=c++17", b"--fmad=false"]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if failed else ""


def bodies():
    """The sources of all kernels, with the dtypes that they are for."""
    kernels = importlib.import_module("simdist.arrays.kernels")
    for info in pkgutil.iter_modules(kernels.__path__):
        if info.name in ("flash", "flash_backward"):
            continue  # see below
        module = importlib.import_module(f"simdist.arrays.kernels.{info.name}")
        for name, value in vars(module).items():
            if isinstance(value, str) and 'extern "C"' in value and "{name}" not in value:
                yield f"{info.name}.{name}", value, FLOATS
    fold = importlib.import_module("simdist.arrays.kernels.fold")
    for op in fold._STEPS:
        yield f"fold, {op}", fold._source(op, 3, 2), [*FLOATS, *OTHERS]
    for name in ("flash", "flash_backward"):
        flash = importlib.import_module(f"simdist.arrays.kernels.{name}")
        for e in (16, 64, 80, 128):
            yield f"{name}, {e}", flash.on_tiles(flash._SOURCE, e), FLOATS[:2]
    yield "fold, copy", fold._source("sum", 1, 3), [*FLOATS, *OTHERS]


def test_takes_every_kernel(nvrtc, device):
    from simdist.arrays.kernels.source import full_source

    sources = [
        (where, full_source(body, dtype, width, G=np.dtype(np.float16)))
        for where, body, dtypes in bodies()
        for dtype in dtypes
        for width in {1, 16 // max(dtype.itemsize, 4), 16 // dtype.itemsize}
    ]
    assert len(sources) > 50
    assert [f"{where}: {said}" for where, source in sources if (said := errors(nvrtc, source))] == []
