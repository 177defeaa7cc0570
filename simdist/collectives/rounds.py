"""Rounds: what each round of a collective crosses on several nodes, counted from who sends to whom.

    p   ranks            k   ranks on a node         d   the distance of a round

    shift      every rank sends to the one d after it, round the ring
    tree       place 0 meets d, 2d meets 3d, 4d meets 5d, …       in a binomial tree, places counted from the root

A round in which no message leaves its node takes the link inside; any other takes the one between nodes, and the
messages that leave, or enter, the busiest node share its cards. All ranks are taken to end a round together. That is an
upper bound where they do not: in a tree, whose ranks have different rounds, and for short messages, which do not wait
for their receivers. Where messages share a card at both ends, it may be a fifth too low: one that waits for the second
card keeps others from the first.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from simdist.collectives.cost import Case, Formula, Links, chunk_each_step, repeated
from simdist.collectives.phases import in_turn, longest, phase

__all__ = ["Leaving", "busiest", "by_rounds", "circuit", "distances", "shift", "shifts", "tree"]


def distances(p: int) -> list[int]:
    """1, 2, 4, … below p."""
    return [1 << i for i in range((p - 1).bit_length())]


class Leaving(NamedTuple):
    """What leaves, or enters, the busiest node in a round: how many messages, and over how many places of the node they
    are spread.
    """

    messages: int
    places: int


def by_rounds(case: Case, rounds: Iterable[tuple[Leaving, Formula]]) -> Formula:
    """The Formula of rounds in turn, given for each what leaves a node, and the Formula of one message."""
    parts = (each if case.on_one_node else phase(each, *leaving) for leaving, each in rounds)
    return in_turn(Formula(0, 0), *parts)


def busiest(k: int, src: Any, dst: Any) -> Leaving:
    """What leaves, or enters, the busiest node of k ranks.

    Args:
        src, dst: arrays of ranks, who sends to whom, counted as if the first node were full.
    """
    away = src // k != dst // k
    if not away.any():
        return Leaving(0, 0)
    return Leaving(*map(max, zip(_at_nodes(k, src[away]), _at_nodes(k, dst[away]), strict=True)))


def _at_nodes(k: int, ranks: Any) -> Leaving:
    """The most of these ranks that a node has, and over how many places they are spread at most."""
    node, place = np.divmod(ranks, k)
    first, end = np.full(node.max() + 1, k), np.zeros(node.max() + 1, int)
    np.minimum.at(first, node, place)
    np.maximum.at(end, node, place + 1)
    return Leaving(int(np.bincount(node).max()), int((end - first).max()))


def tree(case: Case, d: int) -> Leaving:
    """Of a round of a binomial tree."""
    return _tree(case.ranks, case.per_node, case.first_lacks, case.root, d)


@lru_cache(maxsize=4096)
def _tree(p: int, k: int, lacks: int, root: int, d: int) -> Leaving:
    places = np.arange(0, p - d, 2 * d)
    return busiest(k, lacks + (places + root) % p, lacks + (places + d + root) % p)


def shift(case: Case, d: int) -> Leaving:
    """Of a shift: the last d ranks of a full node send to others, or all k; but its first k - (p-d) reach its last
    ones, round the ring.
    """
    p, k = case.ranks, case.per_node
    messages = k - max(0, k - d) - max(0, k - (p - d))
    return Leaving(messages, messages)


def shifts(case: Case, each: Formula) -> Formula:
    """The Formula of shifts by 1, 2, … p-1. From k to p-k on all ranks of a full node send to others."""
    p, k = case.ranks, case.per_node
    if case.on_one_node:
        return repeated(p - 1, each)
    rounds = Counter(shift(case, d) for d in (*range(1, k), *range(max(k, p - k + 1), p)))
    rounds[Leaving(k, k)] += max(0, p - 2 * k + 1)
    return by_rounds(case, ((leaving, repeated(times, each)) for leaving, times in rounds.items()))


class _Circuit(Formula):
    _chunk_bytes: int
    _short: Formula

    def over_links(self, links: Links) -> float:
        """See Formula."""
        return self._short.over_links(links) if self._chunk_bytes <= links.eager_bytes else super().over_links(links)


def circuit(case: Case, reduces: bool = False) -> Formula:
    """The Formula of p-1 shifts by 1, round a ring, where each rank sends on the chunk that it has just received.

    Long chunks wait for their receivers, so that all ranks end a step together, and each step is as long as one between
    two nodes. Short ones, of at most eager_bytes, wait only for the sender's port. Then the last one to arrive has

        gone round the ring, over the links between m nodes and p-1-m of those inside
        or waited to leave a node, for the p-2 chunks before it
        or both: waited for k-2 chunks, instead of crossing the node where it starts, or ends

    whichever takes longest.
    """
    steps = chunk_each_step(case, reduces)
    if case.on_one_node:
        return steps
    p, k = case.ranks, case.per_node
    each = Formula(1, case.num_bytes / p, steps.reduced_bytes / (p - 1))
    far = min(case.num_nodes, p - 1)

    def way(waits: int) -> Formula:
        queue = Formula(0, waits * each.bytes)
        return in_turn(phase(repeated(p - 1 - far - waits, each), 0), repeated(far, each), queue)

    found = _Circuit(*steps)
    found._chunk_bytes = case.chunk_bytes(0)
    found._short = longest(steps, way(0), way(max(0, k - 2)), each._replace(bytes=steps.bytes))
    return found
