"""Collectives by hand, over send and receive: every algorithm by name, its cost beside it."""

from simdist.collectives import ring
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
