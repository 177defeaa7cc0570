"""Hierarchical all-to-all: inside the node first, then between nodes, in few messages instead of many.

    p   ranks         k   ranks on a node         m   nodes
    n   bytes         ab:cd   the row of rank b of node a for rank d of node c

Source: Rajbhandari et al. 2022, DeepSpeed-MoE, arXiv 2201.05596, section 5.3.
"""

import numpy as np

from simdist.arrays import Array
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.grid import node_and_column
from simdist.collectives.pairwise import pairwise_all_to_all
from simdist.collectives.phases import in_turn, over_nodes
from simdist.collectives.registry import algorithm, find
from simdist.comm import Communicator

__all__ = ["hierarchical_all_to_all"]


def _cases(case: Case) -> list[Case]:
    """The all-to-alls that make it up: two, or on unequal nodes one over all ranks."""
    k = case.per_node
    if not case.equal_nodes:
        return [case]
    node, place = divmod(case.rank, k)
    return [Case(k, case.num_bytes, place), Case(case.ranks // k, case.num_bytes, node)]


def _cost(case: Case) -> Cost:
    return in_turn(*(find("all_to_all", "pairwise").cost(each) for each in _cases(case)))


def _formula(case: Case) -> Formula:
    phases = [find("all_to_all", "pairwise").formula(each) for each in _cases(case)]
    return over_nodes(case, phases[0], phases[1]) if len(phases) == 2 else phases[0]


@algorithm("all_to_all", "hierarchical", cost=_cost, formula=_formula)
def hierarchical_all_to_all(x: Array, y: Array, comm: Communicator) -> None:
    """Fill row i of y with row r of rank i's x: first to the rank of this node at the destination's place.

    Rank b of each node gathers all that its node has for ranks b of all nodes. On four ranks of two nodes:

        node 0                                        node 1
        00                       01                   10                       11
        00:00 00:10  -- 00:01 00:11 -->               10:00 10:10  -- 10:01 10:11 -->          inside
        <-- 01:00 01:10 --  01:01 01:11               <-- 11:00 11:10 --  11:01 11:11

        00:10 01:10 --------------------------------> 00                                       between
                                 00:11 01:11 -------------------------------> 01
        …

    The same bytes cross between nodes as in a pairwise all-to-all, in m-1 messages per rank instead of p-k. On unequal
    nodes it is the pairwise one.

    Args:
        x, y: shape (p, w), contiguous.

    Cost per rank: k-1 messages and n(k-1)/k bytes inside the node, m-1 messages and n(m-1)/m bytes between.
    """
    members = list(comm.nodes.members.values())
    m, k = len(members), len(members[0])
    if not comm.nodes.equal:
        pairwise_all_to_all(x, y, comm)
        return
    node, column = node_and_column(comm)
    width, order = x.shape[1], np.array(members)  # order[a, b]: rank b of node a
    by_place = scratch(x, (k, m * width))
    by_place[...] = x[order.T.reshape(-1)].reshape(k, m * width)
    inside = scratch(by_place)  # row b: what rank b of this node has for my place, node after node
    pairwise_all_to_all(by_place, inside, node)
    by_node = scratch(x, (m, k * width))
    by_node.reshape(m, k, width)[...] = inside.reshape(k, m, width).swapaxes(0, 1)
    between = scratch(by_node)
    pairwise_all_to_all(by_node, between, column)
    y[order.reshape(-1)] = between.reshape(m * k, width)
