"""Kernels compiled as C++ for the processor, a block at a time: its threads are fibers that meet at barriers.

So a kernel's arithmetic and its addresses are tried, barriers and shuffles included, and some races: one thread runs at
a time, but each warp as far ahead of the others as barriers let it, and copies that are not awaited have not come. Blocks
and threads begin with the last one and with the first one in turn, from launch to launch: CUDA promises them no order.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import subprocess
from functools import partial
from pathlib import Path

import numpy as np

from cupy import cuda

_SHIM = r"""
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
// By hand: <cmath>, <algorithm> and <vector> would be most of what there is to compile.
#define OF_NUMBERS(name) static float name(float x) { return __builtin_##name##f(x); } static double name(double x) { return __builtin_##name(x); }
OF_NUMBERS(sqrt) OF_NUMBERS(exp) OF_NUMBERS(exp2) OF_NUMBERS(tanh) OF_NUMBERS(log)
static float log2f(float x) { return __builtin_log2f(x); }
static float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
template <class X> static bool isnan(X x) { return __builtin_isnan(x); }
template <class X> static bool isfinite(X x) { return __builtin_isfinite(x); }
template <class X> static X min(X x, X y) { return y < x ? y : x; }
#define __global__
#define __device__
// Together, so that they can be spoiled; not those in templates, where GCC up to 12 at least overlooks the section.
#define __shared__ static __attribute__((section("shared_")))
extern "C" char __start_shared_[] __attribute__((weak, visibility("hidden"))), __stop_shared_[] __attribute__((weak, visibility("hidden")));
#define __restrict__
#define __launch_bounds__(...)
struct uint3_ { unsigned x, y, z; };
static uint3_ threadIdx, blockIdx, blockDim, gridDim;
enum { MOST = 1024, STACK = 1 << 16 };  // threads of a block
enum { UNALIGNED = 1, APART = 2 };
static int wrong;  // what was, of these
#if defined(__x86_64__)  // without the calls to the system that swapcontext makes
struct Fiber { void* top; };
static Fiber home, fibers[MOST];
asm(".text\n.type switch_to, @function\nswitch_to:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov (%rsi), %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
extern "C" void switch_to(Fiber* from, Fiber* to) __attribute__((visibility("hidden")));
static void make_(Fiber& fiber, char* stack, size_t size, void (*f)()) {
    void** top = (void**)((size_t)(stack + size) & ~(size_t)15);
    *--top = 0; *--top = (void*)f;
    for (int i = 0; i < 6; ++i) *--top = 0;
    fiber.top = top;
}
#else
typedef ucontext_t Fiber;
static Fiber home, fibers[MOST];
static void switch_to(Fiber* from, Fiber* to) { swapcontext(from, to); }
static void make_(Fiber& fiber, char* stack, size_t size, void (*f)()) {
    getcontext(&fiber); fiber.uc_stack.ss_sp = stack; fiber.uc_stack.ss_size = size; fiber.uc_link = &home;
    makecontext(&fiber, f, 0);
}
#endif
static bool over[MOST]; static char* stacks[MOST];
static int me, arrived, turn, warp_arrived[MOST / 32], warp_turn[MOST / 32];
static int* gate[MOST]; static int shut[MOST];  // a thread waits while its gate shows what it did when it was shut
// Copies on their way, of each thread: until they are awaited nobody reads from there what was, nor what will be.
struct Copy { void* to; const void* from; int size; bool there; };
enum { COPIES = 256 };  // of a thread at a time
static Copy copies[MOST][COPIES]; static int coming[MOST];
static char slots[2][MOST][16]; static bool side[MOST], other_side[MOST];
static void yield_() { switch_to(&fibers[me], &home); }
static void meet_(int& came, int& now, int all) {
    if (++came == all) { came = 0; ++now; return; }
    gate[me] = &now; shut[me] = now; yield_();
}
static void __syncthreads() { meet_(arrived, turn, blockDim.x); }
static void meet_warp_() { int w = me / 32; int rest = (int)blockDim.x - w * 32; meet_(warp_arrived[w], warp_turn[w], rest < 32 ? rest : 32); }
// Who writes to a side again has met all others since, who had read it by then.
template <class X> static X shown_(X x, int whose) {
    bool now = side[me] ^= 1;
    memcpy(slots[now][me], &x, sizeof(X)); meet_warp_();
    X y; memcpy(&y, slots[now][whose], sizeof(X)); return y;
}
template <class X> static X __shfl_xor_sync(unsigned, X x, int far) { return shown_(x, me ^ far); }
template <class X> static X __shfl_sync(unsigned, X x, int lane) { return shown_(x, me / 32 * 32 + lane); }
static void __syncwarp() { meet_warp_(); }
template <class X> static X atomicAdd(X* p, X x) { X old = *p; *p += x; return old; }
template <class X> static X atomicMax(X* p, X x) { X old = *p; if (x > old) *p = x; return old; }
static unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
static float __uint_as_float(unsigned u) { float x; memcpy(&x, &u, 4); return x; }
static long long __double_as_longlong(double x) { long long u; memcpy(&u, &x, 8); return u; }
static float rsqrtf(float x) { return 1 / sqrt(x); }
#define INFINITY_ (1.0f / 0.0f)
"""
_HALF = r"""
static float widen(half16 x) { _Float16 h; memcpy(&h, &x.bits, 2); return h; }
static void set(half16& y, float x) { _Float16 h = x; memcpy(&y.bits, &h, 2); }
"""
_UNITS = r"""
// What each lane of a warp shows the others; who writes to a side again has met all others since.
static unsigned shown[2][MOST][6]; static const unsigned short* rows[2][MOST];
static float item_(unsigned r, int i, bfloat) { return widen(bfloat{(unsigned short)(r >> 16 * i)}); }
static float item_(unsigned r, int i, half16) { return widen(half16{(unsigned short)(r >> 16 * i)}); }
template <class X> static void multiply(float* d, const unsigned* a, const unsigned* b, X kind) {
    bool now = other_side[me] ^= 1;
    memcpy(shown[now][me], a, 16); memcpy(shown[now][me] + 4, b, 8); meet_warp_();
    int warp = me / 32 * 32, g = me % 32 / 4, c = me % 4;
    for (int i = 0; i < 4; ++i) for (int k = 0; k < 16; ++k) {
        unsigned x = shown[now][warp + 4 * g + k % 8 / 2][k / 8 * 2 + i / 2];
        unsigned y = shown[now][warp + 4 * (2 * c + i % 2) + k % 8 / 2][4 + k / 8];
        d[i] += item_(x, k % 2, kind) * item_(y, k % 2, kind);
    }
}
template <class X> static unsigned pair(float first, float second, X) {
    X x, y; set(x, first); set(y, second); return x.bits | (unsigned)y.bits << 16;
}
static void load_(unsigned* r, const void* row, bool across) {
    bool now = other_side[me] ^= 1;
    rows[now][me] = (const unsigned short*)row; meet_warp_();
    int warp = me / 32 * 32, g = me % 32 / 4, c = me % 4 * 2;
    for (int i = 0; i < 4; ++i) {
        const unsigned short* const* of = rows[now] + warp + 8 * i;
        r[i] = across ? of[c][g] | (unsigned)of[c + 1][g] << 16 : of[g][c] | (unsigned)of[g][c + 1] << 16;
    }
}
static void load(unsigned* r, const void* row) { load_(r, row, false); }
static void load_transposed(unsigned* r, const void* row) { load_(r, row, true); }
enum { OUTSIDE = 3 };
static const size_t* arrays; static int num_arrays;  // where each begins and ends
extern "C" void arrays_are(const size_t* ends, int count) { arrays = ends; num_arrays = count; }
static void copy_(Copy it) {
    size_t from = (size_t)it.from;
    bool inside = !it.there;
    for (int i = 0; i < num_arrays; ++i) inside |= arrays[2 * i] <= from && from + it.size <= arrays[2 * i + 1];
    if (!inside) wrong = OUTSIDE, it.there = false;
    if (((size_t)it.to | from) % it.size) wrong = UNALIGNED;
    memset(it.to, 0xff, it.size);  // no number
    if (coming[me] == COPIES) __builtin_trap();
    copies[me][coming[me]++] = it;
}
static void copy16(void* to, const void* from, bool there) { copy_({to, from, 16, there}); }
static void copy4(void* to, const void* from, bool there) { copy_({to, from, 4, there}); }
static void await_copies() {
    for (const Copy* it = copies[me]; coming[me]; --coming[me], ++it) it->there ? memcpy(it->to, it->from, it->size) : memset(it->to, 0, it->size);
}
static float power(float x) { return exp2(x); }
"""
_LAUNCH = r"""
static void (*body)(void**); static void** given;
static void start_() { body(given); over[me] = 1; switch_to(&fibers[me], &home); }
// Run a warp until all its threads have ended or wait, the last one first or the first; whether any of them could run.
static bool advance_(int warp, int threads, bool back) {
    const int first = 32 * warp, count = min(32, threads - first);
    bool ran = false;
    for (bool going = true; going;) {
        going = false;
        for (int n = 0; n < count; ++n) if (int i = first + (back ? count - 1 - n : n); !over[i] && !(gate[i] && *gate[i] == shut[i])) {
            me = i; threadIdx = {(unsigned)i, 0, 0}; switch_to(&home, &fibers[i]);
            going = ran = true;
        }
    }
    return ran;
}
static void launch_(void (*f)(void**), void** args, const unsigned* grid, unsigned threads) {
    static bool backward = false;  // the last block, warp and thread first
    backward ^= 1;
    body = f; given = args; gridDim = {grid[0], grid[1], grid[2]}; blockDim = {threads, 1, 1};
    const size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    for (size_t n = 0; n < blocks; ++n) {
        const size_t b = backward ? blocks - 1 - n : n;
        blockIdx = {unsigned(b % grid[0]), unsigned(b / grid[0] % grid[1]), unsigned(b / grid[0] / grid[1])}; arrived = 0; memset(gate, 0, sizeof gate);
        memset(__start_shared_, 0xff, __stop_shared_ - __start_shared_);  // no numbers: it has to be written first
        memset(over, 0, sizeof over); memset(side, 0, sizeof side); memset(other_side, 0, sizeof other_side);
        memset(warp_arrived, 0, sizeof warp_arrived);
        for (unsigned i = 0; i < threads; ++i) {
            if (!stacks[i]) stacks[i] = new char[STACK];
            make_(fibers[i], stacks[i], STACK, start_);
            coming[i] = 0;
        }
        // Each warp runs as far ahead of the others as it may, now the first and then the last one first.
        const int warps = (threads + 31) / 32;
        bool ran = true;
        for (bool back = backward; ran; back = !back) {
            ran = false;
            for (int w = 0; w < warps; ++w) ran |= advance_(back ? warps - 1 - w : w, threads, back);
        }
        for (unsigned i = 0; i < threads; ++i) if (!over[i]) wrong = APART;
        if (wrong) return;
    }
}
"""
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(([^)]*)\)')
# Without gnu-unique, so that libraries do not share what is static in a template: blocks' shared memory.
_OPTIONS = ["-O1", "-std=c++17", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-gnu-unique", "-x", "c++"]
_TYPEDEF = re.compile(r"^typedef (.*) ([A-Z]);$", re.MULTILINE)
_WRONG = {
    1: "copies 4 or 16 bytes at an address that is no multiple of that",
    2: "has threads that wait for others for ever",
    3: "copies from outside of its arrays",
}
_libraries = {}
launches = []  # the names of kernels, in the order in which they were launched


def _translated(source):
    """A kernel's source as C++ for the processor."""
    from simdist.arrays.kernels.source import HALF
    from simdist.arrays.kernels.units import UNITS

    source = source.replace(HALF, _HALF).replace(UNITS, _UNITS)
    calls = ""
    for name, parameters in _SIGNATURE.findall(source):
        types = [" ".join(p.replace("__restrict__", "").split()[:-1]) for p in parameters.split(",")]
        arguments = ", ".join(f"*({kind}*)a[{i}]" for i, kind in enumerate(types))
        calls += f"static void call_{name}(void** a) {{ {name}({arguments}); }}\n"
        calls += f'extern "C" int launch_{name}(void** a, const unsigned* g, unsigned t) '
        calls += f"{{ wrong = 0; launch_(call_{name}, a, g, t); return wrong; }}\n"
    return _SHIM + source + _LAUNCH + calls


def _compile(text, path):
    own = path.with_suffix(f".{os.getpid()}")
    done = subprocess.run(["g++", *_OPTIONS, "-", "-o", own], input=text, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{done.stderr}\n{text}")
    own.rename(path)


def _library(source):
    """The library of a kernel's source; it is compiled once for all processes, and lies where Python's own code does."""
    if source not in _libraries:
        text = _translated(source)
        path = (
            Path(__file__).parent
            / "__pycache__"
            / f"{hashlib.sha256(f'{_OPTIONS}{text}'.encode()).hexdigest()[:24]}.so"
        )
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            with path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # of ranks that come for it at once, the first compiles it for all
                if not path.exists():
                    _compile(text, path)
        _libraries[source] = ctypes.CDLL(str(path)), dict(_SIGNATURE.findall(source))
    return _libraries[source]


_SIZES = {"int": 4, "unsigned": 4, "float": 4, "double": 8, "long long": 8, "unsigned long long": 8, "bool": 1}


class RawKernel:
    """As of CuPy."""

    def __init__(self, code, name, options=(), backend="nvrtc"):
        self._code, self._name = code, name

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        library, signatures = _library(self._code)
        parameters = [p.strip() for p in signatures[self._name].split(",")]
        if len(parameters) != len(args):
            raise TypeError(f"{self._name} takes {parameters}, and was given {len(args)} arguments")
        if max(grid[1:], default=0) > 65535 or not 0 < block[0] <= 1024:
            raise AssertionError(f"{self._name} is launched with blocks {grid} of {block} threads")
        letters = {letter: kind for kind, letter in _TYPEDEF.findall(self._code)}
        kept = []
        for parameter, x in zip(parameters, args, strict=True):
            kind, name = parameter.removeprefix("const ").rsplit(maxsplit=1)
            kind = letters.get(kind.rstrip("*"), kind.rstrip("*")) + "*" * kind.endswith("*")
            kept.append(_argument(kind, f"{name} of {self._name}", x))
        launches.append(self._name)
        cuda.Stream.null.start(partial(self._run, library, kept, args, grid, block[0]))

    def _run(self, library, kept, args, grid, threads):
        pointers = (ctypes.c_void_p * len(kept))(*(k.ctypes.data for k in kept))
        sizes = (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid)))
        ends = [end for x in args if not isinstance(x, np.generic) for end in (x.data.ptr, x.data.ptr + x.nbytes)]
        arrays = (ctypes.c_size_t * len(ends))(*ends)
        if hasattr(library, "arrays_are"):
            library.arrays_are(arrays, ctypes.c_int(len(ends) // 2))
        wrong = getattr(library, f"launch_{self._name}")(pointers, sizes, ctypes.c_uint(threads))
        if wrong:
            raise AssertionError(f"{self._name} {_WRONG[wrong]}")


def _argument(kind, where, x):
    """An argument as it lies in memory, after a check of what CuPy would not tell: an array's dtype, a number's type."""
    from cupy import ndarray
    from simdist.arrays.kernels.source import _NAMES

    if kind.endswith("*"):
        if not isinstance(x, ndarray):
            raise TypeError(f"{where} is {type(x)}; needs an array")
        if _NAMES.get(x.dtype.name) != kind[:-1]:
            raise AssertionError(f"{where} is of {x.dtype}; needs {kind[:-1]}")
        if not x.flags.c_contiguous:
            raise AssertionError(f"{where} is not contiguous")
        return np.array([x.data.ptr if x.size else 0], np.uint64)
    if not isinstance(x, np.generic) or x.dtype.itemsize != _SIZES.get(kind, x.dtype.itemsize):
        raise AssertionError(f"{where} is {x!r} of {type(x)}")
    if kind in _SIZES and (kind in ("float", "double")) != (x.dtype.kind == "f"):
        raise AssertionError(f"{where} is {x!r} of {type(x)}")
    return np.array([x])
