"""What the methods' arithmetic costs, on a machine where memory alone takes time: a second for a pass over the weights.

Plain SGD reads weights and gradient and writes weights: 3 s. On a second machine arithmetic alone takes time, a second
for an operation on each weight: plain SGD multiplies and subtracts, 2 s.
"""

from math import inf

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous import Worker, diloco, local_sgd
from simdist.asynchronous.federated import Federation
from simdist.asynchronous.gossip import d_psgd
from simdist.asynchronous.graphs import ring
from simdist.asynchronous.hogwild import Hogwild
from simdist.asynchronous.mixing import metropolis
from simdist.asynchronous.pairwise import ad_psgd
from simdist.cluster import Cluster, Device, Link

SIZE = 1000
WIRE = Link(0.0, inf)
MACHINE = Cluster("memory", Device("", inf, 8 * SIZE, inf), WIRE, WIRE, 2, eager_bytes=1 << 20)
ARITHMETIC = MACHINE.with_(device=Device("", SIZE, inf, inf))


def still(weights, step):
    """No gradient, and found in no time."""
    return 0.0, np.zeros_like(weights)


def worker(comm):
    return Worker(comm, np.ones(SIZE), still, 0.1)


def federated(comm, mu):
    federation = Federation(comm, still, [np.arange(3)] * 2, 0.1, mu=mu)
    federation.train(np.ones(SIZE), 1)


class EveryOther:
    """A term that touches half of the weights."""

    def keys(self, step):
        return np.arange(0, SIZE, 2)

    def gradient(self, weights, step):
        return still(weights, step)


METHODS = {
    "an average by one over the ranks": (1, lambda comm: local_sgd(worker(comm), 1, 1), 3 + 2, 2 + 1),
    "a difference, its average, an outer step with momentum, a copy": (
        1,
        lambda comm: diloco(worker(comm), 1, 1),
        3 + 3 + 2 + 5 + 2,
        2 + 1 + 1 + 6,
    ),
    "own weights times a number, then a neighbour's, added": (
        2,
        lambda comm: d_psgd(worker(comm), metropolis(ring(2)), 1),
        3 + 2 + 3 + 2,
        2 + 1 + 2,
    ),
    "theirs added to mine, halved, and copied": (
        2,
        lambda comm: ad_psgd(worker(comm), ring(2), 1, 0),
        3 + 3 + 2 + 2,
        2 + 1 + 1,
    ),
    "two clients, the last one's copy to the server, which adds them up": (
        1,
        lambda comm: federated(comm, 0.0),
        2 * 3 + 2 + 1 + 2 * 5,
        2 * 2 + 2 * 2,
    ),
    "the same, each held where it began": (
        1,
        lambda comm: federated(comm, 0.5),
        2 * (3 + 8) + 2 + 1 + 2 * 5,
        2 * (2 + 3) + 2 * 2,
    ),
    "half of the weights alone": (
        1,
        lambda comm: Hogwild(comm, np.ones(SIZE)).train(EveryOther(), 1, 0.1),
        4 / 2,
        2 / 2,
    ),
}


@pytest.mark.parametrize(("ranks", "program", "passes", "operations"), METHODS.values(), ids=METHODS)
def test_a_step_takes_its_passes_over_the_weights_and_its_operations(ranks, program, passes, operations):
    found = [sd.run(program, ranks, cluster=cluster).elapsed_s for cluster in (MACHINE, ARITHMETIC)]
    assert found == pytest.approx([passes, operations])


UPDATES = {
    "local SGD": (1, lambda comm: local_sgd(worker(comm), 1, 1), 3, 2),
    "an inner and an outer step": (1, lambda comm: diloco(worker(comm), 1, 1), 3 + 5 + 2, 2),
    "gossip": (2, lambda comm: d_psgd(worker(comm), metropolis(ring(2)), 1), 3, 2 + 3 + 2),
}


@pytest.mark.parametrize(("ranks", "program", "update_s", "mix_s"), UPDATES.values(), ids=UPDATES)
def test_what_changes_the_weights_has_a_span_of_its_own(ranks, program, update_s, mix_s):
    trace = sd.run(program, ranks, cluster=MACHINE).trace
    names = ("update", "update (mix)")
    took = [sum(s.seconds for s in trace if (s.rank, s.name) == (0, name)) for name in names]
    assert took == pytest.approx([update_s, mix_s])


def test_a_passive_rank_mixes_on_its_second_stream():
    trace = sd.run(lambda comm: ad_psgd(worker(comm), ring(2), 1, 0), 2, cluster=MACHINE).trace
    found = {(s.rank, s.stream, s.name): s.seconds for s in trace if s.name in ("update", "update (mix)")}
    assert [s.start_s for s in trace if (s.rank, s.stream, s.name) == (1, "main", "update")] == [2], "after a copy"
    assert found == {(0, "main", "update"): 3, (1, "main", "update"): 3, (1, "averaging", "update (mix)"): 3 + 2 + 2}
