"""One port: a world in which every message, however long, keeps a port of its sender and one of its receiver
busy for a second, and nothing else takes time.

A second is then a round of the papers, in which a rank sends one message at most and receives one at most; a
message that is sent in step k, counted from 1, ends at second k.
"""

from unittest.mock import patch

import numpy as np
from anatomy import PAPER, RANKS, Anatomy, predicted

from simdist.arrays import Meter, metered, partition, phantom, reduction
from simdist.cluster import Cluster, Device, Link, Network
from simdist.collectives import Case
from simdist.collectives.registry import find
from simdist.comm.virtual import shared
from simdist.comm.virtual.world import run_virtual

__all__ = ["CLUSTER", "PAPER", "RANKS", "hold", "hollow", "perform", "predicted", "seconds", "steps"]

SECOND = Link(0, 1)
CLUSTER = Cluster("one port", Device("", 1e40, 1e40, 1e40), SECOND, SECOND, 1 << 20, eager_bytes=1 << 40)


class Second:
    """A path on which every message takes a second."""

    alpha_s, beta_s = SECOND.latency_s, 1 / SECOND.bytes_per_s

    def __init__(self, path):
        self._path = path

    def carry(self, num_bytes, ready_s):
        return self._path.carry(1, ready_s)


class OnePort(Network):
    """A network to which all messages are one byte long."""

    def path(self, src, dst):
        return Second(super().path(src, dst))


def perform(operation, name, p, *args, cluster=CLUSTER, network=OnePort, **options):
    """Run an algorithm on p ranks.

    Args:
        args: for each argument of the algorithm but the communicator what each rank gives. The first, which
            holds the result where nothing is returned, is copied.
        cluster, network: what the messages travel on.
    """
    algorithm = find(operation, name)

    def program(comm):
        mine = [each[comm.rank].copy() if i == 0 else each[comm.rank] for i, each in enumerate(args)]
        if operation in ("scatter", "gather"):
            mine[0].flags.writeable = False
        meter = Meter()
        with metered(meter):
            result = algorithm.run(*mine[:1], comm.shadow, *mine[1:], **options)
        in_place = operation in ("broadcast", "reduce", "all_reduce")
        return (mine[0] if in_place else result), meter.bytes // 3  # a fold reads two operands and writes one

    with patch.object(shared, "Network", network):
        outcomes, spans, seconds = run_virtual(program, p, cluster)
    results, reduced = zip(*outcomes, strict=True)
    return Anatomy(list(results), [span for span in spans if span.name == "send"], list(reduced), seconds)


def steps(operation, name, p, num_bytes, root=0, **options):
    """Step by step what is sent, as {(from, to): bytes}; a step in which nothing is sent is left out."""
    run = perform(operation, name, p, *hollow(operation, p, num_bytes, root), **options)
    table: dict[int, dict[tuple[int, int], int]] = {}
    for span in run.sends:
        messages = table.setdefault(round(span.end_s), {})
        assert (span.rank, span.peer) not in messages, "two messages in one step"
        messages[span.rank, span.peer] = span.bytes
    return [table[k] for k in sorted(table)]


def hollow(operation, p, num_bytes, root=0):
    """The arguments of each rank, with arrays that hold no numbers."""
    x, chunks = phantom(num_bytes, np.uint8), list(partition(num_bytes, p))
    arrays = [x[c] for c in chunks] if operation == "gather" else [x] * p
    more = {
        "all_reduce": [reduction("sum")],
        "reduce": [reduction("sum"), root],
        "broadcast": [root],
        "scatter": [chunks, root],
        "gather": [chunks, root],
    }
    if operation == "barrier":
        return []
    return [arrays, *([each] * p for each in more[operation])]


def give(operation, p, n, dtype, root):
    """The arguments of each rank, and the result of each."""
    if np.dtype(dtype).kind == "f":
        x = np.random.default_rng(n).standard_normal((p, n)).astype(dtype)
    else:  # digit r of a sum counts the contributions of rank r
        x = np.array([[10**r] * n for r in range(p)], dtype).reshape(p, n)
    total, roots, chunks = x.sum(0), [root] * p, list(partition(n, p))
    whole = np.arange(n).astype(dtype)
    match operation:
        case "all_reduce":
            return [x, [reduction("sum")] * p], [total] * p
        case "reduce":
            return [x, [reduction("sum")] * p, roots], [total if r == root else None for r in range(p)]
        case "broadcast":
            return [x, roots], [x[root]] * p
        case "scatter":
            full = [whole if r == root else np.empty(0, dtype) for r in range(p)]
            return [full, [chunks] * p, roots], [whole[c] for c in chunks]
        case "gather":
            parts = [whole[c] for c in chunks]
            return [parts, [chunks] * p, roots], [whole if r == root else None for r in range(p)]
    raise ValueError(operation)


def hold(operation, name, p, *, exact=True, cluster=CLUSTER, **options):
    """Results, traffic and steps are as they must be: for every root, lengths of all kinds, ints and floats.

    Args:
        exact: whether the run must take as many seconds as there are steps.
    """
    rooted = operation != "all_reduce"
    lengths = sorted({0, 1, p - 1, p, 2 * p + 3})
    for root in range(p if rooted else 1):
        for n, dtype in [*((n, "int64") for n in lengths), (lengths[-1], "float32")]:
            args, expected = give(operation, p, n, dtype, root)
            run = perform(operation, name, p, *args, cluster=cluster, **options)
            for got, wanted in zip(run.results, expected, strict=True):
                if wanted is not None:
                    assert got.dtype == wanted.dtype
                    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * (dtype == "float32"))
                elif operation == "gather":
                    assert got is None
            if operation in ("all_reduce", "broadcast"):
                assert len({x.tobytes() for x in run.results}) == 1
            itemsize = np.dtype(dtype).itemsize
            cases = [Case(p, n * itemsize, r, root, itemsize) for r in range(p)]
            costs = [find(operation, name).cost(case, **options) for case in cases]
            assert run.counted() == [cost[1:4] for cost in costs], (p, root, n)
            assert len({cost.steps for cost in costs}) == 1
            assert run.seconds == costs[0].steps or not exact, (p, root, n)


def seconds(operation, name, p, num_bytes, *, cluster=PAPER, **options):
    """How long it takes on a cluster, from or to rank 0, without any numbers in the arrays."""
    args = hollow(operation, p, num_bytes)
    return perform(operation, name, p, *args, cluster=cluster, network=Network, **options).seconds
