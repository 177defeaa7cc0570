"""Hierarchical: inside the node first, then between nodes, so that the slow links carry little.

    p   ranks         k   ranks on a node         m   nodes
    n   items         ab:cd   of an all-to-all, the row of rank b of node a for rank d of node c

Source: Jia et al. 2018, arXiv 1807.11205: hierarchical all-reduce, by leaders; Cho, Finkler, Kung, Hunter 2019,
MLSys: BlueConnect, a ring in each dimension; Rajbhandari et al. 2022, DeepSpeed-MoE, arXiv 2201.05596, section 5.3: the
all-to-all, in few messages instead of many.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, Reduction
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.grid import Grid, Phases, node_and_column
from simdist.collectives.pairwise import pairwise_all_to_all
from simdist.collectives.phases import in_turn, over_nodes
from simdist.collectives.registry import algorithm, find
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_known

__all__ = ["Leaders", "hierarchical_all_reduce", "hierarchical_all_to_all"]


class Leaders(NamedTuple):
    """The names of the three algorithms where the first rank of each node acts for all of them.

    Used instead of `Phases` where nodes have different numbers of ranks.
    """

    reduce: str = "binomial"
    all_reduce: str = "ring"
    broadcast: str = "binomial"

    def run(self, x: Array, grid: Grid, op: Reduction, **inside: Any) -> None:
        """Replace x by its reduction over all ranks; a row is a node.

        Args:
            inside: options of the first and the last algorithm.
        """
        node, leaders = grid
        reduce, all_reduce, broadcast = map(find, self._fields, self)
        reduce.run(x, node, op, 0, **inside)
        if node.rank == 0:
            all_reduce.run(x, leaders, op)
        broadcast.run(x, node, 0, **inside)

    def cost(self, case: Case, per_node: int, **inside: Any) -> Cost:
        """What one rank does, where the ranks fill nodes of per_node in order and the last may lack some; options as of
        `run`.
        """
        node, place = divmod(case.rank, per_node)
        ranks = min(per_node, case.ranks - node * per_node)
        own = Case(ranks, case.num_bytes, place, itemsize=case.itemsize)
        reduce, all_reduce, broadcast = map(find, self._fields, self)
        mine = in_turn(reduce.cost(own, **inside), broadcast.cost(own, **inside))
        if place == 0:
            mine = in_turn(mine, all_reduce.cost(_between(case, node)))
        if case.rank == 0:
            return mine
        return mine._replace(steps=self.cost(replace(case, rank=0), per_node, **inside).steps)

    def formula(self, case: Case, per_node: int, **inside: Any) -> Formula:
        """The sum of the three published times; options as of `run`."""
        own = Case(per_node, case.num_bytes, itemsize=case.itemsize, one_memory=case.one_memory)
        reduce, all_reduce, broadcast = map(find, self._fields, self)
        both = in_turn(reduce.formula(own, **inside), broadcast.formula(own, **inside))
        return over_nodes(case, both, all_reduce.formula(_between(case)), senders=1)


def _between(case: Case, node: int = 0) -> Case:
    """The case of the leaders, one on each node."""
    return Case(case.num_nodes, case.num_bytes, node, itemsize=case.itemsize, ranks_per_node=1)


def _plan(equal: bool, leaders: bool | None, inner: dict[str, str]) -> Phases | Leaders:
    """The three phases: by leaders if requested, or if the nodes are unequal.

    All names are looked up here, so that every rank raises for an unknown one, even of a phase that it skips.
    """
    if leaders is False and not equal:
        raise ArgumentError("leaders=False needs the same number of ranks on every node")
    kind = Leaders if leaders or not equal else Phases
    for phase, name in inner.items():
        require_known("phase", phase, kind._fields)
        find(phase, name)
    return kind(**inner)


def _cost(case: Case, leaders: bool | None = None, **inner: str) -> Cost:
    return _plan(case.equal_nodes, leaders, inner).cost(case, case.per_node)


def _formula(case: Case, leaders: bool | None = None, **inner: str) -> Formula:
    return _plan(case.equal_nodes, leaders, inner).formula(case, case.per_node)


@algorithm("all_reduce", "hierarchical", cost=_cost, formula=_formula)
def hierarchical_all_reduce(
    x: Array, comm: Communicator, op: Reduction, leaders: bool | None = None, **inner: str
) -> None:
    """Replace x by its reduction over all ranks: inside each node, between nodes, inside each node.

    On eight ranks of two nodes:

        node 0                        node 1
        0 --- 1 --- 2 --- 3           4 --- 5 --- 6 --- 7      1.  reduce-scatter inside: i and i+4 hold their
        |     |     |     |           |     |     |     |          node's sum of chunk i
        +-----|-----|-----|-----------+     |     |     |      2.  all-reduce between: 0 with 4, 1 with 5, …,
              +-----|-----|-----------------+     |     |          each pair for its own chunk
                    +-----|-----------------------+     |      3.  all-gather inside: all hold all
                          +-----------------------------+

    By leaders, as always on nodes of unequal size, 1 is a reduce to the first rank of the node, 2 an
    all-reduce of the whole array among these, and 3 a broadcast: on binomial trees 2 ⌈lg k⌉ + 2(m-1) steps, where the
    paper's rings take 4(k-1) + 2(m-1).

    Args:
        x: shape (n,), contiguous, the same length and dtype on every rank; overwritten.
        leaders: whether to go by leaders; by default only where nodes are unequal.
        inner: which algorithm does each phase: reduce_scatter, all_reduce, all_gather; by leaders reduce,
            all_reduce, broadcast. With all_reduce="torus" there are rings in three dimensions, as in BlueConnect and
            on a TPU's torus: 2(k-1) + 2(rows-1) + 2(columns-1) messages, and no more bytes.

    Cost per rank, on rings: 2(k-1) + 2(m-1) messages; 2n(p-1)/p bytes sent, of which 2n/k (m-1)/m leave the
    node; n(p-1)/p reduced.

    Raises:
        ArgumentError: leaders=False on unequal nodes; on every rank.
        UnknownNameError: no such phase or algorithm; on every rank.
    """
    _plan(comm.nodes.equal, leaders, inner).run(x, node_and_column(comm), op)


# -- all-to-all -------------------------------------------------------------------------------------------


def _cases(case: Case) -> list[Case]:
    """The all-to-alls that make it up: two, or on unequal nodes one over all ranks."""
    k = case.per_node
    if not case.equal_nodes:
        return [case]
    node, place = divmod(case.rank, k)
    return [Case(k, case.num_bytes, place), Case(case.ranks // k, case.num_bytes, node)]


def _exchange_cost(case: Case) -> Cost:
    return in_turn(*(find("all_to_all", "pairwise").cost(each) for each in _cases(case)))


def _exchange_formula(case: Case) -> Formula:
    phases = [find("all_to_all", "pairwise").formula(each) for each in _cases(case)]
    return over_nodes(case, phases[0], phases[1]) if len(phases) == 2 else phases[0]


@algorithm("all_to_all", "hierarchical", cost=_exchange_cost, formula=_exchange_formula)
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
