"""Cube: which ranks meet when partners are 1, 2, 4, … places apart, so that what a rank holds doubles each round.

    p   ranks         q   the largest power of two in p: how many places the cube has
    r   this rank     d   the distance of a round: places meet whose numbers differ only in bit d

    place      0   1   2   3   4   5   6   7
    d = 1      1   0   3   2   5   4   7   6      meets
    d = 2      2   3   0   1   6   7   4   5
    d = 4      4   5   6   7   0   1   2   3

Before the round of distance d a place stands for the aligned run of d places that contains it, afterwards for the run
of 2d. Doubling goes through the rounds forwards and joins the two runs; halving goes backwards and splits them.

Where p is not a power of two, the first p - q places seat two ranks: a host, which takes part, and a guest, which
gives its data to the host beforehand and gets the result afterwards.

    rank       0     1     2     3     4     5        p = 6, q = 4
    place      0 <-- '     1 <-- '     2     3        1 is the guest of 0, 3 is the guest of 2

Formulas count these two as separate rounds. They are upper bounds where messages wait for their receives, because a
place without a guest starts earlier. Small messages do not wait: one from such a place may come a round early and
occupy a port when another message is due, which costs about one message more.

Source: Thakur, Rabenseifner, Gropp 2005, Int. J. High Perform. Comput. Appl. 19(1), 49-66.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from simdist.arrays import Array, Chunks, Reduction, partition
from simdist.collectives.buffers import scratch
from simdist.collectives.cost import Case, Cost, Formula
from simdist.collectives.rounds import Leaving, busiest, by_rounds, distances
from simdist.comm import Communicator

__all__ = ["Block", "Cube", "Round", "double", "fold_guest", "from_guest", "halve", "over_rounds", "to_guest"]

Block: TypeAlias = Callable[[int, int], slice]
"""block(i, j): the part of the array that places i … j-1 stand for."""


class Round(NamedTuple):
    """One meeting: with which rank, and the runs of places (first, last + 1) that the two stand for before it."""

    partner: int
    mine: tuple[int, int]
    theirs: tuple[int, int]


class Cube:
    """A rank's place among the q that meet, and the rank that shares it.

    Attributes:
        size: q.
        place: this rank's, from 0 to q-1.
        host, guest: the first and the last rank at this place; the same one where it seats only one.
        is_guest, has_guest: whether this rank is the second of two at its place, or the first of two.
        distances: of the rounds in which this rank meets another: 1, 2, 4, …; a guest has none.
        num_rounds: lg q.
        steps: from the first message to the last: the rounds, and one step each from a guest and back to it.
    """

    def __init__(self, ranks: int, rank: int) -> None:
        self.num_rounds = ranks.bit_length() - 1
        self.size = 1 << self.num_rounds
        self.place = max(rank // 2, rank - (ranks - self.size))
        self._seats = partition(ranks, self.size)
        self.host, self.guest = self._seats.start(self.place), self._seats.start(self.place + 1) - 1
        self.is_guest = rank != self.host
        self.has_guest = rank != self.guest
        self.distances = [] if self.is_guest else distances(self.size)
        self.steps = self.num_rounds + 2 * (ranks > self.size)

    @property
    def rounds(self) -> list[Round]:
        """The meetings of this rank, one at each distance."""
        return [self._round(d) for d in self.distances]

    def partner(self, d: int) -> int:
        """The rank that this one meets at this distance."""
        return self._seats.start(self.place ^ d)

    def _round(self, d: int) -> Round:
        other = self.place ^ d
        mine, theirs = self.place // d * d, other // d * d
        return Round(self.partner(d), (mine, mine + d), (theirs, theirs + d))

    def of_ranks(self, chunks: Chunks) -> Block:
        """What places stand for, if each rank stands for its own chunk."""
        start = self._seats.start
        return lambda i, j: slice(chunks[start(i)].start, chunks[start(j) - 1].stop)

    def ranks_at(self, places: int) -> int:
        """How many ranks the first so many places seat: as many where p is a power of two, otherwise at least as many
        as any other run of places.
        """
        return self._seats.start(places)

    # -- counting -------------------------------------------------------------------------------------

    def run_bytes(self, block: Block, itemsize: int) -> tuple[int, int]:
        """The bytes of the runs (mine, theirs), all rounds together.

        Doubling sends what is mine; halving sends what is theirs and folds what is mine.
        """

        def num_bytes(run: tuple[int, int]) -> int:
            part = block(*run)
            items: int = part.stop - part.start
            return items * itemsize

        return sum(num_bytes(r.mine) for r in self.rounds), sum(num_bytes(r.theirs) for r in self.rounds)

    def with_guest(self, rounds: Cost, up: int, down: int, folded: int = 0) -> Cost:
        """The cost of a rank's rounds and of what goes between host and guest.

        Args:
            up, down: bytes from guest to host, and back.
            folded: those that the host folds.
        """
        if self.is_guest:
            return Cost(rounds.steps, 1, up)
        if self.has_guest:
            return Cost(rounds.steps, rounds.messages + 1, rounds.sent_bytes + down, rounds.reduced_bytes + folded)
        return rounds


def over_rounds(case: Case, each: Callable[[int], Formula], up: Formula, down: Formula) -> Formula:
    """The Formula of the rounds, and where places seat two ranks of what goes between host and guest.

    Args:
        each: the Formula of one message of the round of distance d.
        up, down: of a message from guest to host, and back.
    """
    q = 1 << case.ranks.bit_length() - 1
    rounds = [(_meeting(case.ranks, case.per_node, case.first_lacks, d), each(d)) for d in distances(q)]
    if q < case.ranks:
        seated = _meeting(case.ranks, case.per_node, case.first_lacks, 0)
        rounds = [(seated, up), *rounds, (seated, down)]
    return by_rounds(case, rounds)


@lru_cache(maxsize=4096)
def _meeting(p: int, k: int, lacks: int, d: int) -> Leaving:
    """What leaves the busiest node when hosts d places apart meet, or, if d is 0, hosts and their guests."""
    q = 1 << p.bit_length() - 1
    places = np.arange(q)
    hosts = lacks + places + np.minimum(places, p - q)
    if d:
        return busiest(k, hosts, hosts[places ^ d])
    return busiest(k, hosts[: p - q], hosts[: p - q] + 1)


# -- talking ------------------------------------------------------------------------------------------


def halve(x: Array, comm: Communicator, op: Reduction, cube: Cube, block: Block) -> None:
    """Give away half of what this place stands for, fold the other half, and again, until one place is left."""
    rounds = cube.rounds[::-1]
    y = scratch(x, len(x[block(*rounds[0].mine)]) if rounds else 0)  # later runs are halves of the first
    for partner, mine, theirs in rounds:
        keep, give = x[block(*mine)], x[block(*theirs)]
        incoming = y[: len(keep)]
        comm.sendrecv(give, partner, incoming, partner)
        op(keep, incoming)


def double(x: Array, comm: Communicator, cube: Cube, block: Block) -> None:
    """Swap what this place stands for with what its partner stands for, and again with both."""
    for partner, mine, theirs in cube.rounds:
        comm.sendrecv(x[block(*mine)], partner, x[block(*theirs)], partner)


def from_guest(x: Array, comm: Communicator, cube: Cube) -> None:
    """Copy x from the guest to its host; nothing where there is no guest."""
    if cube.is_guest:
        comm.send(x, cube.host)
    elif cube.has_guest:
        comm.recv(x, cube.guest)


def fold_guest(x: Array, comm: Communicator, op: Reduction, cube: Cube) -> None:
    """Fold the guest's x into its host's; nothing where there is no guest."""
    y = scratch(x) if cube.has_guest else x
    from_guest(y, comm, cube)
    if cube.has_guest:
        op(x, y)


def to_guest(x: Array, comm: Communicator, cube: Cube) -> None:
    """Copy x from the host to its guest; nothing where there is no guest."""
    if cube.is_guest:
        comm.recv(x, cube.host)
    elif cube.has_guest:
        comm.send(x, cube.guest)
