"""Affinity: which ranks of a node share cores, and with which others."""

from typing import NamedTuple

import numpy as np

from simdist import environment
from simdist.arrays import Array

__all__ = ["MOST_CORES", "Affinity", "affinity", "set_mask"]

MOST_CORES = 4096


class Affinity(NamedTuple):
    """How a node's ranks are placed on its cores, as seen by one rank.

    Attributes:
        oversubscribed: whether there are more ranks than cores: then a waiting rank lets others run.
        near: the ranks that may need this one's core: if each rank is bound to one core, those bound to the same.
    """

    oversubscribed: bool
    near: frozenset[int]


def set_mask(mask: Array) -> None:
    """Set to 1 the entries of the cores that this process may use, and the others to 0.

    Args:
        mask: uint8 of shape (MOST_CORES,).
    """
    mask[...] = 0
    mask[[core for core in environment.cores() if core < MOST_CORES]] = 1


def affinity(masks: Array, rank: int) -> Affinity:
    """The affinity that follows from the masks of all ranks.

    Args:
        masks: shape (ranks, MOST_CORES).
        rank: the rank whose view is wanted.
    """
    ranks, users = len(masks), masks.sum(axis=0)
    bound = (masks.sum(axis=1) == 1).all()
    near = np.flatnonzero((masks == masks[rank]).all(axis=1)) if bound else range(ranks)
    here = environment.place()
    others = here[2] if here and users.max() > 1 else ranks  # otherwise no two share a core
    return Affinity(bool(others > np.count_nonzero(users)), frozenset(map(int, near)))
