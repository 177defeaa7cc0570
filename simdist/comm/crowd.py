"""Crowd: which ranks of a node have to share cores, and with whom."""

from typing import NamedTuple

import numpy as np

from simdist import environment
from simdist.arrays import Array

__all__ = ["MOST_CORES", "Crowd", "crowd", "mark"]

MOST_CORES = 4096


class Crowd(NamedTuple):
    """How ranks lie on cores, as one of them sees it.

    Attributes:
        crowded: whether there are more ranks than cores: who waits is to let others run.
        near: the ranks that may be waiting for this one's core; where each is bound to one core, those bound to it.
    """

    crowded: bool
    near: frozenset[int]


def mark(cores: Array) -> None:
    """Note the cores that this process may use: uint8 of shape (MOST_CORES,), 1 for each of them."""
    cores[...] = 0
    cores[[core for core in environment.cores() if core < MOST_CORES]] = 1


def crowd(cores: Array, rank: int) -> Crowd:
    """What follows of the marks of all ranks.

    Args:
        cores: shape (ranks, MOST_CORES).
        rank: who asks.
    """
    ranks, users = len(cores), cores.sum(axis=0)
    bound = (cores.sum(axis=1) == 1).all()
    near = np.flatnonzero((cores == cores[rank]).all(axis=1)) if bound else range(ranks)
    here = environment.place()
    others = here[2] if here and users.max() > 1 else ranks  # else each is bound to cores of its own
    return Crowd(bool(others > np.count_nonzero(users)), frozenset(map(int, near)))
