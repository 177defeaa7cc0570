"""Collectives by hand, over send and receive: every algorithm by name, its cost beside it."""

# Importing a family registers its algorithms, listed in this order.
from simdist.collectives import (  # noqa: F401, I001
    linear,
    tree,
    chain,
    scatter_gather,
    ring,
    bidirectional,
    recursive,
    rabenseifner,
    bruck,
    pairwise,
    double_tree,
    hierarchical,
    torus,
    dissemination,
)
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
from simdist.collectives.cost import Case, Cost, Formula
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
    "reduce",
    "reduce_scatter",
    "scatter",
]
