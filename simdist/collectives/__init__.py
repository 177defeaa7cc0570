"""Hand-written collectives over send and receive: every algorithm by name, with its cost.

`cost` counts one rank's messages and bytes, `formula` is the papers' time, and `lower_bound` the least possible.

In these files n is the number of items of the whole array, and in costs its number of bytes.
"""

# Importing a family registers its algorithms. They are listed in this order, and `auto` takes the first of those
# with equal predicted times. So the simplest, which need the most memory, come last.
from simdist.collectives import (  # noqa: F401, I001
    tree,
    chain,
    scatter_gather,
    ring,
    multi_ring,
    recursive,
    rabenseifner,
    bruck,
    pairwise,
    double_tree,
    hierarchical,
    hierarchical_shards,
    torus,
    direct,
    direct_scatter,
    direct_data,
    dissemination,
    linear,
)
from simdist.collectives import registry
from simdist.collectives.api import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from simdist.collectives.bounds import logp_broadcast_s, logp_sum_values, lower_bound
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.phases import in_turn, over_nodes
from simdist.collectives.registry import algorithm, algorithms, cost, formula

__all__ = [
    "Case",
    "Cost",
    "Formula",
    "algorithm",
    "algorithms",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "cost",
    "formula",
    "gather",
    "in_turn",
    "logp_broadcast_s",
    "logp_sum_values",
    "lower_bound",
    "over_nodes",
    "reduce",
    "reduce_scatter",
    "scatter",
]

registry.close()
