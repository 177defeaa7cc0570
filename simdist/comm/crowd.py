"""Crowd: which ranks of a node share cores, and with which others."""

from typing import NamedTuple

import numpy as np

from simdist import environment
from simdist.arrays import Array

__all__ = ["MOST_CORES", "Crowd", "crowd", "mark"]

MOST_CORES = 4096


class Crowd(NamedTuple):
    """How a node's ranks are placed on its cores, as seen by one rank.

    Attributes:
        crowded: whether there are more ranks than cores: then a waiting rank lets others run.
        near: the ranks that may need this one's core: if each rank is bound to one core, those bound to the same.
    """

    crowded: bool
    near: frozenset[int]


def mark(cores: Array) -> None:
    """Set to 1 the entries of the cores that this process may use, and the others to 0.

    Args:
        cores: uint8 of shape (MOST_CORES,).
    """
    cores[...] = 0
    cores[[core for core in environment.cores() if core < MOST_CORES]] = 1


def crowd(cores: Array, rank: int) -> Crowd:
    """The crowd that follows from the marks of all ranks.

    Args:
        cores: shape (ranks, MOST_CORES).
        rank: the rank whose view is wanted.
    """
    ranks, users = len(cores), cores.sum(axis=0)
    bound = (cores.sum(axis=1) == 1).all()
    near = np.flatnonzero((cores == cores[rank]).all(axis=1)) if bound else range(ranks)
    here = environment.place()
    others = here[2] if here and users.max() > 1 else ranks  # otherwise no two share a core
    return Crowd(bool(others > np.count_nonzero(users)), frozenset(map(int, near)))
