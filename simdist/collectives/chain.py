"""Chain: the ranks pass the array down a line, in segments, so that all of them are busy at once.

    p   ranks            root   the head of the line root, root + 1, …, root - 1, round the ring of ranks
    n   items            s      segments a, b, c, … that they are cut into

Each rank sends the array at most once, to one neighbour: for long arrays and few ranks hardly anything is
faster. The last rank waits p - 2 steps longer than the second. The best s = √((p-2) nβ/α), n in bytes, takes
(√((p-2) α) + √(nβ))².

Source: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007, Cluster Computing 10(2), 127-143:
the pipeline.
"""

from simdist.arrays import Array
from simdist.collectives.cost import Case, Cost, Formula, repeated
from simdist.collectives.phases import in_turn, over_nodes
from simdist.collectives.registry import algorithm
from simdist.collectives.segments import SEGMENT_BYTES, segments
from simdist.comm import Communicator

__all__ = ["chain_broadcast"]


def _segments_and_steps(case: Case, segment_bytes: int) -> tuple[int, int]:
    s = len(segments(case.num_items, case.itemsize, segment_bytes))
    return s, s + case.ranks - 2 if case.ranks > 1 else 0


def _cost(case: Case, segment_bytes: int = SEGMENT_BYTES) -> Cost:
    s, steps = _segments_and_steps(case, segment_bytes)
    last = (case.root - 1) % case.ranks
    passes_on = case.rank != last
    return Cost(steps, passes_on * s, passes_on * case.num_bytes)


def _formula(case: Case, segment_bytes: int = SEGMENT_BYTES) -> Formula:
    s, steps = _segments_and_steps(case, segment_bytes)
    each = Formula(1, case.num_bytes / s)
    if case.on_one_node:
        return repeated(steps, each)
    first = case.root == 0 or (case.root + case.first_lacks) % case.per_node == 0
    far = case.num_nodes - first  # if root is first of its node, this is not also the last
    between = in_turn(repeated(far, each), Formula(0, (s - 1) * each.bytes))
    return over_nodes(case, repeated(case.ranks - 1 - far, each), between, senders=1)


@algorithm("broadcast", "chain", cost=_cost, formula=_formula)
def chain_broadcast(x: Array, comm: Communicator, root: int, segment_bytes: int = SEGMENT_BYTES) -> None:
    """Replace x by root's: each rank gets it from the rank before and passes it on, segment by segment.

        rank        0        1        2        3
        step 1    a ->
        step 2    b ->     a ->
        step 3    c ->     b ->     a ->                    rank 3 has a
        step 4             c ->     b ->                    and b
        step 5                      c ->                    and c

    Args:
        segment_bytes: how long a segment may be; sqrt(n alpha / ((p - 2) beta)) is best. The default is the
            same for all links, so that all ranks and the cost agree without a measurement.

    Cost per rank: s messages, n bytes; the last rank of the line sends none. On one node the formula is the paper's,
    which pays a latency for each step, by Hockney's model; where segments follow each other on the wire, the broadcast
    takes less. On several nodes it is the time of the first segment over all hops, and of the others on the wire
    between two nodes.
    """
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    parts = segments(len(x), x.dtype.itemsize, segment_bytes)
    # All receives are posted at once: while this rank sends a segment, the next one comes in.
    incoming = [] if comm.rank == root else [comm.irecv(x[part], before) for part in parts]
    for i, part in enumerate(parts):
        if incoming:
            incoming[i].wait()
        if after != root:
            comm.send(x[part], after)
