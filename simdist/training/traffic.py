"""Traffic: the collectives of a training step, as they were and as their costs and papers have them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, Ledger, partition, phantom, recorded
from simdist.cluster import Cluster
from simdist.collectives import (
    Case,
    Cost,
    Formula,
    algorithms,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from simdist.collectives.registry import find
from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.trace import Span, Trace
from simdist.trace.kind import COLLECTIVES, kind
from simdist.training.gauge import STEP

__all__ = ["Call", "calls", "case_of", "costs", "formulas", "predicted_seconds", "scratch_bytes", "transfer_seconds"]


class Call(NamedTuple):
    """A collective.

    Attributes:
        operation, algorithm: "all_reduce", "ring".
        num_bytes: of the array that all ranks together work on.
        ranks: how many they are.
        group: the name of their communicator.
    """

    operation: str
    algorithm: str
    num_bytes: int
    ranks: int
    group: str

    @property
    def span_name(self) -> str:
        """What its spans are called."""
        return f"{self.operation} {self.algorithm}"

    def itemsize(self, likely: int) -> int:
        """The bytes of an item: the likely ones of a gradient's, unless it may as well be of others."""
        return 1 if self.operation in ("all_gather", "all_to_all") or self.num_bytes % likely else likely


def calls(trace: Trace, rank: int = 0) -> Counter[Call]:
    """The collectives of the last training step on the record, and how often each was called; empty without one."""
    steps = [s for s in trace if s.name == STEP and s.rank == rank]
    if not steps:
        return Counter()
    start_s, end_s = steps[-1].start_s, steps[-1].end_s
    members: dict[str, set[int]] = defaultdict(set)
    for s in trace:
        if kind(s.name) in COLLECTIVES:
            members[s.detail].add(s.rank)
    found: Counter[Call] = Counter()
    for s in trace:
        if s.rank == rank and s.bytes and start_s <= s.start_s and s.end_s <= end_s and kind(s.name) in COLLECTIVES:
            operation, _, name = s.name.partition(" ")
            if name in algorithms(operation):  # and not a frame around one, such as "reduce by PowerSGD"
                found[Call(operation, name, s.bytes, len(members[s.detail]), s.detail)] += 1
    return found


def costs(step: Mapping[Call, int], comm: Communicator, itemsize: int) -> list[tuple[Cost, int]]:
    """What each of these costs the first rank of its group, and how often it is called."""
    cases = {call: case_of(call, comm, itemsize) for call in step}
    return [(find(*call[:2]).cost(cases[call]), count) for call, count in step.items()]


def formulas(step: Mapping[Call, int], comm: Communicator, itemsize: int) -> list[tuple[Formula, int]]:
    """What the papers say of each, and how often it is called."""
    cases = {call: case_of(call, comm, itemsize) for call in step}
    return [(find(*call[:2]).formula(cases[call]), count) for call, count in step.items()]


def case_of(call: Call, comm: Communicator, itemsize: int) -> Case:
    """As the first rank of its group sees it."""
    ranks_per_node = min(call.ranks, comm.size // comm.num_nodes)
    one_memory = comm.cluster.one_memory
    return Case(call.ranks, call.num_bytes, 0, 0, call.itemsize(itemsize), ranks_per_node, one_memory)


def transfer_seconds(trace: Trace, call: Call) -> float | None:
    """How long a collective took from the last rank's coming to the last rank's leaving, in its group: the median
    over all its calls in the trace; None where there are none.
    """
    spans: dict[int, list[Span]] = {}
    for span in trace:
        if (span.name, span.bytes, span.detail) == (call.span_name, call.num_bytes, call.group):
            spans.setdefault(span.rank, []).append(span)
    together = zip(*spans.values(), strict=True)
    took_s = [max(s.end_s for s in ranks) - max(s.start_s for s in ranks) for ranks in together]
    return median(took_s) if took_s else None


def predicted_seconds(cluster: Cluster, call: Call, itemsize: int) -> float:
    """How long the same takes in the virtual world, on the model of this cluster."""

    def program(twin: Communicator) -> None:
        _perform(call, twin, itemsize)

    return run_virtual(program, call.ranks, cluster, record=False)[2]


def scratch_bytes(cluster: Cluster, before: Iterable[Call], step: Iterable[Call], itemsize: int) -> int:
    """The most memory that collectives take beside the arrays they work on, on the first rank of their groups.

    It is counted by a ledger in the virtual world, for each group's calls one after the other. Groups may be at it
    at the same time, on streams of their own, so theirs add up.

    Args:
        before: calls before the step, of which only counts what stays: rooms in memory that ranks share.
        step: those of the step.
    """
    early, late = list(before), list(step)
    groups = {call.group: call.ranks for call in (*early, *late)}

    def program(twin: Communicator, group: str) -> int:
        ledger = Ledger(twin.clock)
        with recorded(ledger):
            for calls in (early, late):
                ledger.begin()
                for call in calls:
                    if call.group == group:
                        _perform(call, twin, itemsize)
        return ledger.peaks["communication"]

    return sum(run_virtual(program, p, cluster, (group,), record=False)[0][0] for group, p in groups.items())


def _perform(call: Call, twin: Communicator, itemsize: int) -> None:
    """Do the same again, with an array that is not there."""
    dtype = np.dtype(f"u{call.itemsize(itemsize)}")
    _PERFORM[call.operation](phantom(call.num_bytes // dtype.itemsize, dtype), twin, call.algorithm)


def _own(x: Array, comm: Communicator) -> Array:
    return x[partition(len(x), comm.size)[comm.rank]]


_PERFORM: dict[str, Callable[[Array, Communicator, str], Any]] = {
    "all_reduce": lambda x, comm, name: all_reduce(x, comm, algorithm=name),
    "reduce_scatter": lambda x, comm, name: reduce_scatter(x, comm, algorithm=name),
    "all_gather": lambda x, comm, name: all_gather(_own(x, comm), comm, name, out=x),
    "all_to_all": lambda x, comm, name: all_to_all(x.reshape(comm.size, -1), comm, name),
    "broadcast": lambda x, comm, name: broadcast(x, comm, algorithm=name),
    "reduce": lambda x, comm, name: reduce(x, comm, algorithm=name),
    "scatter": lambda x, comm, name: scatter(x, comm, algorithm=name),
    "gather": lambda x, comm, name: gather(_own(x, comm), comm, algorithm=name),
}
