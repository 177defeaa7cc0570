"""Direct on several nodes: without messages inside a node, by messages between the first ranks of the nodes.

place    a rank's index on its node        leader   the rank at place 0

            node 0                node 1                node 2
inside      0 - 1 - 2 - 3         4 - 5 - 6 - 7         8 - 9 - 10 - 11
            |                     |                     |
between     +---------------------+---------------------+
"""

from dataclasses import replace
from typing import NamedTuple

from simdist.arrays import Array, Chunks, Reduction
from simdist.collectives.cost import Case, Cost, Formula, in_turn, over_nodes
from simdist.collectives.grid import Phases, rows_and_columns
from simdist.collectives.hierarchical import Leaders
from simdist.collectives.registry import find
from simdist.comm import Communicator

__all__ = [
    "all_gather_over_nodes",
    "all_reduce_cost",
    "all_reduce_over_nodes",
    "all_reduce_phases",
    "broadcast_over_nodes",
    "gather_cost",
    "gather_formula",
    "leaders_cost",
    "leaders_formula",
    "reduce_over_nodes",
]


class _Seat(NamedTuple):
    """Where a rank sits: its place on its node, and the index of the node among the leaders."""

    place: int
    node: int


def _seat(comm: Communicator, rank: int) -> _Seat:
    """Where a rank of comm sits."""
    return _Seat(comm.nodes.neighbours(rank).index(rank), list(comm.nodes.members).index(comm.nodes[rank]))


def all_reduce_phases(equal: bool) -> dict[str, str]:
    """The phases of the hierarchical all-reduce, on nodes of equal size or not."""
    if equal:
        return {"reduce_scatter": "direct", "all_reduce": "rabenseifner", "all_gather": "direct"}
    return {"reduce": "direct", "all_reduce": "rabenseifner", "broadcast": "direct"}


def _plan(equal: bool) -> Phases | Leaders:
    phases = all_reduce_phases(equal)
    return Phases(**phases) if equal else Leaders(**phases)


def all_reduce_over_nodes(x: Array, comm: Communicator, op: Reduction, staged: bool) -> None:
    """Replace x by its reduction over all ranks."""
    grid = rows_and_columns(comm, "nodes", comm.node)
    _plan(comm.nodes.equal).run(x, grid, op, staged=staged)


def reduce_over_nodes(x: Array, comm: Communicator, op: Reduction, root: int, staged: bool) -> None:
    """Leave in root's x the reduction over all ranks."""
    node, leaders = rows_and_columns(comm, "nodes", comm.node)
    seat = _seat(comm, root)
    find("reduce", "direct").run(x, node, op, 0, staged=staged)
    if node.rank == 0:
        find("reduce", "binomial").run(x, leaders, op, seat.node)
    if seat.place and _seat(comm, comm.rank).node == seat.node:
        if node.rank == 0:
            node.send(x, seat.place)
        elif node.rank == seat.place:
            node.recv(x, 0)


def broadcast_over_nodes(x: Array, comm: Communicator, root: int, staged: bool) -> None:
    """Replace x by root's."""
    node, leaders = rows_and_columns(comm, "nodes", comm.node)
    seat = _seat(comm, root)
    home = _seat(comm, comm.rank).node == seat.node
    if home:
        find("broadcast", "direct").run(x, node, seat.place, staged=staged)
    if node.rank == 0:
        find("broadcast", "binomial").run(x, leaders, seat.node)
    if not home:
        find("broadcast", "direct").run(x, node, 0, staged=staged)


def all_gather_over_nodes(x: Array, comm: Communicator, chunks: Chunks, staged: bool) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all."""
    if not comm.nodes.in_turn:  # the chunks of a node are not adjacent
        find("all_gather", "ring").run(x, comm, chunks)
        return
    node, leaders = rows_and_columns(comm, "nodes", comm.node)
    spans, own = [], []
    for each, ranks in comm.nodes.members.items():
        span = slice(chunks[ranks[0]].start, chunks[ranks[-1]].stop)
        spans.append(span)
        if each == comm.node:
            own = [slice(chunks[i].start - span.start, chunks[i].stop - span.start) for i in ranks]
    find("all_gather", "direct").run(x[spans[_seat(comm, comm.rank).node]], node, own, staged=staged)
    if node.rank == 0:
        find("all_gather", "ring").run(x, leaders, spans)
    find("broadcast", "direct").run(x, node, 0, staged=staged)


# -- costs: the ranks fill nodes of equal size in order, and the last may lack some ----------------------


def _levels(case: Case) -> tuple[Case, Case, _Seat]:
    """The case inside this rank's node, the case between leaders, and where root sits."""
    per_node = case.ranks_per_node
    node, place = divmod(case.rank, per_node)
    root = _Seat(case.root % per_node, case.root // per_node)
    ranks = min(per_node, case.ranks - node * per_node)
    inside = Case(ranks, case.num_bytes, place, itemsize=case.itemsize, one_memory=case.one_memory)
    between = Case(-(-case.ranks // per_node), case.num_bytes, node, root.node, itemsize=case.itemsize)
    return inside, between, root


def all_reduce_cost(case: Case, staged: bool) -> Cost:
    """Of the all-reduce over nodes."""
    return _plan(case.ranks % case.ranks_per_node == 0).cost(case, case.ranks_per_node, staged=staged)


def leaders_cost(case: Case, operation: str, staged: bool) -> Cost:
    """Of the broadcast or the reduction over nodes; the steps are those of the longest way."""
    inside, between, root = _levels(case)
    n, home = case.num_bytes, between.rank == root.node
    if operation == "broadcast":
        start = root.place if home else 0
        phases = [find(operation, "direct").cost(replace(inside, root=start), staged=staged)]
    else:
        phases = [find(operation, "direct").cost(inside, staged=staged)]
        if home and root.place:
            up = inside.rank == 0
            phases.append(Cost(1, up, up * n))
    if inside.rank == 0:
        phases.append(find(operation, "binomial").cost(between))
    total = in_turn(*phases)
    return total._replace(steps=_longest_way(case, operation, root, staged))


def _longest_way(case: Case, operation: str, root: _Seat, staged: bool) -> int:
    """The steps of the broadcast or the reduction over nodes, all of those between leaders counted."""
    m = -(-case.ranks // case.ranks_per_node)
    sizes = [case.ranks_per_node] * (m - 1) + [case.ranks - (m - 1) * case.ranks_per_node]
    cases = [Case(k, case.num_bytes, itemsize=case.itemsize) for k in sizes]
    inside = [find(operation, "direct").cost(each, staged=staged).steps for each in cases]
    between: int = find(operation, "binomial").cost(Case(m, case.num_bytes, root.node, root.node)).steps
    if operation == "reduce":
        return max(inside) + between + (root.place > 0)
    home = inside.pop(root.node)
    return home + between + max(inside)


def gather_cost(case: Case, staged: bool) -> Cost:
    """Of the all-gather over nodes."""
    inside, between, _ = _levels(case)
    node, m = between.rank, between.ranks
    phases = list(_gather_inside(case, inside, node, staged))
    if inside.rank == 0:
        phases.append(Cost(m - 1, m - 1, case.num_bytes - _node_bytes(case, (node + 1) % m)))
    ways = [_gather_inside(first, _levels(first)[0], i, staged) for i, first in enumerate(_firsts(case))]
    gathers, broadcasts = ([phase.steps for phase in each] for each in zip(*ways, strict=True))
    return in_turn(*phases)._replace(steps=max(gathers) + m - 1 + max(broadcasts))


def _firsts(case: Case) -> list[Case]:
    """The case of the first rank of each node."""
    return [replace(case, rank=rank) for rank in range(0, case.ranks, case.ranks_per_node)]


def _node_bytes(case: Case, node: int) -> int:
    """The bytes of a node's chunks."""
    first = node * case.ranks_per_node
    span = case.chunks.span(first, min(first + case.ranks_per_node, case.ranks))
    num_bytes: int = (span.stop - span.start) * case.itemsize
    return num_bytes


def _gather_inside(case: Case, inside: Case, node: int, staged: bool) -> tuple[Cost, Cost]:
    """Inside a node: of the all-gather of its own chunks, and of the broadcast of all."""
    own = replace(inside, num_bytes=_node_bytes(case, node))
    gather, broadcast = (find(each, "direct") for each in ("all_gather", "broadcast"))
    return gather.cost(own, staged=staged), broadcast.cost(inside, staged=staged)


# -- formulas: one phase after the other, on nodes that are full ------------------------------------------


def leaders_formula(case: Case, operation: str, staged: bool) -> Formula:
    """Of the broadcast or the reduction over nodes."""
    inside, between, root = _levels(replace(case, rank=0))
    phase = find(operation, "direct").formula(inside, staged=staged)
    if operation == "broadcast":
        phase = in_turn(phase, phase)  # on root's node, then on the others
    elif root.place:
        phase = in_turn(phase, Formula(1, case.num_bytes))
    return over_nodes(case, phase, find(operation, "binomial").formula(between), senders=1)


def gather_formula(case: Case, staged: bool) -> Formula:
    """Of the all-gather over nodes."""
    inside, between, _ = _levels(replace(case, rank=0))
    own, steps = replace(inside, num_bytes=_node_bytes(case, 0)), between.ranks - 1
    gather, broadcast = (find(each, "direct").formula for each in ("all_gather", "broadcast"))
    phases = in_turn(gather(own, staged=staged), broadcast(inside, staged=staged))
    return over_nodes(case, phases, Formula(steps, steps * own.num_bytes), senders=1)  # the ring, by its longest chunk
