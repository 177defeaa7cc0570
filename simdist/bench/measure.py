"""Measure: how long collectives take, on real ranks, on virtual ones and by formula, side by side."""

from collections.abc import Callable, Sequence
from itertools import product
from math import nan

import numpy as np
from tqdm import tqdm

from simdist.arrays import Array, phantom
from simdist.arrays.memory import keep_freed_memory
from simdist.bench.jobs import foretell, per_rank
from simdist.bench.trial import INTO, Trial, perform, require_right
from simdist.cluster import Cluster
from simdist.cluster.calibration import calibrated
from simdist.collectives import formula
from simdist.collectives.measurement import Measurement
from simdist.collectives.names import collective
from simdist.comm import Communicator
from simdist.comm.ping_pong import ping_pong
from simdist.comm.virtual.world import run_virtual
from simdist.errors import as_declared, require_least

__all__ = ["bus_bytes_per_s", "measure_machine", "median_seconds", "rows"]

_PING_PONG_SIZES = tuple(8**k for k in range(1, 8))


def measure_machine(ranks: int) -> Cluster | None:
    """This machine as `ranks` real ranks measure it by ping-pong; None on other ranks than 0 of an mpirun job."""
    found = per_rank(_ping_pong, max(ranks, 2), (), "mpi", record=False, check=False)
    if found is None:
        return None
    sizes, inside_s, between_s, reduction_s, per_node = found.swapaxes(0, 1)

    def medians(seconds: Array) -> list[tuple[int, float]]:
        known = [(n, times[~np.isnan(times)]) for n, times in zip(sizes[0], seconds.T, strict=True)]
        return [(int(n), float(np.median(times))) for n, times in known if len(times)]

    cluster = calibrated(medians(inside_s), medians(reduction_s), medians(between_s))
    return cluster.with_(devices_per_node=int(per_node[0, 0]))


def _ping_pong(comm: Communicator) -> Array:
    """Rows of sizes, seconds of messages inside nodes, seconds of messages between nodes, seconds of reductions, ranks
    per node; NaN for messages on a rank without a partner.
    """
    found = ping_pong(comm, _PING_PONG_SIZES)
    inside, between = dict(found.inside), dict(found.between)
    return np.array(
        [[n, inside.get(n, nan), between.get(n, nan), seconds, comm.nodes.most] for n, seconds in found.reductions]
    ).T


def rows(
    operation: str,
    names: Sequence[str],
    ranks: int,
    sizes: Sequence[int],
    where: str,
    cluster: Cluster,
    repeats: int = 20,
) -> list[Measurement] | None:
    """A row for every size and algorithm; None on ranks other than 0 of an mpirun job.

    Args:
        sizes: bytes of the whole array; rounded up to whole float32 items, and for all_to_all to whole rows.
        where: "mpi" measures; "virtual" does not.
        cluster: the machine that predictions and formulas assume.
    """
    unit_bytes = 4 * ranks if operation == "all_to_all" else 4  # an item, or one in each row
    lengths = [-(-size // unit_bytes) for size in sizes]
    measured = None
    if where == "mpi":
        found = per_rank(_time, ranks, (operation, names, lengths, repeats, False), "mpi", record=False, check=False)
        if found is None:
            return None
        measured = median_seconds(found)
    calls = [Trial(operation, name, length, "float32") for name in names for length in lengths]
    foretell(calls, ranks)
    what = f"predict {operation}, {ranks:,} ranks"
    with tqdm(desc=what, total=len(calls), unit=" calls", leave=False, disable=None, delay=1) as bar:
        args = operation, names, lengths, 1, True, bar.update
        found, _, _ = run_virtual(_time, ranks, cluster, args, record=False, check=False)  # also inside an mpirun job
    predicted = median_seconds(np.stack(found))
    table = []
    for (i, j), predicted_s in np.ndenumerate(predicted):
        measured_s = None if measured is None else float(measured[i, j])
        table.append(_row(operation, names[j], ranks, unit_bytes * lengths[i], cluster, measured_s, float(predicted_s)))
    return table


def _row(
    operation: str,
    name: str,
    ranks: int,
    num_bytes: int,
    cluster: Cluster,
    measured_s: float | None,
    predicted_s: float,
) -> Measurement:
    per_node = cluster.devices_per_node if ranks > cluster.devices_per_node else 0
    options = {"itemsize": 4, "ranks_per_node": per_node, "one_memory": cluster.one_memory}
    formula_s = formula(operation, name, ranks=ranks, num_bytes=num_bytes, **options).on(cluster, ranks)
    bus = bus_bytes_per_s(operation, ranks, num_bytes, predicted_s if measured_s is None else measured_s)
    return Measurement(operation, name, ranks, num_bytes, measured_s, predicted_s, formula_s, bus)


def _time(
    comm: Communicator,
    operation: str,
    names: Sequence[str],
    lengths: Sequence[int],
    repeats: int,
    hollow: bool,
    done: Callable[[], object] = lambda: None,
) -> Array:
    """When this rank began and ended, shape (lengths, names, repeats, 2).

    The algorithms take turns, so that noise affects all alike. In each turn the second call counts, since the first
    finds in the caches what another algorithm has left there. The time is that of a call from Python; for all_gather,
    scatter and gather it includes the exchange of the lengths.

    Args:
        repeats: the number of turns.
        hollow: use phantom arrays, which one call is enough for.
        done: called by rank 0 after each call.
    """
    if not hollow:
        keep_freed_memory()  # as training does
        require_right(operation, names, comm)
    times_s = np.zeros((len(lengths), len(names), repeats, 2))
    for i, length in enumerate(lengths):
        calls = [Trial(operation, name, length, "float32") for name in names]
        x, out = _arrays(comm, operation, length, hollow)
        for repeat, (j, trial) in product(range(repeats), enumerate(calls)):
            if not hollow:
                perform(trial, comm, x, out)
            comm.exchange("")  # unlike a barrier's, its end is the same on all virtual ranks
            start_s = comm.clock()
            perform(trial, comm, x, out)
            times_s[i, j, repeat] = start_s, comm.clock()
            if comm.rank == 0:
                done()
    return times_s


def _arrays(comm: Communicator, operation: str, length: int, hollow: bool) -> tuple[Array, Array | None]:
    """A collective's array, and that for its result where it takes one: in shared memory, as those of training."""
    shape = (comm.size, length) if operation == "all_to_all" else length
    x, y = (phantom(shape) if hollow else comm.empty(shape, np.float32) for _ in range(2))
    x[...], y[...] = 0, 0
    return x, y if operation in INTO else None


def median_seconds(found: Array) -> Array:
    """The time of the slowest rank, as the median of the repeats.

    Args:
        found: when each rank began and ended, shape (ranks, …, repeats, 2).
    """
    return np.median(np.max(found[..., 1] - found[..., 0], axis=0), axis=-1)


@as_declared
def bus_bytes_per_s(operation: str, ranks: int, num_bytes: int, seconds: float) -> float:
    """The bus bandwidth as defined by nccl-tests: the rate at which an ideal algorithm would use every link.

    num_bytes / seconds times 2(p-1)/p for all_reduce; (p-1)/p for reduce_scatter, all_gather, all_to_all, scatter and
    gather, of the whole array; 1 for broadcast and reduce.

    Raises:
        UnknownNameError: there is no such collective with a size.
        ArgumentError: there are no ranks.
    """
    require_least("ranks", ranks, 1)
    share = (ranks - 1) / ranks
    factors = {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}
    factors |= dict.fromkeys(("reduce_scatter", "all_gather", "all_to_all", "scatter", "gather"), share)
    return factors[collective(operation, factors, "collective with a size")] * num_bytes / seconds if seconds else 0.0
