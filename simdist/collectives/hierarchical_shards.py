"""Hierarchical reduce-scatter and all-gather: most of the way inside the nodes, so that the slow links carry little.

    p   ranks         k   ranks on a node         m   nodes         n   bytes
    ab  rank b of node a, and its chunk           bundle b          the chunks 0b, 1b, … of rank b of every node

On four ranks of two nodes:

    node 0                      node 1
    00         01               10         11                    reduce-scatter         all-gather
    00 10 <--> 01 11            00 10 <--> 01 11       inside    1. bundle b to rank b   2. bundles to all
    00 <--------------------->  10                     between   2. each chunk home      1. bundle b is made
               01 <--------------------->  11

Each is half of the hierarchical all-reduce. The chunks of a bundle are not adjacent, so they are packed first, or
unpacked last. On unequal nodes it is one ring over all ranks.

Source: Jia et al. 2018, arXiv 1807.11205 (phases inside nodes and between); Wang et al. 2023, ZeRO++, arXiv 2306.10209,
section 3.3 (the order of chunks that makes them those of a flat reduce-scatter).
"""

from functools import partial

from simdist.arrays import Array, Chunks, Reduction, consecutive, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.grid import node_and_column
from simdist.collectives.phases import in_turn, over_nodes
from simdist.collectives.registry import algorithm, find
from simdist.collectives.ring import ring_all_gather, ring_reduce_scatter
from simdist.comm import Communicator

__all__ = ["hierarchical_all_gather", "hierarchical_reduce_scatter"]


def _grid(case: Case) -> tuple[int, int]:
    """How many nodes, and how many ranks each has; one node where they are not equal."""
    k = case.per_node
    return (case.ranks // k, k) if case.equal_nodes else (1, case.ranks)


def _formula(operation: str, case: Case) -> Formula:
    ring, (m, k) = find(operation, "ring").formula, _grid(case)
    if m == 1:
        return ring(case)
    return over_nodes(case, ring(Case(k, case.num_bytes)), ring(Case(m, case.num_bytes // k)))


# -- reduce-scatter -----------------------------------------------------------------------------------


def _reduce_scatter_cost(case: Case) -> Cost:
    m, k = _grid(case)
    if m == 1:
        return find("reduce_scatter", "ring").cost(case)
    chunk = case.chunks.largest * case.itemsize
    inside, between = (k - 1) * m * chunk, (m - 1) * chunk
    return Cost(k + m - 2, k + m - 2, inside + between, inside + between)


@algorithm("reduce_scatter", "hierarchical", cost=_reduce_scatter_cost, formula=partial(_formula, "reduce_scatter"))
def hierarchical_reduce_scatter(x: Array, comm: Communicator, op: Reduction) -> None:
    """Leave in chunk r of x the reduction over all ranks: inside each node, then between nodes.

    Cost per rank, where p divides the items: k-1 messages and n(k-1)/k bytes inside the node, m-1 messages and
    n/k (m-1)/m bytes between; as many bytes reduced. Otherwise shorter chunks are padded to the longest.
    """
    members = list(comm.nodes.members.values())
    if len(members) == 1 or not comm.nodes.equal:
        ring_reduce_scatter(x, comm, op)
        return
    m, k = len(members), len(members[0])
    node, column = node_and_column(comm)
    chunks = partition(len(x), comm.size)
    bundles = scratch(x, (k, m, chunks.largest))
    for a, ranks in enumerate(members):
        for b, rank in enumerate(ranks):
            size = chunks.size(rank)
            bundles[b, a, :size] = x[chunks[rank]]
            bundles[b, a, size:] = 0
    ring_reduce_scatter(bundles.reshape(-1), node, op)
    mine = bundles[node.rank]
    ring_reduce_scatter(mine.reshape(-1), column, op)
    x[chunks[comm.rank]] = mine[column.rank, : chunks.size(comm.rank)]


# -- all-gather ---------------------------------------------------------------------------------------


def _all_gather_cost(case: Case) -> Cost:
    m, k = _grid(case)
    node, place = divmod(case.rank, k)

    def bundle(b: int) -> int:
        return sum(case.chunk_bytes(a * k + b) for a in range(m))

    between = bundle(place) - case.chunk_bytes((node + 1) % m * k + place)
    inside = case.num_bytes - bundle((place + 1) % k)
    return in_turn(Cost(m - 1, m - 1, between), Cost(k - 1, k - 1, inside))


@algorithm("all_gather", "hierarchical", cost=_all_gather_cost, formula=partial(_formula, "all_gather"))
def hierarchical_all_gather(x: Array, comm: Communicator, chunks: Chunks) -> None:
    """Fill x, of which each rank holds its own chunk, with the chunks of all: between nodes, then inside each node.

    Cost per rank: m-1 messages and n/k (m-1)/m bytes between nodes, k-1 messages and n(k-1)/k bytes inside.
    """
    members = list(comm.nodes.members.values())
    if len(members) == 1 or not comm.nodes.equal:
        ring_all_gather(x, comm, chunks)
        return
    node, column = node_and_column(comm)
    order = [rank for alike in zip(*members, strict=True) for rank in alike]  # bundle after bundle
    lengths = (chunks[rank].stop - chunks[rank].start for rank in order)
    packed, places = scratch(x), dict(zip(order, consecutive(lengths), strict=True))
    packed[places[comm.rank]] = x[chunks[comm.rank]]
    ring_all_gather(packed, column, [places[ranks[node.rank]] for ranks in members])
    first, last = members[0], members[-1]
    ring_all_gather(packed, node, [slice(places[i].start, places[j].stop) for i, j in zip(first, last, strict=True)])
    for rank in order:
        x[chunks[rank]] = packed[places[rank]]
