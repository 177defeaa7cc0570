"""Source: the code that all kernels share, and compilation for given dtypes.

    T    the type of stored numbers         A    the type of arithmetic: float for 16 and 32 bits, double for 64
    N    items that a thread reads at once, 16 bytes where addresses allow it

Kernels include no headers, so of CUDA they need only its compiler.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.errors import ArrayError

__all__ = [
    "FLOATS",
    "HALF",
    "THREADS",
    "blocks_for",
    "compiled",
    "contiguous",
    "pointwise",
    "run_pointwise",
    "threads_for",
    "width_of",
]

THREADS = 256
"""Threads per block."""

_MOST_BLOCKS = 132 * 16  # of a kernel over long arrays: enough to fill the largest GPU several times
_PACK_BYTES = 16

HALF = r"""
__device__ inline float widen(half16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ inline void set(half16& y, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
"""

_TYPES = r"""
struct half16 { unsigned short bits; };
struct bfloat { unsigned short bits; };
"""

_PRELUDE = r"""
__device__ inline float widen(bfloat x) { return __uint_as_float((unsigned)x.bits << 16); }
#if __CUDA_ARCH__ >= 800  // which rounds in one instruction, and the same but for the bits of a NaN
__device__ inline void set(bfloat& y, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#else
__device__ inline void set(bfloat& y, float x) {
    unsigned u = __float_as_uint(x);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    y.bits = nan ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}
#endif
template <class X> __device__ inline X widen(X x) { return x; }
template <class X> __device__ inline void set(X& y, X x) { y = x; }

template <class X> struct alignas(sizeof(X) * N) Pack { X x[N]; };
template <class X> __device__ inline Pack<X> load(const X* x, long long pack) {
    return reinterpret_cast<const Pack<X>*>(x)[pack];
}
template <class X> __device__ inline Pack<X> load_any(const X* x, long long pack) {  // x may be unaligned
    if (reinterpret_cast<unsigned long long>(x) % alignof(Pack<X>) == 0) return load(x, pack);
    Pack<X> p;
    for (int k = 0; k < N; ++k) p.x[k] = x[pack * N + k];
    return p;
}
template <class X> __device__ inline void store(X* x, long long pack, const Pack<X>& p) {
    reinterpret_cast<Pack<X>*>(x)[pack] = p;
}

// The sum over the threads of a block, a multiple of 32, for all of them.
template <class X> __device__ inline X block_sum(X x) {
    __shared__ X parts[32];
    for (int far = 16; far; far /= 2) x += __shfl_xor_sync(0xffffffffu, x, far);
    __syncthreads();  // the parts of the previous sum have been read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    X sum = parts[0];
    for (int i = 1; i < (int)blockDim.x / 32; ++i) sum += parts[i];
    return sum;
}

template <class X> __device__ inline X larger(X a, X b) { return a >= b || a != a ? a : b; }  // a NaN wins

template <class X> __device__ inline X block_max(X x) {
    __shared__ X parts[32];
    for (int far = 16; far; far /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, far));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    X top = parts[0];
    for (int i = 1; i < (int)blockDim.x / 32; ++i) top = larger(top, parts[i]);
    return top;
}
"""

_NAMES = {
    "float16": "half16",
    "bfloat16": "bfloat",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "unsigned long long",
}
FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
"""The names of the dtypes that all kernels take."""


def _name(dtype: np.dtype[Any]) -> str:
    if dtype.name not in _NAMES:
        raise ArrayError(f"no kernel takes dtype {dtype}; they take {', '.join(_NAMES)}")
    return _NAMES[dtype.name]


def full_source(body: str, dtype: np.dtype[Any], width: int = 1, **types: np.dtype[Any]) -> str:
    """A kernel's source with the shared code in front: see `compiled`."""
    name = _name(dtype)
    kinds = {"T": name, "A": "float" if name in ("half16", "bfloat") else name}
    kinds |= {letter: _name(of) for letter, of in types.items()}
    aliases = "".join(f"typedef {kind} {letter};\n" for letter, kind in kinds.items())
    return f"{_TYPES}{aliases}constexpr int N = {width};\n{HALF}{_PRELUDE}\n{body}"


@lru_cache(maxsize=512)
def compiled(body: str, name: str, dtype: np.dtype[Any], width: int = 1, **types: np.dtype[Any]) -> Any:
    """The kernel `name` in a source, for numbers of this dtype.

    Args:
        width: N.
        types: dtypes of the source's other letters.

    Raises:
        ArrayError: kernels do not support a dtype, such as complex numbers.
    """
    return device.Kernel(full_source(body, dtype, width, **types), name)


def pointwise(
    name: str, reads: Sequence[str], writes: Sequence[str], body: str, numbers: str = "", before: str = ""
) -> str:
    """The source of an elementwise kernel.

    Args:
        reads, writes: arrays of equal length, each as its type's letter and its name, "T x"; one may be in both.
        body: C++ that reads and sets the names, each a widened item, of index at + k; those of a thread ascend.
        numbers, before: further parameters, and C++ that each thread runs first.
    """
    arrays = dict.fromkeys([*reads, *writes])
    kinds = {array: array.split() for array in arrays}
    parameters = ", ".join(f"{'' if a in writes else 'const '}{t}* {x}_" for a, (t, x) in kinds.items())
    items = "".join(f"auto {x} = widen({x}_k); " for a, (_, x) in kinds.items() if a in reads)
    items += "".join(f"decltype(widen({x}_k)) {x}; " for a, (_, x) in kinds.items() if a not in reads)
    results = "".join(f"set({x}_k, {x}); " for x in (kinds[a][1] for a in writes))

    def loop(room: str, load: str, item: str, store: str) -> str:
        loads = "".join(
            room.format(t=t, x=x) + (load.format(t=t, x=x) if a in reads else "; ") for a, (t, x) in kinds.items()
        )
        names = "".join(item.format(t=t, x=x) for t, x in kinds.values())
        stores = "".join(store.format(t=t, x=x) for t, x in (kinds[a] for a in writes))
        return f"{loads}\nfor (int k = 0; k < WIDTH; ++k) {{ {names}{items}\n{body}\n{results} }}\n{stores}"

    packs = loop(
        "Pack<{t}> {x}_p", " = load({x}_, i); ", "{t}& {x}_k = {x}_p.x[k]; ", "store({x}_, i, {x}_p); "
    ).replace("WIDTH", "N")
    single = loop("{t} {x}_s", " = {x}_[i]; ", "{t}& {x}_k = {x}_s; ", "{x}_[i] = {x}_s; ").replace("WIDTH", "1")
    return f"""
extern "C" __global__ void {name}({parameters}, {numbers + ", " if numbers else ""}long long n) {{
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    {before}
    for (long long i = first; i < n / N; i += step) {{ const long long at = i * N; (void)at; {packs} }}
    for (long long i = n / N * N + first; i < n; i += step) {{ const long long at = i; (void)at; {single} }}
}}
"""


def run_pointwise(body: str, name: str, arrays: Sequence[Any], *numbers: Any, dtype: Any, **types: Any) -> None:
    """Run a kernel of `pointwise` on arrays in its order, with its further parameters; for dtype and types see
    `compiled`.
    """
    size, width = arrays[0].size, width_of(*arrays)
    kernel = compiled(body, name, dtype, width, **types)
    kernel(blocks_for(size, width), THREADS, *arrays, *numbers, np.int64(size))


def contiguous(x: Any) -> Any:
    """x, or a copy with its items in order and without gaps."""
    return x if x.flags.c_contiguous else x.copy()


def width_of(*arrays: Any, row: int = 0) -> int:
    """How many items a thread can read at once: 16 bytes of the widest array, or one item if an array is unaligned.

    Args:
        row: the items of a row, if each is to begin with a pack of its own; one item, unless it has whole packs.
    """
    sizes = [x.itemsize for x in arrays]
    width: int = _PACK_BYTES // max(sizes)
    if row % width:
        return 1
    for x, size in zip(arrays, sizes, strict=True):
        if x.data.ptr % (width * size):
            return 1
    return width


def threads_for(items: int, width: int = 1, most: int = THREADS) -> int:
    """The number of threads, in whole warps, of a block that has a row of so many items, at most `most`."""
    return max(32, min(most, -(-items // (32 * width)) * 32))


def blocks_for(items: int, width: int = 1) -> int:
    """The number of blocks of THREADS for a kernel over `items` items."""
    return min(_MOST_BLOCKS, -(-items // (THREADS * width)))
