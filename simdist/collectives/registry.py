"""Registry: every algorithm of every collective, by name, with its cost beside it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from simdist.arrays import Array
from simdist.cluster import Cluster
from simdist.collectives.cost import Case, Cost, Formula, Links, case_of, links_of
from simdist.collectives.names import OTHER_NAMES, collective
from simdist.comm.placement import Placement
from simdist.errors import require_known, require_takes, returning, unknown_name
from simdist.registry import Registry
from simdist.trace.kind import COLLECTIVES
from simdist.words import meant

__all__ = [
    "ARGUMENTS",
    "Algorithm",
    "Choice",
    "Placed",
    "algorithm",
    "algorithms",
    "choose",
    "close",
    "cost",
    "find",
    "formula",
    "version",
]

Run = TypeVar("Run", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to perform a collective.

    Ranks call `run` with contiguous arrays, a communicator and then, by the operation:

        all_reduce, reduce_scatter   run(x, comm, op)            x shape (n,), overwritten; op.fold(x, y) is x ← x op y
        reduce                       run(x, comm, op, root)      likewise; the result is root's
        broadcast                    run(x, comm, root)          x shape (n,), overwritten but on root
        all_gather                   run(x, comm, chunks)        x shape (n,), where x[chunks[r]] is rank r's shard
        scatter                      run(x, comm, chunks, root)  x shape (n,) on root; returns this rank's chunk, new
        gather                       run(x, comm, chunks, root)  x this rank's shard; returns the whole on root
        all_to_all                   run(x, y, comm)             both shape (p, m): y[i] becomes rank i's x[this rank]
        barrier                      run(comm)

    and options by name; chunks has each rank's slice. Only scatter and gather return their result; the others leave it
    in the array, reduce_scatter in chunk r of partition(n, p). Allocate working space by np.empty_like(x, shape=(n,)):
    it is then of x's kind, on a GPU, or a phantom. The shape is a tuple, since CuPy takes shape=0 as not given.

    Attributes:
        operation, name: "all_reduce", "ring".
        run: the function that does it, on a flat array and a communicator.
        cost: what one rank does, exactly; raises ArgumentError where the function given returns no Cost.
        formula: the published time; likewise.
        by_messages: whether ranks of a node send each other messages. If not, they first meet in shared memory.
        prepare: prepare(x, comm, op) -> a function of x that does what `run` does for this x, without working it out
            again; None where calls may differ. Only for an all_reduce, where microseconds count.
    """

    operation: str
    name: str
    run: Callable[..., Any]
    cost: Callable[..., Cost]
    formula: Callable[..., Formula]
    by_messages: bool = True
    prepare: Callable[..., Callable[[Array], None] | None] | None = None

    def __post_init__(self) -> None:
        for name, kind in (("cost", Cost), ("formula", Formula)):
            object.__setattr__(self, name, returning(kind, f"the {name} of {self.title}", getattr(self, name)))

    @property
    def title(self) -> str:
        """What its spans are called: "all_reduce ring"."""
        return f"{self.operation} {self.name}"

    @property
    def options(self) -> list[str]:
        """The options of `run` by name."""
        return [p.name for p in signature(self.run).parameters.values() if p.default is not p.empty]

    def check_options(self, options: Iterable[str], others: Iterable[str] = ()) -> None:
        """Raise UnknownNameError for an option that `run` does not take; `others` are the caller's, to suggest."""
        if any(p.kind is p.VAR_KEYWORD for p in signature(self.run).parameters.values()):  # it checks them itself
            return
        for name in options:
            if name not in self.options:
                raise unknown_name(f"option of {self.title}", name, [*self.options, *others])


ARGUMENTS = {  # by collective, those of its algorithms, in order
    "all_reduce": ("x", "comm", "op"),
    "reduce_scatter": ("x", "comm", "op"),
    "reduce": ("x", "comm", "op", "root"),
    "broadcast": ("x", "comm", "root"),
    "all_gather": ("x", "comm", "chunks"),
    "scatter": ("x", "comm", "chunks", "root"),
    "gather": ("x", "comm", "chunks", "root"),
    "all_to_all": ("x", "y", "comm"),
    "barrier": ("comm",),
}
_ALGORITHMS = {
    each: Registry[Algorithm](f"{each} algorithm", {"auto": "auto"} | OTHER_NAMES.get(each, {})) for each in COLLECTIVES
}


def algorithm(
    operation: str,
    name: str,
    *,
    cost: Callable[..., Cost],
    formula: Callable[..., Formula],
    by_messages: bool = True,
    prepare: Callable[..., Callable[[Array], None] | None] | None = None,
) -> Callable[[Run], Run]:
    """Register the function below as one way to perform `operation`, exact up to rounding. Everything that takes the
    name of an algorithm then knows it: the command line, and `auto`. A name of your own may be registered again.

    See `Algorithm` in this module, and `simdist.examples.own_algorithm`; for lossy sums, `Compressor`.

    Args:
        cost: cost(case, **options) -> Cost of rank case.rank; the options are those of the function.
        formula: formula(case, **options) -> Formula. If the algorithm does not support this number of ranks, it
            returns Formula(inf, inf), so that `auto` and `verify` skip it, and the function raises ArgumentError.
        by_messages, prepare: see Algorithm.

    Raises:
        UnknownNameError: there is no such operation.
        ArgumentError: the name is "auto", one of simdist's own, or none; cost or formula is no function of a case, or
            the function takes other arguments than those of `Algorithm`.
    """
    require_known("collective", operation, COLLECTIVES)

    def known(run: Run) -> Algorithm:
        _fastest.cache_clear()
        return Algorithm(operation, name, run, cost, formula, by_messages, prepare)

    register = _ALGORITHMS[operation].registering(name, known, *ARGUMENTS[operation])
    require_takes(f"the cost of {operation} {name}", cost, "case")
    require_takes(f"the formula of {operation} {name}", formula, "case")
    return register


def close() -> None:
    """Call what has been registered so far simdist's own."""
    for known in _ALGORITHMS.values():
        known.close()


def version(operation: str) -> int:
    """How many algorithms have been registered for this collective; an earlier choice among fewer may be outdated."""
    return _ALGORITHMS[operation].version


def algorithms(operation: str, ranks: int | None = None) -> list[str]:
    """The names of all algorithms for a collective, such as "all_reduce".

    Args:
        ranks: list only algorithms that support this number; all of simdist's own support any.

    Raises:
        UnknownNameError: there is no such collective.
    """
    found = _ALGORITHMS[collective(operation)].values()
    return [a.name for a in found if ranks is None or a.formula(Case(ranks, 0)).latencies < inf]


def find(operation: str, name: str) -> Algorithm:
    """The algorithm of this name, in any spelling, or of one of `OTHER_NAMES`.

    Raises:
        UnknownNameError: there is none; the message lists those there are.
    """
    known = _ALGORITHMS[collective(operation)]
    found = meant(name, known, known.others)
    if found is None or found not in known:  # "auto" itself comes only from callers that cannot use it
        raise unknown_name(known.kind, name, known if name == "auto" else ["auto", *known])
    return known[found]


def cost(operation: str, algorithm: str, *, ranks: int, num_bytes: int, **case_and_options: Any) -> Cost:
    """What one rank does, exactly: steps, messages and bytes.

    Args:
        operation, algorithm: in any spelling, or as MPI, NCCL or Gloo call them: see `simdist.collectives.names`.
        ranks, num_bytes: and rank=0, root=0, itemsize=1, ranks_per_node, as of `Case`. Where the array's
            length is no multiple of the ranks, give itemsize: chunks hold whole items.
        case_and_options: the rest of the case, and options of the algorithm.

    Raises:
        UnknownNameError: no such collective, algorithm or option.
        ArgumentError: no such case.
    """
    found, case, options = _case(operation, algorithm, ranks, num_bytes, case_and_options)
    return found.cost(case, **options)


def formula(operation: str, algorithm: str, *, ranks: int, num_bytes: int, **case_and_options: Any) -> Formula:
    """The published time as coefficients of alpha, beta and gamma; the arguments are those of `cost`.

    Options give the papers' variants: Rabenseifner's reduce is "reduce_scatter_gather" with reduce_scatter=
    "recursive_halving", the broadcast for arrays of middle length "scatter_all_gather" with all_gather=
    "recursive_doubling"; segment_bytes of "chain" and "double_tree"; radix of the all_to_all "bruck".
    """
    found, case, options = _case(operation, algorithm, ranks, num_bytes, case_and_options)
    return found.formula(case, **options)


def _case(
    operation: str, algorithm: str, ranks: int, num_bytes: int, rest: dict[str, Any]
) -> tuple[Algorithm, Case, dict[str, Any]]:
    found = find(operation, algorithm)
    fields = {name: value for name, value in rest.items() if name in Case.__slots__}
    options = {name: value for name, value in rest.items() if name not in fields}
    found.check_options(options, Case.__slots__)
    return found, Case(ranks, num_bytes, **fields), options


class Placed(Protocol):
    """Ranks somewhere on a cluster: a communicator, or what stands for one."""

    @property
    def nodes(self) -> Placement:
        """The node of each."""

    @property
    def cluster(self) -> Cluster:
        """The machine that they are on."""


class Choice(NamedTuple):
    """What `auto` stands for.

    Attributes:
        shared: the algorithm if the arrays of all ranks are in shared memory, from `comm.empty`.
        own: the algorithm otherwise.
    """

    shared: Algorithm
    own: Algorithm


def choose(operation: str, comm: Placed, num_bytes: int, by_messages: bool = False) -> Choice:
    """The algorithm measured to be fastest on this machine at about this size. Without such a measurement, `direct` for
    ranks that share one memory, or what was measured to be faster on another machine; for other ranks, the algorithm
    whose formula gives the least time.

    All ranks choose alike, because they consult the same table, or the same model, with the same numbers.

    Args:
        by_messages: choose by the model, and only among algorithms by messages.
    """
    known, cluster, nodes, ranks = _ALGORITHMS[operation], comm.cluster, comm.nodes, len(comm.nodes)
    if nodes.num_nodes == 1 and not by_messages:
        pick = cluster.tuned.pick(operation, ranks, num_bytes) if cluster.tuned else None
        if pick is not None and {pick.shared, pick.own} <= known.keys():
            return Choice(known[pick.shared], known[pick.own])
        if cluster.one_memory and 1 < ranks <= _MOST_IN_ONE_MEMORY and "direct" in known:
            # On all machines measured, a meeting takes less time than a message sent from Python.
            name, least, most = _LONG.get((operation, ranks), ("direct", 0, inf))
            return Choice(known["direct"], known[name if least <= num_bytes <= most else "direct"])
    in_memory = cluster.one_memory and nodes.most <= _MOST_IN_ONE_MEMORY and not by_messages
    links = links_of(cluster, nodes.num_nodes > 1)
    name = _fastest(operation, case_of(nodes, num_bytes, cluster.one_memory), links, in_memory)
    return Choice(known[name], known[name])


_LONG = {
    ("all_gather", 2): ("ring", 1 << 16, inf),
    ("all_gather", 4): ("ring", 1 << 23, inf),
    ("all_reduce", 2): ("ring", 1 << 22, inf),
    ("all_reduce", 4): ("ring", 1 << 22, inf),
    ("all_to_all", 2): ("pairwise", 1 << 14, inf),
    ("all_to_all", 3): ("pairwise", 1 << 20, inf),
    ("all_to_all", 4): ("pairwise", 1 << 20, inf),
    ("broadcast", 2): ("linear", 1 << 14, inf),
    ("reduce", 2): ("linear", 1 << 16, 1 << 20),
    ("reduce_scatter", 2): ("pairwise", 1 << 14, inf),
    ("reduce_scatter", 3): ("pairwise", 1 << 20, inf),
    ("reduce_scatter", 4): ("pairwise", 1 << 22, inf),
}
"""By collective and number of ranks: an algorithm by messages, and from how many bytes to how many it beats `direct`
for arrays in private memory, as measured with MPICH 5 and Open MPI 5 on two cores. A message copies once, staging
twice."""

_MOST_IN_ONE_MEMORY = 256
"""Up to how many ranks per memory `auto` considers algorithms without messages: each reads what all others wrote."""


@lru_cache(maxsize=4096)
def _fastest(operation: str, case: Case, links: Links, in_memory: bool) -> str:
    candidates = [a for a in _ALGORITHMS[operation].values() if a.by_messages or in_memory]
    return min(candidates, key=lambda known: known.formula(case).over_links(links)).name
