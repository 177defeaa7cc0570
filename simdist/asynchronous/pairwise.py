"""Pairwise averaging: asynchronous decentralized SGD (AD-PSGD). No rank waits for another's gradient.

    active ranks     repeat: compute a gradient, average with one neighbour drawn at random, descend
    passive ranks    repeat: compute a gradient, descend; a second stream answers requests to average

        active  i             | gradient g_i at x_i |--x_i--.       .--m--> x_i ← m - γ g_i | gradient …
                                                            v       |
        passive j, averaging                             m = (x_i + x_j) / 2;  x_j ← m
        passive j             | gradient g_j at x_j as it was before … | x_j ← x_j - γ g_j | gradient …

The graph is bipartite: edges join only active to passive ranks. If ranks could request averages in a cycle, each would
wait for an answer and none would give it: a deadlock. Here ranks that send requests never receive any. Each averaging
preserves the mean of all x. The price is staleness: x_j may have been averaged since a passive rank began its gradient.

A rank that is asked to stop finishes its current step and attaches a stop notice to its next weights; every rank that
receives one does the same. So all stop within a few steps, each after its own step, and then no message is in flight.

Source: Lian et al. 2018, arXiv 1710.06952, algorithm 1, and the bipartite graph of its implementation.
"""

import threading

import numpy as np

from simdist.arrays import charge
from simdist.asynchronous.graphs import Graph
from simdist.asynchronous.worker import Asked, Worker
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_least

__all__ = ["ad_psgd"]

_STREAM = "averaging"
_AVERAGE, _LEAVE = 0, 1  # tags: a request to average; no more requests from this rank
_HALT = 2  # added to either as the stop notice


def ad_psgd(worker: Worker, graph: Graph, steps: int, seed: int = 0, asked: Asked = lambda: False) -> int:
    """Train by pairwise averaging: each rank steps at its own pace.

    Args:
        worker: this rank's; `observe` is called after each step, and on passive ranks also after each averaging.
        graph: which ranks may average, the same on all ranks, all of which must call; it must be bipartite. The side
            of rank 0 is active.
        steps: the total number of steps of each rank, including those that its worker has already done.
        seed: of the choice of neighbours, the same on all ranks.
        asked: whether to stop early. Soon after one rank is asked, all stop, each at its own step: its worker's `done`.

    Returns:
        The number of times that this rank's weights have been averaged with another's.

    Cost: for each averaging, n bytes of weights sent by both ranks. An active rank averages once per step, and finally
    sends each neighbour one empty message. A passive rank has a second stream.

    Raises:
        ArgumentError: the graph is for other ranks or not bipartite, or steps or seed is below 0; on every rank.
    """
    comm = worker.comm
    require_least("steps", steps, 0)
    require_least("seed", seed, 0)
    if graph.size != comm.size:
        raise ArgumentError(f"a graph of {graph.size} ranks on rank {comm.rank} of {comm.size}; needs the same number")
    passive = graph.sides()[comm.rank] == 1
    if _STREAM in comm.attached:
        comm.barrier()  # so that no rank is still in the previous run when the first requests of this one arrive
    else:
        comm.attached[_STREAM] = comm.stream(_STREAM)  # a collective call
    side = comm.attached[_STREAM]
    if not passive:
        return _active(worker, side.comm, graph.neighbours[comm.rank], steps, seed, asked)
    passive_rank = _PassiveRank(worker, side.comm, graph.degree(comm.rank), asked)
    work = side.start(passive_rank.serve)
    passive_rank.train(steps)
    work.wait()
    return passive_rank.count


def _active(
    worker: Worker, comm: Communicator, neighbours: tuple[int, ...], steps: int, seed: int, asked: Asked
) -> int:
    """The part of an active rank. Without neighbours this is SGD."""
    x, first, halting = worker.weights, worker.done, False
    choice = np.random.default_rng([seed, worker.comm.rank])
    for _ in range(first if neighbours else 0):
        choice.integers(len(neighbours))  # the choices of the steps already done
    while (step := worker.done) < steps and not halting:
        with worker.comm.span("pairwise step", x.nbytes):
            g = worker.find_gradient(step)
            halting = asked()
            if neighbours:
                j = neighbours[int(choice.integers(len(neighbours)))]
                comm.send(x, j, _AVERAGE + _HALT * halting)
                halting |= bool(comm.recv(x, j).tag & _HALT)
            worker.descend(g, step)
        worker.observe(step, x)
    for j in neighbours:
        comm.send(x[:0], j, _LEAVE + _HALT * halting)
    return worker.done - first if neighbours else 0


class _PassiveRank:
    """The part of a passive rank, on two streams that share its weights."""

    def __init__(self, worker: Worker, comm: Communicator, num_active: int, asked: Asked) -> None:
        self.count = 0
        self._halting = False
        self._asked = asked
        self._worker = worker
        self._comm = comm  # of the stream that answers
        self._num_active = num_active
        # Held only during arithmetic, never while waiting for a message: so it never blocks for long, and the two
        # fibers of a virtual rank never contend for it.
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Average with each rank that requests it, until all have sent their last request."""
        x = self._worker.weights
        theirs, num_left = np.empty_like(x), 0
        while num_left < self._num_active:
            status = self._comm.recv(theirs)
            self._comm.fence()  # the other stream may still have to write the weights before this instant
            with self._lock:
                self._halting |= bool(status.tag & _HALT)
            if status.tag & _LEAVE:
                num_left += 1
                continue
            with self._comm.span("update (mix)"):
                with self._lock:
                    np.add(x, theirs, out=x)
                    np.multiply(x, 0.5, out=x)
                    np.copyto(theirs, x)
                    self._worker.observe(self.count, x)
                charge(2 * x.size, 7 * x.nbytes)
            self.count += 1
            self._comm.send(theirs, status.src, _AVERAGE + _HALT * self._halting)

    def train(self, steps: int) -> None:
        """Descend by gradients, each at a copy of the weights from before it was begun."""
        comm, x = self._worker.comm, self._worker.weights
        before = np.empty_like(x)
        while (step := self._worker.done) < steps and not self._halting:
            with comm.span("pairwise step", x.nbytes):
                comm.fence()
                with self._lock:
                    np.copyto(before, x)
                    charge(0, 2 * x.nbytes)
                g = self._worker.find_gradient(step, before)
                comm.fence()
                with self._lock:
                    self._worker.descend(g, step)
                    self._worker.observe(step, x)
                    self._halting |= self._asked()
