"""Direct on several nodes: without messages inside a node, by messages between the first ranks of the nodes.

place    a rank's index on its node        leader   the rank at place 0

            node 0                node 1                node 2
inside      0 - 1 - 2 - 3         4 - 5 - 6 - 7         8 - 9 - 10 - 11
            |                     |                     |
between     +---------------------+---------------------+

Costs and formulas assume that the ranks fill the nodes in order, so that only the last may lack some. The steps of a
cost are those of the nodes that take the most.
"""

from dataclasses import replace

from simdist.arrays import Array, Chunks, Reduction
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.grid import Phases, node_and_column
from simdist.collectives.hierarchical import Leaders
from simdist.collectives.phases import in_turn, over_nodes
from simdist.collectives.registry import find
from simdist.comm import Communicator

__all__ = [
    "all_gather_cost",
    "all_gather_formula",
    "all_gather_over_nodes",
    "all_reduce_cost",
    "all_reduce_formula",
    "all_reduce_over_nodes",
    "broadcast_cost",
    "broadcast_formula",
    "broadcast_over_nodes",
    "reduce_cost",
    "reduce_formula",
    "reduce_over_nodes",
]


def _seat(comm: Communicator, rank: int) -> tuple[int, int]:
    """Where a rank of comm sits: the index of its node among the leaders, and its place there."""
    return list(comm.nodes.members).index(comm.nodes[rank]), comm.nodes.neighbours(rank).index(rank)


def _levels(case: Case) -> tuple[Case, Case]:
    """The case inside this rank's node, and the case of the leaders.

    The root of the first is root's place, or 0 on other nodes; that of the second is root's node.
    """
    k = case.ranks_per_node
    (node, place), (home, root) = divmod(case.rank, k), divmod(case.root, k)
    ranks = min(k, case.ranks - node * k)
    inside = replace(case, ranks=ranks, rank=place, root=root if node == home else 0, ranks_per_node=0, num_nodes=0)
    leaders = Case(case.num_nodes, case.num_bytes, node, home, case.itemsize)
    return inside, leaders


def _steps_inside(case: Case, operation: str, staged: bool, node: int = 0) -> int:
    """How many steps it takes inside a node: no other takes more than the first, which is full."""
    inside, _ = _levels(replace(case, rank=node * case.ranks_per_node))
    return find(operation, "direct").cost(inside, staged=staged).steps


# -- all-reduce ---------------------------------------------------------------------------------------


def _plan(equal: bool) -> Phases | Leaders:
    """The phases of the hierarchical all-reduce, on nodes of equal size or not."""
    return (Phases if equal else Leaders)("direct", "rabenseifner", "direct")


def all_reduce_over_nodes(x: Array, comm: Communicator, op: Reduction, staged: bool) -> None:
    """Replace x by its reduction over all ranks."""
    _plan(comm.nodes.equal).run(x, node_and_column(comm), op, staged=staged)


def all_reduce_cost(case: Case, staged: bool) -> Cost:
    """Of the all-reduce over nodes."""
    return _plan(case.equal_nodes).cost(case, case.ranks_per_node, staged=staged)


def all_reduce_formula(case: Case, staged: bool) -> Formula:
    """Of the all-reduce over nodes."""
    return _plan(case.equal_nodes).formula(case, case.ranks_per_node, staged=staged)


# -- broadcast ----------------------------------------------------------------------------------------


def broadcast_over_nodes(x: Array, comm: Communicator, root: int, staged: bool) -> None:
    """Replace x by root's: inside root's node, from leader to leader, inside the others."""
    node, leaders = node_and_column(comm)
    home, place = _seat(comm, root)
    at_home = comm.node == comm.nodes[root]
    if at_home:
        find("broadcast", "direct").run(x, node, place, staged=staged)
    if node.rank == 0:
        find("broadcast", "binomial").run(x, leaders, home)
    if not at_home:
        find("broadcast", "direct").run(x, node, 0, staged=staged)


def broadcast_cost(case: Case, staged: bool) -> Cost:
    """Of the broadcast over nodes."""
    inside, leaders = _levels(case)
    own, tree = find("broadcast", "direct").cost(inside, staged=staged), find("broadcast", "binomial").cost(leaders)
    mine = in_turn(own, tree) if inside.rank == 0 else own
    at_home = _steps_inside(case, "broadcast", staged, leaders.root)
    away = _steps_inside(case, "broadcast", staged, 0 if leaders.root else 1)
    return mine._replace(steps=at_home + tree.steps + away)


def broadcast_formula(case: Case, staged: bool) -> Formula:
    """Of the broadcast over nodes that are full."""
    inside, leaders = _levels(replace(case, rank=0, root=0))
    phase = find("broadcast", "direct").formula(inside, staged=staged)
    tree = find("broadcast", "binomial").formula(leaders)
    return over_nodes(case, in_turn(phase, phase), tree, senders=1)  # on root's node, then on the others


# -- reduce -------------------------------------------------------------------------------------------


def reduce_over_nodes(x: Array, comm: Communicator, op: Reduction, root: int, staged: bool) -> None:
    """Leave in root's x the reduction over all ranks: inside nodes, from leader to leader, from root's to root."""
    node, leaders = node_and_column(comm)
    home, place = _seat(comm, root)
    find("reduce", "direct").run(x, node, op, 0, staged=staged)
    if node.rank == 0:
        find("reduce", "binomial").run(x, leaders, op, home)
    if place and comm.node == comm.nodes[root]:
        if node.rank == 0:
            node.send(x, place)
        elif node.rank == place:
            node.recv(x, 0)


def reduce_cost(case: Case, staged: bool) -> Cost:
    """Of the reduction over nodes."""
    inside, leaders = _levels(case)
    mine = find("reduce", "direct").cost(replace(inside, root=0), staged=staged)
    tree = find("reduce", "binomial").cost(leaders)
    if inside.rank == 0:
        to_root = int(inside.root > 0)
        mine = in_turn(mine, tree, Cost(to_root, to_root, to_root * case.num_bytes))
    moves_on = case.root % case.ranks_per_node > 0
    return mine._replace(steps=_steps_inside(case, "reduce", staged) + tree.steps + moves_on)


def reduce_formula(case: Case, staged: bool) -> Formula:
    """Of the reduction over nodes that are full."""
    inside, leaders = _levels(replace(case, rank=0, root=0))
    phases = [find("reduce", "direct").formula(inside, staged=staged)]
    if case.root % case.ranks_per_node:
        phases.append(Formula(1, case.num_bytes))
    return over_nodes(case, in_turn(*phases), find("reduce", "binomial").formula(leaders), senders=1)


# -- all-gather ---------------------------------------------------------------------------------------


def all_gather_over_nodes(x: Array, comm: Communicator, chunks: Chunks, staged: bool) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all."""
    if not comm.nodes.in_turn:  # the chunks of a node are not adjacent
        find("all_gather", "ring").run(x, comm, chunks)
        return
    node, leaders = node_and_column(comm)
    spans = {i: slice(chunks[ranks[0]].start, chunks[ranks[-1]].stop) for i, ranks in comm.nodes.members.items()}
    mine = spans[comm.node]
    own = [chunks[rank] for rank in comm.nodes.neighbours(comm.rank)]
    inside = [slice(chunk.start - mine.start, chunk.stop - mine.start) for chunk in own]
    find("all_gather", "direct").run(x[mine], node, inside, staged=staged)
    if node.rank == 0:
        find("all_gather", "ring").run(x, leaders, list(spans.values()))
    find("broadcast", "direct").run(x, node, 0, staged=staged)


def _node_bytes(case: Case, node: int) -> int:
    """The bytes of a node's chunks."""
    first = node * case.ranks_per_node
    span = case.chunks.span(first, min(first + case.ranks_per_node, case.ranks))
    num_bytes: int = (span.stop - span.start) * case.itemsize
    return num_bytes


def _gather_inside(case: Case, staged: bool) -> tuple[Cost, Cost]:
    """Inside this rank's node: of the all-gather of its chunks, and of the broadcast of all."""
    inside, leaders = _levels(replace(case, root=0))
    own = replace(inside, num_bytes=_node_bytes(case, leaders.rank))
    gather, broadcast = (find(each, "direct") for each in ("all_gather", "broadcast"))
    return gather.cost(own, staged=staged), broadcast.cost(inside, staged=staged)


def all_gather_cost(case: Case, staged: bool) -> Cost:
    """Of the all-gather over nodes."""
    inside, leaders = _levels(case)
    node, m = leaders.rank, leaders.ranks
    phases = [*_gather_inside(case, staged)]
    if inside.rank == 0:  # round the ring of leaders: all chunks but those of the node after this one
        phases.append(Cost(m - 1, m - 1, case.num_bytes - _node_bytes(case, (node + 1) % m)))
    steps = sum(each.steps for each in _gather_inside(replace(case, rank=0), staged)) + m - 1
    return in_turn(*phases)._replace(steps=steps)


def all_gather_formula(case: Case, staged: bool) -> Formula:
    """Of the all-gather over nodes that are full."""
    inside, leaders = _levels(replace(case, rank=0, root=0))
    own, steps = replace(inside, num_bytes=_node_bytes(case, 0)), leaders.ranks - 1
    gather, broadcast = (find(each, "direct").formula for each in ("all_gather", "broadcast"))
    phases = in_turn(gather(own, staged=staged), broadcast(inside, staged=staged))
    return over_nodes(case, phases, Formula(steps, steps * own.num_bytes), senders=1)  # the ring, by its longest chunk
