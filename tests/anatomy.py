"""Anatomy: an algorithm seen from outside: what it gives, who sends how much to whom and when, how long it takes.

On the cluster UNIT every message takes one second and computing none, so the second in which a message
starts is the number of its round.
"""

from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Meter, metered, partition, phantom, reduction
from simdist.cluster import Cluster, Device, Link
from simdist.collectives import Case, Cost
from simdist.collectives.registry import find
from simdist.comm.virtual.world import run_virtual
from simdist.trace import Span

__all__ = ["PAPER", "RANKS", "UNIT", "Anatomy", "costs", "dissect", "hold", "predicted", "rounds", "seconds"]

RANKS = (*range(1, 10), 16)

ONE_NODE = 1 << 20

UNIT = Cluster("unit", Device("", 1e40, 1e40, 1e40), Link(1, 1e40), Link(1, 1e40), ONE_NODE, eager_bytes=1 << 40)

# alpha = 5 us, beta = 1/25e9, gamma = 1/200e9: a fold reads two operands and writes one.
PAPER = Cluster("paper", Device("", 1e15, 600e9, 1e12), Link(5e-6, 25e9), Link(5e-6, 25e9), ONE_NODE)


class Anatomy(NamedTuple):
    """What became of one call: each rank's result, all messages, bytes folded by each rank, seconds it took."""

    results: list[Any]
    sends: list[Span]
    reduced: list[int]
    seconds: float

    def counted(self):
        """The messages and bytes that each rank sent, and the bytes that it folded."""
        sizes = [[span.bytes for span in self.sends if span.rank == r] for r in range(len(self.results))]
        return [(len(each), sum(each), reduced) for each, reduced in zip(sizes, self.reduced, strict=True)]


def lengths(p):
    """None, one, one less than there are ranks, as many, and no multiple."""
    return sorted({0, 1, p - 1, p, 2 * p + 3})


def dissect(operation, name, give, *, cluster=UNIT, op="sum", chunks=None, **options):
    """Perform one collective where rank r puts in give[r], which it does not change."""
    algorithm, fold = find(operation, name), reduction(op)

    def perform(comm, x):
        if operation == "all_to_all":
            y = np.empty_like(x)
            algorithm.run(x, y, comm, **options)
            return y
        whole = partition(len(x), comm.size)
        algorithm.run(x, comm, (chunks or whole) if operation == "all_gather" else fold, **options)
        return x[whole[comm.rank]] if operation == "reduce_scatter" else x

    def program(comm):
        meter = Meter()
        with metered(meter):
            result = perform(comm.shadow, give[comm.rank].copy())
        return result, meter.bytes // 3  # a fold reads two operands and writes one

    outcomes, spans, elapsed_s = run_virtual(program, len(give), cluster)
    results, reduced = zip(*outcomes, strict=True)
    return Anatomy(list(results), [span for span in spans if span.name == "send"], list(reduced), elapsed_s)


def contributions(operation, p, n, dtype):
    """What each rank puts in, and what each must get out."""
    if operation == "all_to_all":
        x = np.random.default_rng(n).integers(0, 100, (p, p, n)).astype(dtype)
        return list(x), list(x.swapaxes(0, 1))
    if operation == "all_gather":
        whole, chunks = np.arange(1, n + 1).astype(dtype), partition(n, p)
        x = np.full((p, n), -1, dtype)
        for r in range(p):
            x[r, chunks[r]] = whole[chunks[r]]
        return list(x), [whole] * p
    if np.dtype(dtype).kind == "f":
        x = np.random.default_rng(n).standard_normal((p, n)).astype(dtype)
    else:
        x = np.array([[10**r] * n for r in range(p)], dtype).reshape(p, n)
    whole = x.sum(0)
    return list(x), [whole] * p if operation == "all_reduce" else [whole[c] for c in partition(n, p)]


def hold(operation, name, p, *, cluster=UNIT, ranks_per_node=0, early=0, **options):
    """Results, traffic and steps are as they must be, for all lengths.

    Digit r of an integer sum counts the contributions of rank r; a float sum is the same bits on all ranks.

    Args:
        early: by how many seconds the run is faster than its steps; None where that is not asked. The caller
            says why.
    """
    for n in lengths(p):
        for dtype in (np.int64, np.float32):
            give, expected = contributions(operation, p, n, dtype)
            run = dissect(operation, name, give, cluster=cluster, **options)
            for r in range(p):
                np.testing.assert_allclose(run.results[r], expected[r], rtol=0, atol=1e-5 * (dtype == np.float32))
            if operation == "all_reduce":
                assert len({x.tobytes() for x in run.results}) == 1
            case = {"itemsize": give[0].itemsize, "ranks_per_node": ranks_per_node}
            assert run.counted() == [cost[1:4] for cost in costs(operation, name, p, give[0].nbytes, **case, **options)]
            if early is not None:
                steps = {cost.steps for cost in costs(operation, name, p, give[0].nbytes, **case, **options)}
                assert steps == {round(run.seconds, 6) + early}


def costs(operation, name, p, num_bytes, *, itemsize=1, ranks_per_node=0, **options) -> list[Cost]:
    """What each rank is to do."""
    cases = [Case(p, num_bytes, r, itemsize=itemsize, ranks_per_node=ranks_per_node) for r in range(p)]
    return [find(operation, name).cost(case, **options) for case in cases]


def rounds(run):
    """Round by round what was sent, as {(from, to): bytes}."""
    table: dict[int, dict[tuple[int, int], int]] = {}
    for span in run.sends:
        messages = table.setdefault(round(span.start_s), {})
        assert (span.rank, span.peer) not in messages, "two messages in one round"
        messages[span.rank, span.peer] = span.bytes
    return [table[k] for k in sorted(table)]


def seconds(operation, name, p, num_bytes, *, cluster=PAPER, **options):
    """How long it takes in the virtual world, without any numbers in the arrays."""
    shape = (p, num_bytes // p) if operation == "all_to_all" else num_bytes
    return dissect(operation, name, [phantom(shape, np.uint8)] * p, cluster=cluster, **options).seconds


def predicted(operation, name, p, num_bytes, *, cluster=PAPER, **options):
    """How long it takes by formula."""
    return find(operation, name).formula(Case(p, num_bytes, one_memory=cluster.one_memory), **options).on(cluster, p)
