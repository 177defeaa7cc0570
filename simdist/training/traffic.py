"""Traffic: the collectives of a training step: as measured, by their costs, and by their papers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from operator import add
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np

from simdist import collectives
from simdist.arrays import Ledger, partition, phantom, recorded
from simdist.cluster import Cluster
from simdist.collectives import Case, Cost, Formula
from simdist.collectives.cost import case_of
from simdist.collectives.registry import choose, find
from simdist.comm import Communicator
from simdist.comm.virtual.world import run_virtual
from simdist.parallel.sequence import RINGS, ring_attention_cost
from simdist.parallel.tensor import OVERLAPPED
from simdist.trace import Span, Trace
from simdist.trace.kind import COLLECTIVES, kind
from simdist.training.profiler import STEP

__all__ = [
    "Call",
    "Rings",
    "Scratch",
    "calls",
    "last_step",
    "predicted_seconds",
    "rings",
    "scratch",
    "sent",
    "transfer_seconds",
]

_LEFT_TO_AUTO = ("all_to_all", "broadcast")
"""Collectives whose algorithm no setting of a run names; those that it names reduce gradients."""

_T = TypeVar("_T")


class Call(NamedTuple):
    """A collective.

    Attributes:
        operation, algorithm: "all_reduce", "ring".
        num_bytes: of the array that all ranks together work on.
        members: the global ranks of its group, in order.
        group: the name of their communicator.
        stream: the one on which the first rank called it.
    """

    operation: str
    algorithm: str
    num_bytes: int
    members: tuple[int, ...]
    group: str
    stream: str = "main"

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return len(self.members)

    @property
    def span_name(self) -> str:
        """What its spans are called."""
        return f"{self.operation} {self.algorithm}"

    def is_on(self, span: Span) -> bool:
        """Whether a span is one rank's part in such a call."""
        return (span.name, span.bytes, span.detail) == (self.span_name, self.num_bytes, self.group)

    def itemsize(self, likely: int) -> int:
        """The bytes of an item: those of a gradient's, unless the size is no multiple of them or parts are equal."""
        return 1 if self.operation == "all_to_all" or self.num_bytes % likely else likely

    def case(self, comm: Communicator, itemsize: int) -> Case:
        """As the first rank of its group sees it; comm has all ranks of the run."""
        case = case_of(comm.nodes.part(self.members), self.num_bytes, comm.cluster.one_memory)
        return replace(case, itemsize=self.itemsize(itemsize))

    def cost(self, comm: Communicator, itemsize: int) -> Cost:
        """The exact cost of that case."""
        return find(self.operation, self.algorithm).cost(self.case(comm, itemsize))

    def formula(self, comm: Communicator, itemsize: int) -> Formula:
        """Its paper's formula for that case."""
        return find(self.operation, self.algorithm).formula(self.case(comm, itemsize))

    def seconds(self, formula: Formula, cluster: Cluster) -> float:
        """The time of its paper's formula, each phase over the slowest link that its group crosses in it."""
        return formula.over(cluster, len({cluster.node_of(rank) for rank in self.members}) > 1)


def calls(trace: Trace) -> Counter[Call]:
    """The collectives of rank 0 in the last step on the record, and how often each was called; empty without a step.

    One that another calls, as an algorithm made of others does, is part of that one.
    """
    members: dict[str, set[int]] = defaultdict(set)
    for s in trace:
        if kind(s.name) in COLLECTIVES:
            members[s.detail].add(s.rank)
    found: Counter[Call] = Counter()
    until = defaultdict[str, float](float)  # when each stream's last outer collective ends
    for s in sorted(last_step(trace), key=lambda s: (s.start_s, -s.end_s)):
        if kind(s.name) not in COLLECTIVES or s.start_s < until[s.stream]:
            continue
        until[s.stream] = s.end_s
        if kind(s.name) != "barrier":  # empty collectives send messages, too
            operation, _, name = s.name.partition(" ")
            found[Call(operation, name, s.bytes, tuple(sorted(members[s.detail])), s.detail, s.stream)] += 1
    return found


def sent(trace: Trace) -> tuple[int, int]:
    """How many messages rank 0 sent in the last step, and their bytes."""
    sends = [s.bytes for s in last_step(trace) if s.name == "send"]
    return len(sends), sum(sends)


class Rings(NamedTuple):
    """What a rank sends round rings while it works, in a step: in ring attention, and in overlapped tensor parallelism.

    Attributes:
        messages, sent_bytes: by `ring_attention_cost`, and of each gather or sum t-1 runs.
        formula_bytes: by the papers; in that of ring attention derivatives have no more bytes than what they are of.
    """

    messages: int = 0
    sent_bytes: int = 0
    formula_bytes: int = 0


def rings(trace: Trace, sp: int, tp: int, itemsize: int) -> Rings:
    """Of rank 0 in the last step on the record, by its spans; 0 where it has none.

    Args:
        sp, tp: the ranks of each ring, of attention and of tensor parallelism.
        itemsize: of keys and values.

    Source: Liu, Zaharia, Abbeel 2023, arXiv 2310.01889: a block of keys and values goes from each rank to the next,
    while that works on another. For tensor parallelism see `Overlapped`.
    """
    found = Rings()
    for span in last_step(trace):
        if span.name in RINGS:
            backward = span.name == RINGS[1]
            cost = ring_attention_cost(sp, span.bytes, itemsize, backward=backward)
            formula = (2 if backward else 1) * (sp - 1) * span.bytes
            found = Rings(*map(add, found, (cost.messages, cost.sent_bytes, formula)))
        elif span.name in OVERLAPPED:
            sent_bytes = (tp - 1) * span.bytes
            found = Rings(*map(add, found, (tp - 1, sent_bytes, sent_bytes)))
    return found


def last_step(trace: Trace) -> list[Span]:
    """Rank 0's spans in the last training step on the record, the step's own among them; empty without one."""
    own = [s for s in trace if s.rank == 0]
    step = next((s for s in reversed(own) if s.name == STEP), None)
    return [s for s in own if step.start_s <= s.start_s and s.end_s <= step.end_s] if step else []


def transfer_seconds(trace: Trace, call: Call) -> float | None:
    """How long a collective took from the arrival of the last rank of its group until the last one left: the median
    over all its calls in the trace; None if there are none.
    """
    spans: dict[int, list[Span]] = {}
    for span in trace:
        if call.is_on(span):
            spans.setdefault(span.rank, []).append(span)
    together = zip(*spans.values(), strict=True)
    took_s = [max(s.end_s for s in ranks) - max(s.start_s for s in ranks) for ranks in together]
    return median(took_s) if took_s else None


def predicted_seconds(cluster: Cluster, call: Call, itemsize: int) -> float:
    """How long the same takes in the virtual world, on the same ranks of this cluster, with no other traffic."""

    def program(group: Communicator) -> None:
        _perform(call, group, itemsize)

    return _run(program, call.members, cluster)[1]


class Scratch(NamedTuple):
    """Bytes that collectives take beside the arrays they work on.

    Attributes:
        stays: what communicators keep from call to call: buffers in shared memory.
        passing: the most that exists only during calls.
    """

    stays: int
    passing: int


def scratch(
    cluster: Cluster,
    before: Iterable[Call],
    step: Iterable[Call],
    itemsize: int,
    between: int = 0,
    algorithm: str | None = None,
) -> Scratch:
    """The memory that collectives take beside the arrays they work on, on the first rank of their groups.

    It is counted by a ledger in the virtual world, for each group's calls one after the other. What a group keeps
    from call to call adds up over all groups; what exists only during calls adds up over streams, which may run at
    the same time, while the groups on one stream take turns.

    Args:
        before: calls before the step, of which only lasting allocations count: buffers in shared memory.
        between: what the main stream needs between its collectives, to communicate in other ways.
        algorithm: the one that the run names for its gradients, "auto" or None if it leaves them to `auto`.
    """
    early, late = list(before), list(step)

    def program(twin: Communicator, group: str) -> tuple[int, int]:
        ledger = Ledger(twin.clock)
        with recorded(ledger):
            for calls in (early, late):
                ledger.begin()
                for call in (call for call in calls if call.group == group):
                    if call.operation in _LEFT_TO_AUTO or call.algorithm != algorithm:
                        _meet_peers(call, twin)
                    _perform(call, twin, itemsize)
        return ledger.peaks["communication"], ledger.now.of("communication")

    stays, most = 0, Counter({"main": between})
    for group, members in {call.group: call.members for call in (*early, *late)}.items():
        peak, kept = _run(partial(program, group=group), members, cluster)[0]
        stays += kept
        for stream in {call.stream for call in late if call.group == group}:
            most[stream] = max(most[stream], peak - kept)
    return Scratch(stays, most.total())


def _run(program: Callable[[Communicator], _T], members: tuple[int, ...], cluster: Cluster) -> tuple[_T, float]:
    """A program's result on the first of these ranks of a cluster, which all run it, and the time it takes."""

    def on_rank(comm: Communicator) -> _T | None:
        group = comm.split(0 if comm.rank in members else None)
        return program(group) if group else None

    results, _, seconds = run_virtual(on_rank, members[-1] + 1, cluster, record=False)
    return results[members[0]], seconds


def _meet_peers(call: Call, twin: Communicator) -> None:
    """Meet in `Peers`, whose memory stays, where `auto` took an algorithm by messages because the arrays were not in
    shared memory: its ranks had first met there to find that out.
    """
    if twin.size > 1:
        shared, own = choose(call.operation, twin, call.num_bytes)
        if shared is not own and own.name == call.algorithm:
            twin.shadow.peers()


def _perform(call: Call, twin: Communicator, itemsize: int) -> None:
    """Repeat the call with a phantom array."""
    dtype = np.dtype(f"u{call.itemsize(itemsize)}")
    x = phantom(call.num_bytes // dtype.itemsize, dtype)
    options: dict[str, Any] = {"algorithm": call.algorithm} | ({"out": x} if call.operation == "all_gather" else {})
    if call.operation in ("all_gather", "gather"):
        x = x[partition(len(x), twin.size)[twin.rank]]
    elif call.operation == "all_to_all":
        x = x.reshape(twin.size, -1)
    getattr(collectives, call.operation)(x, twin, **options)
