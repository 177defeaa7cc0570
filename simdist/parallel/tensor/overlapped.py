"""Overlapped: runs of tokens go round a ring while ranks multiply those that they have.

    t    ranks       x0   the tokens of rank 0       y0   their results       0+1   the sum of what ranks 0 and 1 add

    rank              0            1            2
    enter   step 0    x0 -> y0     x1 -> y1     x2 -> y2      each multiplies the run that it has, while it sends that
            step 1    x2 -> y2     x0 -> y0     x1 -> y1      on and receives the next
            step 2    x1 -> y1     x2 -> y2     x0 -> y0

    leave   step 0    y2: 0        y0: 1        y1: 2         each computes its part of one run's sum, while the parts
            step 1    y1: 2+0      y2: 0+1      y0: 1+2       of others come, adds them up, and sends them on;
            step 2    y0: 1+2+0    y1: 2+0+1    y2: 0+1+2     its own run comes last

So of t-1 messages each takes time only if it is longer than a t-th of the product. What the model cannot show: smaller
products may be slower than a large one.

Source: Wang et al. 2023, ASPLOS, "Overlap Communication with Dependent Computation via Decomposition in Large Deep
Learning Models" (the looped collective einsum, in one direction).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from simdist.arrays import Array, charge, hold, reduction
from simdist.collectives.buffers import describe, scratch
from simdist.collectives.ring import Ring
from simdist.comm import Communicator, Request
from simdist.comm.request import complete
from simdist.parallel.tensor.region import Sharded, Through, by_text

__all__ = ["OVERLAPPED", "Overlapped"]

OVERLAPPED = ("overlapped enter", "overlapped leave")
"""The names of the spans; their bytes are those of a run of tokens, of which t-1 are sent."""

_SUM, _WAITING = reduction("sum"), "wait for a run"


class Overlapped(Sharded):
    """`Sharded`, where products of tokens that enter or leave overlap with messages about other tokens.

    What is not multiplied, as embeddings are, enters and leaves as in `Sharded`. Sums are those of a ring: their last
    bits may differ from `Sharded` with another algorithm.

    Cost per rank of n bytes inside: that of `Sharded` by a ring, t-1 messages and n(t-1)/t bytes to enter or leave.
    Where inputs enter again for derivatives by weights, t products are added to these, and not one.
    """

    def enter_through(self, x: Array, features: int, function: Through) -> tuple[Array, Array]:
        """See Region."""
        inside = self._with_own(x)
        y = np.empty_like(x, shape=(*inside.shape[:-1], features))
        for owner in self._arriving(inside):
            function(inside[owner], out=y[owner])
        return by_text(inside), by_text(y)

    def leave_through(self, x: Array, features: int, function: Through) -> Array:
        """See Region."""
        runs, last = self.runs(x), self.comm.size - 1
        like = np.empty_like(x, shape=(*runs.shape[1:-1], features))
        with self._checked_ring(OVERLAPPED[1], like) as (comm, ring):
            arrived = scratch(like, like.shape)
            requests: list[Request] = []
            for step in range(self.comm.size):
                y = function(runs[ring.back(step + 1)])
                complete(requests, comm, _WAITING)
                if step:
                    _SUM.fold(y, arrived)
                if step < last:
                    leaving = y  # stays alive until it is sent, while the next one is computed
                    hold("communication", leaving, "tensor parallelism")
                    requests = [comm.irecv(arrived, ring.before, step), comm.isend(leaving, ring.after, step)]
        return y

    def each_run(self, x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
        """See Region."""
        inside, runs = self._with_own(x), self.runs(y)
        for owner in self._arriving(inside):
            yield inside[owner], runs[owner]

    def _with_own(self, x: Array) -> Array:
        """Room for the runs of all ranks, with this rank's, x, in its place."""
        inside = np.empty_like(x, shape=(self.comm.size, *x.shape))
        inside[self.comm.rank] = x
        charge(0, 2 * x.nbytes)
        return inside

    def _arriving(self, inside: Array) -> Iterator[int]:
        """The owners of all runs, this rank first: each when its run is there, while the next one comes."""
        with self._checked_ring(OVERLAPPED[0], inside[0]) as (comm, ring):
            for step in range(comm.size):
                owner = ring.back(step)
                requests: list[Request] = []
                if step < comm.size - 1:
                    coming = inside[ring.back(step + 1)]
                    requests = [comm.irecv(coming, ring.before, step), comm.isend(inside[owner], ring.after, step)]
                yield owner
                complete(requests, comm, _WAITING)

    @contextmanager
    def _checked_ring(self, what: str, run: Array) -> Iterator[tuple[Communicator, Ring]]:
        """The ring, and its communicator, after checking that the runs of all ranks agree."""
        comm = self.comm.shadow
        with comm.span(what, run.nbytes):
            comm.agree(f"{what} of {describe(run)}")
            yield comm, Ring(comm.size, comm.rank)
