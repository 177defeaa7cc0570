"""Watch: a collective as it is executed, step by step: which rank holds whose contributions to what.

The ranks work with numbers that encode their contributors (see Contributions), so that any algorithm can be watched.

Time advances in steps. On this cluster a message of any length arrives one second after it has been sent; a send
occupies its rank for that second, and so does a receive. So step k ends at second k.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from simdist.arrays import Array, Partition, partition, reduction
from simdist.cluster import Cluster, Device, Link
from simdist.collectives.contributions import MOST_RANKS, Code, Pieces
from simdist.collectives.cost import Case
from simdist.collectives.names import collective
from simdist.collectives.perform import IN_PLACE
from simdist.collectives.registry import ARGUMENTS, find
from simdist.collectives.watched import Watch, Watched
from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, require_known
from simdist.trace import Trace

__all__ = ["Watch", "Watched", "watched"]

_ITEMS_PER_CHUNK = 4  # enough for algorithms that cut chunks again, in halves or quarters
_STEP = Link(latency_s=1.0, bytes_per_s=1e18)
_CLUSTER = Cluster("steps", Device("at once", 1e18, 1e18, 1e18), inside=_STEP, between=_STEP)


def watched(
    operation: str,
    algorithm: str | Callable[[Array, Communicator], object],
    ranks: int,
    *,
    root: int = 0,
    ranks_per_node: int = 0,
    **options: Any,
) -> Trace:
    """Perform a collective on virtual ranks, step by step; the record has spans "state" (see State).

    Args:
        operation, algorithm: "all_reduce", "ring"; any but barrier, which moves nothing. Instead of a name, a
            function of your own: own(x, comm) does with x what this operation does in place, such as an all_reduce.
        ranks: 1 to 16.
        root: of a rooted collective.
        ranks_per_node: 0 for all on one node.
        options: the algorithm's own.

    Raises:
        UnknownNameError: no such collective, algorithm or option.
        ArgumentError: no such case, too many ranks, or a barrier.
    """
    operation = collective(operation)
    name, run = _named(operation, algorithm, options)
    if operation == "barrier":
        raise ArgumentError("a barrier moves no data: there is nothing to watch")
    if not 1 <= ranks <= MOST_RANKS:
        raise ArgumentError(
            f"cannot watch {ranks} ranks; needs 1 to {MOST_RANKS}, whose contributions fit into 64 bits"
        )
    case = Case(ranks, 0, root=root, ranks_per_node=ranks_per_node)
    cluster = _CLUSTER.with_(devices_per_node=case.per_node)
    _, spans, _ = run_virtual(_program, case.ranks, cluster, (operation, name, run, case.root, options))
    return Trace(spans, case.ranks)


def _program(
    comm: Communicator, operation: str, name: str, run: Callable[..., Any], root: int, options: dict[str, Any]
) -> None:
    """One rank's part in the collective."""
    p = comm.size
    places = partition(p if operation == "all_to_all" else _ITEMS_PER_CHUNK * p, p)
    code = Code(p, places.n)
    watch = Watch(comm, code, _goal(operation, places, root), f"{operation} {name}")
    x = code.of(comm.rank)
    chunk = places[comm.rank]
    if operation == "broadcast" and comm.rank != root:
        x[:] = 0
    elif operation == "scatter" and comm.rank != root:
        x = x[:0]
    elif operation == "gather":
        x = x[chunk].copy()
    elif operation == "all_gather":
        x[: chunk.start] = x[chunk.stop :] = 0
    watch.track(x)
    watch.record()
    given = {"x": x, "comm": Watched(comm, watch), "op": reduction("sum"), "chunks": list(places), "root": root}
    if operation == "all_to_all":
        given |= {"x": x.reshape(p, 1), "y": np.zeros((p, 1), np.int64)}
        watch.track(given["y"])
    result = run(*(given[name] for name in ARGUMENTS[operation]), **options)
    if result is not None and operation not in IN_PLACE:
        watch.track(result)
    watch.record()


def _named(
    operation: str, algorithm: str | Callable[[Array, Communicator], object], options: dict[str, Any]
) -> tuple[str, Callable[..., Any]]:
    """The name and the function of an algorithm; the caller's own takes only the array and the communicator."""
    if isinstance(algorithm, str):
        found = find(operation, algorithm)
        found.check_options(options)
        return found.name, found.run
    require_known("collective that works in place", operation, IN_PLACE)
    return getattr(algorithm, "__name__", "of your own"), lambda x, comm, *_, **options: algorithm(x, comm, **options)


def _goal(operation: str, places: Partition, root: int) -> tuple[Pieces, ...]:
    """What the final value of each place is made of."""
    if operation in ("broadcast", "scatter"):
        return (((root,),),) * places.n
    if operation in ("all_gather", "gather"):
        return tuple(((rank,),) for rank, chunk in enumerate(places) for _ in range(chunk.start, chunk.stop))
    everybody = range(places.p)
    if operation == "all_to_all":
        return (tuple((rank,) for rank in everybody),) * places.n
    return ((tuple(everybody),),) * places.n
