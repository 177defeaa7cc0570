"""Gossip: decentralised SGD, in which each rank averages with its neighbours alone (D-PSGD).

    n   ranks                  x_i   rank i's weights           X   all of them, one a column
    W   mixing weights         g_i   rank i's gradient at x_i   G   all of them

        X ← X W - γ G

        rank 0     x₀ --. .--- x₀W₀₀ + x₁W₁₀ + x₃W₃₀ - γ g₀
                         X
        rank 1     x₁ --' '--- …                              while the weights are on their way to the
        rank 2     x₂ …                                       neighbours, each rank finds its gradient
        rank 3     x₃ …

The mean x̄ of the ranks' weights moves as in SGD with the mean of all gradients, for W leaves the mean alone; but no
rank ever holds it. How far they are from it is the consensus error, ‖x_i - x̄‖² summed over the ranks (see consensus).

Source: Lian et al. 2017, arXiv 1705.09056, algorithm 1.
"""

import numpy as np

from simdist.arrays import Array, charge
from simdist.asynchronous.mixing import Mixing
from simdist.asynchronous.replica import Replica, require_steps
from simdist.comm import Communicator, Request
from simdist.errors import ArgumentError

__all__ = ["Neighbourhood", "d_psgd"]


class Neighbourhood:
    """The averaging of one rank with its neighbours.

        rounds = Neighbourhood(mixing, comm, weights)
        rounds.begin(weights)                       # they must stay as they are until …
        …                                           # something else in the meantime
        rounds.finish(weights)                      # … here: now weights are the average

    Args:
        mixing: over the ranks of comm; the same on all of them.
        comm: the ranks; all of them must begin and finish each round.
        like: a vector of the length and dtype of what is averaged.

    Cost per rank and round, d neighbours, n bytes: d messages, d·n bytes sent.

    Raises:
        ArgumentError: mixing is for another number of ranks; on every rank.
    """

    def __init__(self, mixing: Mixing, comm: Communicator, like: Array) -> None:
        if mixing.size != comm.size:
            raise ArgumentError(
                f"a mixing matrix for {mixing.size} ranks on rank {comm.rank} of {comm.size}; needs one row a rank"
            )
        self._comm = comm
        self._weights = mixing.weights[comm.rank]
        self._heard = {j: np.empty_like(like) for j in mixing.neighbours(comm.rank)}
        self._under_way: list[Request] = []

    def begin(self, x: Array) -> None:
        """Send x to the neighbours, and be ready for theirs."""
        self._under_way = [self._comm.irecv(y, j, tag=0) for j, y in self._heard.items()]
        self._under_way += [self._comm.isend(x, j) for j in self._heard]

    def finish(self, x: Array) -> None:
        """Replace x by Σ_j W_ij x_j when all have come."""
        for request in self._under_way:
            request.wait()
        np.multiply(x, self._weights[self._comm.rank], out=x)
        for j, y in self._heard.items():
            np.multiply(y, self._weights[j], out=y)
            np.add(x, y, out=x)
        charge(x.size * (1 + 2 * len(self._heard)), x.nbytes * (2 + 5 * len(self._heard)))


def d_psgd(replica: Replica, mixing: Mixing, steps: int) -> None:
    """Train by gossip: each step averages the weights of before the step, and then descends.

    Args:
        replica: of this rank; replicas may start apart.
        mixing: who takes over how much from whom; the same on all ranks, all of which must call.
        steps: how many.

    Cost per rank and step, d neighbours, n bytes of weights: d messages, d·n bytes sent, and as many received.

    Raises:
        ArgumentError: mixing is for another number of ranks, or steps is below 0; on every rank.

    Source: Lian et al. 2017, arXiv 1705.09056, algorithm 1.
    """
    require_steps("steps", steps)
    x = replica.weights
    neighbourhood = Neighbourhood(mixing, replica.comm, x)
    for step in range(steps):
        with replica.comm.span("gossip step", x.nbytes):
            neighbourhood.begin(x)
            g = replica.find_gradient(step)
            neighbourhood.finish(x)
            replica.descend(g, step)
        replica.observe(step, x)
