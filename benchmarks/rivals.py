"""The rivals of simdist's collectives: MPI's own, and gloo, PyTorch's library for CPUs.

    mpirun -n 2 python -m benchmarks.rivals '{"who": "vendor", "thread_level": "serialized", …}'

One rank of a job without simdist's world. Rank 0 prints rows as JSON: seconds by operation, size, and whether arrays
are cold.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np

from simdist.arrays import Array, slices
from simdist.bench.race import COPY, Arrays, Lane, race
from simdist.environment import cores

__all__ = ["GLOO", "VENDOR", "Settings", "bind", "copy_of", "main", "measure", "vendor"]

GLOO = ("all_reduce", "broadcast", "reduce", "all_gather", "all_to_all")
"""The operations of gloo."""
VENDOR = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "scatter", "gather", "all_to_all")
_TIMEOUT = timedelta(seconds=120)

Settings = dict[str, Any]
"""operations; sizes in bytes; cold, a list of bools; budget_s for each case; and for a rival's job who, thread_level,
rank, ranks, store."""

Calls = dict[str, Callable[[int], Any]]


def vendor(mpi: Any, operation: str, x: Array, y: Array) -> None:
    """MPI's own collective on x, with the result in y if it is not in place.

    Args:
        mpi: MPI's communicator.
        x, y: shape (n,).
    """
    p, r = mpi.size, mpi.rank
    match operation:
        case "all_reduce":
            mpi.Allreduce(x, y)
        case "reduce":
            mpi.Reduce(x, y)
        case "broadcast":
            mpi.Bcast(x)
        case "all_to_all":
            mpi.Alltoall(x, y)
        case _:
            parts = slices(len(x), p)
            counts, mine = [part.stop - part.start for part in parts], parts[r]
            if operation == "reduce_scatter":
                mpi.Reduce_scatter(x, y[mine], counts)
            elif operation == "all_gather":
                mpi.Allgatherv(x[mine], [y, counts])
            elif operation == "gather":
                mpi.Gatherv(x[mine], [y, counts])
            else:
                mpi.Scatterv([x, counts], y[mine])


def gloo(dist: Any, operation: str, x: Any, y: Any) -> None:
    """PyTorch's collective on tensors x and y."""
    match operation:
        case "all_reduce":
            dist.all_reduce(x)
        case "reduce":
            dist.reduce(x, 0)
        case "broadcast":
            dist.broadcast(x, 0)
        case "all_to_all":
            dist.all_to_all_single(y, x)
        case "all_gather":
            dist.all_gather_into_tensor(y, x[: len(x) // dist.get_world_size()])


def bind(rank: int) -> None:
    """Bind a rank to one core: rank r to core r, modulo their number."""
    mine = cores()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {mine[rank % len(mine)]})


def copy_of(lane: Lane, x: Array, y: Array) -> None:
    """The limit: all ranks copy at once, and meet."""
    np.copyto(y, x)
    lane.meet()


def measure(
    settings: Settings, ranks: int, lane: Lane, calls: Callable[[str, int, bool], Calls]
) -> list[dict[str, Any]]:
    """Race all contenders: a row for each operation, size, kind of arrays and contender.

    Args:
        calls: (operation, items of float32, whether arrays are cold) -> the calls of the contenders.
    """
    rows = []
    for operation in settings["operations"]:
        for size in settings["sizes"]:
            items = -(-size // (4 * ranks)) * ranks
            for cold in settings["cold"]:
                found = race(calls(operation, items, cold), lane, settings["budget_s"], warm=not cold)
                case = {"operation": operation, "ranks": ranks, "num_bytes": 4 * items, "cold": cold}
                rows += [{**case, "contender": name, **times._asdict()} for name, times in found.items()]
    return rows


def _by_mpi(settings: Settings) -> list[dict[str, Any]]:
    rc = import_module("mpi4py").rc
    rc.thread_level = settings["thread_level"]
    mpi_module = import_module("mpi4py.MPI")
    mpi = mpi_module.COMM_WORLD
    bind(mpi.rank)

    def largest(x: Array) -> Array:
        y = np.empty_like(x)
        mpi.Allreduce(x, y, mpi_module.MAX)
        return y

    lane, arrays = Lane(mpi.Barrier, largest), Arrays(np.empty, max(settings["sizes"]))
    name = f"vendor, {settings['thread_level']}"

    def calls(operation: str, items: int, cold: bool) -> Calls:
        def pair(k: int) -> tuple[Array, Array]:
            return arrays.of(arrays.own, items, k, cold), arrays.of(arrays.other, items, k, cold)

        return {name: lambda k: vendor(mpi, operation, *pair(k)), COPY: lambda k: copy_of(lane, *pair(k))}

    rows = measure(settings, mpi.size, lane, calls)
    return rows if mpi.rank == 0 else []


def _by_gloo(settings: Settings) -> list[dict[str, Any]]:
    torch: Any = import_module("torch")
    dist: Any = import_module("torch.distributed")
    torch.set_num_threads(1)
    bind(settings["rank"])
    store = f"file://{settings['store']}"
    dist.init_process_group("gloo", store, _TIMEOUT, settings["ranks"], settings["rank"])

    def largest(x: Array) -> Array:
        dist.all_reduce(torch.from_numpy(x), dist.ReduceOp.MAX)
        return x

    lane, arrays = Lane(dist.barrier, largest), Arrays(np.empty, max(settings["sizes"]))

    def calls(operation: str, items: int, cold: bool) -> Calls:
        def pair(k: int) -> tuple[Array, Array]:
            return arrays.of(arrays.own, items, k, cold), arrays.of(arrays.other, items, k, cold)

        tensors = [tuple(map(torch.from_numpy, pair(k))) for k in range(arrays.turns(items) if cold else 1)]
        return {
            "gloo": lambda k: gloo(dist, operation, *tensors[k % len(tensors)]),
            COPY: lambda k: copy_of(lane, *pair(k)),
        }

    try:
        rows = measure(settings, settings["ranks"], lane, calls)
    finally:
        dist.destroy_process_group()
    return rows if settings["rank"] == 0 else []


def main() -> None:
    """Take the settings from the command line, measure, print."""
    settings = json.loads(sys.argv[1])
    rows = {"vendor": _by_mpi, "gloo": _by_gloo}[settings["who"]](settings)
    if rows:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
