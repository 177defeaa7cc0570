"""Dispatch: tokens to the slots of their experts, and what these made of them back to the tokens.

    T  tokens       E  experts      k  choices of a token      h  width
    g  group: tokens that share capacity        C  capacity: slots that an expert has for a group

    Every expert takes as many tokens of every group, whether there are as many or not: what comes later finds it
    full and is dropped, and what stays empty is zeros. So all shapes are known before anything is chosen.

        two groups of four tokens, three experts, one choice, C = 2

        token         0  1  2  3  |  4  5  6  7
        chosen        1  1  0  1  |  2  0  2  1          3 is dropped: expert 1 is full of its group

        slots         expert 0     expert 1     expert 2
                      2 . | 5 .    0 1 | 7 .    . . | 4 6

First choices go first, all of a group's, in the order of their places; then second choices find what is left.

Source: Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1, without its random dispatch of second choices.
"""

import math
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, charge, moved
from simdist.arrays.matmul import vecdot
from simdist.arrays.working import rounded, widened

__all__ = ["Route", "Routes", "assign", "capacity", "combine", "combine_backward", "dispatch", "dispatch_backward"]


def capacity(tokens: int, experts: int, factor: float, top_k: int = 1) -> int:
    """How many of a group's tokens an expert takes: tokens / experts · factor, rounded up.

    A token with several choices counts as several. So a factor of 1 is enough where all is even.

    Source: Fedus, Zoph, Shazeer 2021, arXiv 2101.03961, equation 3; with two choices and a factor of 1 it is the
    2N / (G E) of Lepikhin et al. 2020, arXiv 2006.16668, section 2.2.
    """
    return math.ceil(top_k * tokens * factor / experts - 1e-9)  # not 12 slots for 10 · 1.1


class Route(NamedTuple):
    """Of all tokens' first choices, or second: those that found a slot.

    Attributes:
        tokens: which tokens, each at most once; integers of shape (m,).
        slots: where they go; integers of the same shape, all different.
    """

    tokens: Array
    slots: Array


class Routes(NamedTuple):
    """Where tokens go.

    Attributes:
        kept: by choice, first to last.
        asked: how often each expert was chosen, shape (E,).
        dropped: how many of these it had no slot for, shape (E,).
    """

    kept: tuple[Route, ...]
    asked: Array
    dropped: Array


def assign(chosen: Array, experts: int, group: Array, groups: int, slots_per_group: int, slots: int) -> Routes:
    """Find a slot for each choice, or none.

    Args:
        chosen: the experts of each token, best first: integers of shape (T, k).
        experts: E.
        group: the number of each token's group, shape (T,); tokens are in the order of their groups and places.
        groups: how many there are.
        slots_per_group: C.
        slots: of each expert, at least groups · C: the slot of a choice is expert · slots + group · C + place.
    """
    tokens, k = chosen.shape
    line = np.empty_like(chosen, shape=(k, tokens))  # which queue each choice stands in: its group's, for its expert
    line[...] = chosen.T
    line += group * experts
    line = line.reshape(-1)
    # Sorted by queue, and in it by choice and place: a place in the queue is the distance from its beginning.
    order = np.argsort(line, kind="stable")
    lengths = np.bincount(line, minlength=groups * experts)
    starts = np.cumsum(lengths) - lengths
    sorted_places, place = np.empty_like(line), np.empty_like(line)
    sorted_places[...] = moved(np.arange(len(line)), line)
    sorted_places -= starts[line[order]]
    place[order] = sorted_places
    kept = []
    for j in range(k):
        places = place[j * tokens : (j + 1) * tokens]
        who = (places < slots_per_group).nonzero()[0]
        kept.append(Route(who, chosen[:, j][who] * slots + group[who] * slots_per_group + places[who]))
    lengths = lengths.reshape(groups, experts)
    charge(0, 6 * line.nbytes)
    return Routes(tuple(kept), lengths.sum(axis=0), np.maximum(lengths - slots_per_group, 0).sum(axis=0))


def dispatch(x: Array, kept: tuple[Route, ...], slots: int) -> Array:
    """The slots of all experts, shape (slots, h), with the tokens that go there, from x of shape (T, h)."""
    y = np.zeros_like(x, shape=(slots, x.shape[1]))
    for tokens, places in kept:
        y[places] = x[tokens]
        charge(0, 2 * len(tokens) * x.shape[1] * x.itemsize)
    return y


def dispatch_backward(dy: Array, kept: tuple[Route, ...], tokens: int) -> Array:
    """Returns dx, shape (T, h): each token's is the sum over the slots that it went to."""
    dx = widened(np.zeros_like(dy, shape=(tokens, dy.shape[1])))
    for who, places in kept:
        dx[who] += dy[places]
        charge(len(who) * dy.shape[1], 3 * len(who) * dy.shape[1] * dy.itemsize)
    return rounded(dx, dy.dtype)


def combine(y: Array, w: Array, kept: tuple[Route, ...]) -> Array:
    """Each token's weighted sum of what its experts made of it, shape (T, h); nothing, where it was dropped.

    Args:
        y: what is in the slots now, shape (slots, h).
        w: the weights of the choices, shape (T, k).
    """
    out = widened(np.zeros_like(y, shape=(len(w), y.shape[1])))
    for j, (tokens, places) in enumerate(kept):
        out[tokens] += w[:, j][tokens][:, None] * y[places]
        charge(2 * len(tokens) * y.shape[1], 3 * len(tokens) * y.shape[1] * y.itemsize)
    return rounded(out, y.dtype)


def combine_backward(y: Array, w: Array, kept: tuple[Route, ...], dout: Array) -> tuple[Array, Array]:
    """Returns dy and dw, of the shapes of y and w; y, w and kept are of `combine`."""
    dy, dw = np.zeros_like(y), np.zeros_like(w)
    for j, (tokens, places) in enumerate(kept):
        d = widened(dout[tokens])
        dw[:, j][tokens] = vecdot(d, widened(y[places]))
        dy[places] = d * w[:, j][tokens][:, None]
        charge(3 * d.size, 3 * d.size * y.itemsize)
    return dy, dw
