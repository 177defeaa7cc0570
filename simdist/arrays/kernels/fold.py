"""Fold: one kernel over the arrays of many ranks, generated for their number; see `simdist.collectives.direct_fold`.

    read     x0  x1  x2  x3      16 bytes of each at a time
    fold     ((x0 op x1) op x2) op x3, in float32 for 16 bits, rounded once
    write    to one of them, some, or all: each item was read before by the thread that writes it

Every item is read once from each array and written once to each: 2pn for an all-reduce of p arrays of n bytes, the
least possible. A fold of a single array copies it to many, bit for bit.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from simdist.arrays import device
from simdist.arrays.kernels.source import THREADS, compiled, width_of

__all__ = ["MOST", "copy_to", "fold_to"]

MOST = 32
"""The most arrays of one kernel."""

_MOST_BLOCKS = 1 << 20  # so a thread has one pack, if an array has no more than 4 GiB: on an H200 7% faster than loops

_STEPS = {
    "sum": "total = total + x;",
    "prod": "total = total * x;",
    "min": "total = total <= x || total != total ? total : x;",
    "max": "total = total >= x || total != total ? total : x;",
    "lor": "total = decltype(total)((total != 0) || (x != 0));",
    "land": "total = decltype(total)((total != 0) && (x != 0));",
}


@lru_cache(maxsize=64)
def _source(op: str, reads: int, writes: int) -> str:
    """A kernel that folds `reads` arrays and writes the result to `writes` arrays."""
    parameters = [f"const T* x{i}" for i in range(reads)] + [f"T* y{i}" for i in range(writes)]

    def loop(over: str, load: str, item: str, store: str, width: str) -> str:
        loads = "".join(load.format(j=j) for j in range(reads))
        first, *others = (item.format(j=j) for j in range(reads))
        folds = "".join(f"{{ const auto x = widen({other}); {_STEPS[op]} }} " for other in others)
        total = f"auto total = widen({first}); {folds}set({first}, total);"
        fold = f"for (int k = 0; k < {width}; ++k) {{ {total} }}" if others else ""
        stores = "".join(store.format(j=j) for j in range(writes))
        return f"for (long long i = {over}) {{ {loads}\n{fold}\n{stores} }}"

    packs = loop("first; i < n / N; i += step", "auto p{j} = load(x{j}, i); ", "p{j}.x[k]", "store(y{j}, i, p0); ", "N")
    single = loop("n / N * N + first; i < n; i += step", "T p{j} = x{j}[i]; ", "p{j}", "y{j}[i] = p0; ", "1")
    return f"""
extern "C" __global__ void fold({", ".join(parameters)}, long long n) {{
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    {packs}
    {single}
}}
"""


def fold_to(op: str, arrays: Sequence[Any], outs: Sequence[Any]) -> None:
    """Fold flat arrays of one dtype and length in their order, and write the result to each of `outs`.

    More than MOST arrays are folded in turns, through an array of this rank; beyond MOST `outs` the result is copied.
    """
    first, rest = list(arrays[:MOST]), list(arrays[MOST:])
    targets = [device.empty(first[0].shape, first[0].dtype)] if rest else list(outs[:MOST])
    n, width = len(first[0]), width_of(*first, *targets)
    kernel = compiled(_source(op, len(first), len(targets)), "fold", first[0].dtype, width)
    kernel(min(_MOST_BLOCKS, -(-n // (THREADS * width))), THREADS, *first, *targets, np.int64(n))
    if rest:
        fold_to(op, [*targets, *rest], outs)
    elif outs[MOST:]:
        copy_to(targets[0], outs[MOST:])


def copy_to(x: Any, outs: Sequence[Any]) -> None:
    """Write a flat array to each of `outs`, of the same dtype and length; it is read once for every MOST of them."""
    if outs:
        fold_to("sum", [x], outs)
