"""Pairwise averaging: asynchronous decentralised SGD (AD-PSGD). Nobody waits for a step of anybody else's.

    active ranks     find a gradient, average with one neighbour drawn at random, descend; and again
    passive ranks    find a gradient, descend; and again. A second stream answers those who want to average

        active  i             | gradient g_i at x_i |--x_i--.       .--m--> x_i ← m - γ g_i | gradient …
                                                            v       |
        passive j, averaging                             m = (x_i + x_j) / 2;  x_j ← m
        passive j             | gradient g_j at x_j as it was before … | x_j ← x_j - γ g_j | gradient …

Edges join only active to passive ranks: the graph is bipartite. If two ranks could each ask the other, or several in
a circle, each would wait for an answer and none would give it; here those who ask are never asked. What a passive rank
descends by may be old: x_j has been averaged since. That is the price, and the mean of all x stays what it was under
each averaging.

Source: Lian et al. 2018, arXiv 1710.06952, algorithm 1, and the bipartite graph of its implementation.
"""

import threading

import numpy as np

from simdist.arrays import charge
from simdist.asynchronous.graphs import Graph
from simdist.asynchronous.replica import Replica, require_steps
from simdist.comm import Communicator
from simdist.errors import ArgumentError

__all__ = ["ad_psgd"]

_AVERAGE, _LEAVE = 0, 1  # tags: average with me, I shall not ask again


def ad_psgd(replica: Replica, graph: Graph, steps: int, seed: int = 0) -> int:
    """Train by pairwise averaging: each rank makes so many steps, at its own pace.

    Args:
        replica: of this rank; `observe` is called after each step, and on passive ranks after each averaging.
        graph: who may average with whom, the same on all ranks, all of which must call; it must be bipartite. The
            side of rank 0 is active.
        steps: of each rank.
        seed: of the choice of neighbours, the same on all ranks.

    Returns:
        How often this rank's weights have been averaged with another's.

    Cost: n bytes of weights sent by both ranks of each averaging; an active rank asks for one a step, and sends each
    neighbour one empty message at its end. A passive rank has a second stream.

    Raises:
        ArgumentError: the graph is for another number of ranks or not bipartite, or steps is below 0; on every rank.

    Source: Lian et al. 2018, arXiv 1710.06952, algorithm 1.
    """
    comm = replica.comm
    require_steps("steps", steps)
    if graph.size != comm.size:
        raise ArgumentError(f"a graph of {graph.size} ranks on rank {comm.rank} of {comm.size}; needs as many")
    passive = graph.sides()[comm.rank] == 1
    side = comm.stream("averaging")  # all ranks of a communicator have to ask for it
    if not passive:
        return _lead(replica, side.comm, graph.neighbours[comm.rank], steps, np.random.default_rng([seed, comm.rank]))
    answers = _Answers(replica, side.comm, graph.degree(comm.rank))
    work = side.start(answers.serve)
    answers.train(steps)
    work.wait()
    return answers.count


def _lead(
    replica: Replica, comm: Communicator, neighbours: tuple[int, ...], steps: int, choice: np.random.Generator
) -> int:
    """What an active rank does. Without neighbours this is SGD."""
    x = replica.weights
    for step in range(steps):
        with replica.comm.span("pairwise step", x.nbytes):
            g = replica.find_gradient(step)
            if neighbours:
                j = neighbours[int(choice.integers(len(neighbours)))]
                comm.send(x, j, _AVERAGE)
                comm.recv(x, j, _AVERAGE)
            replica.descend(g, step)
        replica.observe(step, x)
    for j in neighbours:
        comm.send(np.empty(0, x.dtype), j, _LEAVE)
    return steps if neighbours else 0


class _Answers:
    """What a passive rank does, on two streams that share its weights.

    Args:
        comm: the communicator of the stream that answers.
        askers: how many active neighbours there are.
    """

    def __init__(self, replica: Replica, comm: Communicator, askers: int) -> None:
        self.count = 0
        self._replica = replica
        self._comm = comm
        self._askers = askers
        # Held for arithmetic alone, never while waiting for a message: so nobody is blocked for long by it, and two
        # fibers of a virtual rank never meet at it.
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Average with whoever asks, until none of them will ask again."""
        x = self._replica.weights
        theirs, left = np.empty_like(x), 0
        while left < self._askers:
            status = self._comm.recv(theirs)
            if status.tag == _LEAVE:
                left += 1
                continue
            with self._lock:
                np.add(x, theirs, out=x)
                np.multiply(x, 0.5, out=x)
                np.copyto(theirs, x)
                self._replica.observe(self.count, x)
            charge(2 * x.size, 7 * x.nbytes)
            self.count += 1
            self._comm.send(theirs, status.src, _AVERAGE)

    def train(self, steps: int) -> None:
        """Descend by gradients at the weights as they were when each was begun."""
        comm, x = self._replica.comm, self._replica.weights
        before = np.empty_like(x)
        for step in range(steps):
            with comm.span("pairwise step", x.nbytes):
                comm.fence()
                with self._lock:
                    np.copyto(before, x)
                g = self._replica.find_gradient(step, before)
                comm.fence()
                with self._lock:
                    self._replica.descend(g, step)
                    self._replica.observe(step, x)
