"""Dispatch: tokens to the slots of their experts, and the experts' outputs back to the tokens.

    T  tokens       E  experts      k  choices of a token      h  width
    g  group: tokens that share capacity        C  capacity: slots that an expert has for a group

    Every expert has equally many slots for every group. Tokens that find an expert full are dropped, and empty slots
    are zeros. So all shapes are known before the router chooses.

        two groups of four tokens, three experts, one choice, C = 2

        token         0  1  2  3  |  4  5  6  7
        chosen        1  1  0  1  |  2  0  2  1          3 is dropped: expert 1 is full for its group

        slots         expert 0     expert 1     expert 2
                      2 . | 5 .    0 1 | 7 .    . . | 4 6

All first choices of a group are placed first, in the order of the tokens; second choices take the slots that are left.

Source: Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1, without its random dispatch of second choices.
"""

import math
from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, charge, moved
from simdist.arrays.matmul import vecdot
from simdist.arrays.working import rounded, widened
from simdist.errors import as_declared, require_least

__all__ = ["Route", "Routes", "assign", "capacity", "combine", "combine_backward", "dispatch", "dispatch_backward"]


@as_declared
def capacity(tokens: int, experts: int, factor: float, top_k: int = 1) -> int:
    """The number of slots that an expert has for a group: tokens / experts · factor, rounded up.

    A token counts once for each of its choices. So a factor of 1 is enough for even loads.

    Raises:
        ArgumentError: there are no experts.

    Source: Fedus, Zoph, Shazeer 2021, arXiv 2101.03961, equation 3; with two choices and a factor of 1 it is the
    2N / (G E) of Lepikhin et al. 2020, arXiv 2006.16668, section 2.2.
    """
    require_least("experts", experts, 1)
    return math.ceil(top_k * tokens * factor / experts - 1e-9)  # 11 slots for 10 · 1.1, which is a little above 11


class Route(NamedTuple):
    """The tokens' first choices (or second, …) that have a slot.

    Attributes:
        tokens: the tokens, each at most once; integers of shape (m,).
        slots: their slots; integers of the same shape, all different.
    """

    tokens: Array
    slots: Array


class Routes(NamedTuple):
    """The routes of all choices.

    Attributes:
        kept: by choice, first to last.
        asked: how often each expert was chosen, shape (E,).
        dropped: how many of these choices found no slot, shape (E,).
    """

    kept: tuple[Route, ...]
    asked: Array
    dropped: Array


def assign(chosen: Array, experts: int, group: Array, groups: int, slots_per_group: int, slots: int) -> Routes:
    """Assign a slot to each choice, or drop it.

    Args:
        chosen: the experts of each token, best first: integers of shape (T, k).
        experts: E.
        group: the number of each token's group, shape (T,); tokens are in the order of their groups and places.
        groups: their number.
        slots_per_group: C.
        slots: of each expert, at least groups · C: the slot of a choice is expert · slots + group · C + place.
    """
    tokens, k = chosen.shape
    queue = np.empty_like(chosen, shape=(k, tokens))  # that each choice waits in: one per group and expert
    queue[...] = chosen.T
    queue += group * experts
    queue = queue.reshape(-1)
    # Sorted by queue, then by choice and token: the place in the queue is the distance from its beginning.
    order = np.argsort(queue, kind="stable")
    lengths = np.bincount(queue, minlength=groups * experts)
    starts = np.cumsum(lengths) - lengths
    sorted_places, place = np.empty_like(queue), np.empty_like(queue)
    sorted_places[...] = moved(np.arange(len(queue)), queue)
    sorted_places -= starts[queue[order]]
    place[order] = sorted_places
    kept = []
    for j in range(k):
        places = place[j * tokens : (j + 1) * tokens]
        fits = (places < slots_per_group).nonzero()[0]
        slot = chosen[:, j][fits] * slots + group[fits] * slots_per_group + places[fits]
        kept.append(Route(fits, slot))
    lengths = lengths.reshape(groups, experts)
    charge(0, 6 * queue.nbytes)
    return Routes(tuple(kept), lengths.sum(axis=0), np.maximum(lengths - slots_per_group, 0).sum(axis=0))


def dispatch(x: Array, kept: tuple[Route, ...], slots: int) -> Array:
    """The slots of all experts, shape (slots, h), filled with their tokens from x, shape (T, h)."""
    y = np.zeros_like(x, shape=(slots, x.shape[1]))
    for route in kept:
        y[route.slots] = x[route.tokens]
        charge(0, 2 * len(route.tokens) * x.shape[1] * x.itemsize)
    return y


def dispatch_backward(dy: Array, kept: tuple[Route, ...], tokens: int) -> Array:
    """Returns dx, shape (T, h): for each token the sum over its slots."""
    dx = widened(np.zeros_like(dy, shape=(tokens, dy.shape[1])))
    for route in kept:
        dx[route.tokens] += dy[route.slots]
        count = len(route.tokens)
        charge(count * dy.shape[1], 3 * count * dy.shape[1] * dy.itemsize)
    return rounded(dx, dy.dtype)


def combine(y: Array, w: Array, kept: tuple[Route, ...]) -> Array:
    """Each token's weighted sum of its experts' outputs, shape (T, h); a dropped choice adds nothing.

    Args:
        y: the experts' outputs by slot, shape (slots, h).
        w: the weights of the choices, shape (T, k).
    """
    out = widened(np.zeros_like(y, shape=(len(w), y.shape[1])))
    for j, (tokens, slots) in enumerate(kept):
        out[tokens] += w[:, j][tokens][:, None] * y[slots]
        charge(2 * len(tokens) * y.shape[1], 3 * len(tokens) * y.shape[1] * y.itemsize)
    return rounded(out, y.dtype)


def combine_backward(y: Array, w: Array, kept: tuple[Route, ...], dout: Array) -> tuple[Array, Array]:
    """Returns dy and dw, of the shapes of y and w; y, w and kept are as for `combine`."""
    dy, dw = np.zeros_like(y), np.zeros_like(w)
    for j, (tokens, slots) in enumerate(kept):
        d = widened(dout[tokens])
        dw[:, j][tokens] = vecdot(d, widened(y[slots]))
        dy[slots] = d * w[:, j][tokens][:, None]
        charge(3 * d.size, 3 * d.size * y.itemsize)
    return dy, dw
