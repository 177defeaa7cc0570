"""Gossip: decentralized SGD, in which each rank averages only with its neighbours (D-PSGD).

    n   ranks                  x_i   rank i's weights           X   all of them, one a column
    W   mixing weights         g_i   rank i's gradient at x_i   G   all of them

        X ← X W - γ G           (Wᵀ, where edges have a direction: row i of W holds what rank i averages with)

        rank 0     x₀ --. .--- x₀W₀₀ + x₁W₁₀ + x₃W₃₀ - γ g₀
                         X
        rank 1     x₁ --' '--- …                              while the weights are on their way to the
        rank 2     x₂ …                                       neighbours, each rank finds its gradient
        rank 3     x₃ …

Ranks that stop early must all stop after the same step, although no rank talks to all. The stop notice spreads with
the weights: a rank that is asked to stop names the step by which the furthest rank will know, and every rank passes on
the earliest step that it has received.

    rank 0, asked in step 7, 3 steps from the furthest      "stop at 10"
    its neighbours know it after step 7, theirs after step 8, the furthest after step 9: all stop at 10

W preserves the mean x̄ of the ranks' weights, so x̄ moves as in SGD with the mean of all gradients; but no rank ever
holds it. The distance from it is the consensus error, ‖x_i - x̄‖² summed over the ranks (see `consensus`).

Source: Lian et al. 2017, arXiv 1705.09056, algorithm 1.
"""

from collections.abc import Sequence
from itertools import count

import numpy as np

from simdist.arrays import Array, charge
from simdist.asynchronous.mixing import Mixing
from simdist.asynchronous.worker import Asked, Worker
from simdist.comm import ANY, Communicator, Request
from simdist.errors import ArgumentError, require_least, typed

__all__ = ["Neighbourhood", "d_psgd"]


class Neighbourhood:
    """The averaging of one rank with its neighbours.

        rounds = Neighbourhood(mixing, comm, weights)
        rounds.begin(weights)                       # from here on they must not change …
        …                                           # … while this rank computes …
        rounds.finish(weights)                      # … until here: now they are the average

    Args:
        mixing: over the ranks of comm; the same on all of them.
        comm: the ranks; all of them must begin and finish each round.
        like: a vector of the same length and dtype as the weights.

    Cost per rank and round, with d neighbours and n bytes: d messages, d·n bytes sent. Memory: d·n bytes.

    Raises:
        ArgumentError: mixing is no Mixing, or for another number of ranks; on every rank.
    """

    def __init__(self, mixing: Mixing, comm: Communicator, like: Array) -> None:
        if not isinstance(mixing, Mixing):
            raise ArgumentError(f"mixing is {typed(mixing)}; needs a Mixing, such as metropolis(graph)")
        if mixing.size != comm.size:
            raise ArgumentError(
                f"a mixing matrix for {mixing.size} ranks on rank {comm.rank} of {comm.size}; needs one row per rank"
            )
        self._comm = comm
        self._weights = mixing.weights[comm.rank]
        self._received = {j: np.empty_like(like) for j in mixing.neighbours(comm.rank)}
        self._listeners = mixing.listeners(comm.rank)
        self._receives: list[Request] = []
        self._sends: list[Request] = []

    def begin(self, x: Array, notice: int = 0) -> None:
        """Send x to those that average with it, and post receives for theirs.

        Args:
            notice: the messages' tag, a stop notice: how many steps are left; 0 if all continue to the last.
        """
        self._receives = [self._comm.irecv(x_j, j, ANY) for j, x_j in self._received.items()]
        self._sends = [self._comm.isend(x, i, notice) for i in self._listeners]

    def finish(self, x: Array) -> list[int]:
        """Replace x by Σ_j W_ij x_j when all x_j have arrived; returns the stop notices received with them."""
        notices = [receive.wait().tag for receive in self._receives]
        for send in self._sends:
            send.wait()
        with self._comm.span("update (mix)"):
            np.multiply(x, self._weights[self._comm.rank], out=x)
            for j, x_j in self._received.items():
                np.multiply(x_j, self._weights[j], out=x_j)
                np.add(x, x_j, out=x)
            d = len(self._received)
            charge(x.size * (1 + 2 * d), x.nbytes * (2 + 5 * d))
        return notices


def d_psgd(worker: Worker, mixing: Mixing | Sequence[Mixing], steps: int, asked: Asked = lambda: False) -> None:
    """Train by gossip: each step averages the weights from before the step, then descends.

    Args:
        worker: of this rank; workers may start from different weights.
        mixing: the mixing weights, or several to use in turn, such as `one_peer_exponential`; the same on all ranks,
            all of which must call.
        steps: the total number of steps, including those that the worker has already done.
        asked: whether to stop early; all ranks stop at the same step, soon after one of them is asked. (In a
            disconnected graph, those that the notice reaches.)

    Cost per rank and step, with d neighbours and n bytes of weights: d messages and d·n bytes, both sent and received.

    Raises:
        ArgumentError: mixing is no Mixing, or for another number of ranks, or steps is below 0; on every rank.
    """
    require_least("steps", steps, 0)
    turns = list(mixing) if isinstance(mixing, Sequence) else [mixing]
    require_least("the number of mixing matrices", len(turns), 1)
    x = worker.weights
    neighbourhoods = [Neighbourhood(each, worker.comm, x) for each in turns]
    end = steps  # before this step this rank stops, as far as it knows
    while (step := worker.done) < end:
        if end == steps and asked():
            end = min(steps, step + _reach(turns, worker.comm.rank, step))
        neighbourhood = neighbourhoods[step % len(turns)]
        with worker.comm.span("gossip step", x.nbytes):
            neighbourhood.begin(x, end - step if end < steps else 0)
            g = worker.find_gradient(step)
            end = min([end, *(step + left for left in neighbourhood.finish(x) if left)])
            worker.descend(g, step)
        worker.observe(step, x)


def _reach(turns: Sequence[Mixing], rank: int, step: int) -> int:
    """After how many steps, counting this one, every rank to which its graph leads knows what this rank knows."""
    informed, idle, last = {rank}, 0, 1
    for k in count(1):
        told = {i for j in informed for i in turns[(step + k - 1) % len(turns)].listeners(j)} - informed
        informed |= told
        last, idle = (k, 0) if told else (last, idle + 1)
        if len(informed) == turns[0].size or idle == len(turns):
            break
    return last
