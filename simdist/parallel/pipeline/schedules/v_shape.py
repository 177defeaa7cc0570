"""V-shapes with little memory: a building block, the path of one micro-batch, is repeated every 6 time steps.

    p  ranks     r  this rank     two chunks a rank: F⁰ goes down the ranks, F¹ up to the loss, I¹ down, I⁰ up

    rank 0    F⁰            F¹ I¹            I⁰      δ    time steps from a rank to the next, in each of the four
    rank 1        F⁰     F¹       I¹      I⁰              sweeps; the turns between sweeps take 1 to 6
    rank 2           F⁰ F¹           I¹ I⁰           a rank's gaps, two in every 6 time steps, are for W's

A chunk's activations are kept from F to I, its lifespan. As a block starts every 6 time steps, lifespan / 6 of them
are kept at once. Where the lifespan of chunk 0 is long, that of chunk 1 is short, so all ranks keep about the same. The
block assumes that every action takes one time step. For other times, the F's and I's keep its order, and so its
memory, and only the W's move.

Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import product
from math import inf

from simdist.parallel.pipeline.action import Action, BackwardInput, BackwardWeight, Forward, Part, Value
from simdist.parallel.pipeline.placement import v_shape
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named
from simdist.parallel.pipeline.simulate import simulate
from simdist.parallel.pipeline.times import Clockwork, Times

__all__ = ["v_half", "v_min"]

_REPEAT = 6
_LEAST_GAP = 0.5  # in TW: the shortest wait that a rank fills with a W, where times differ

_Block = list[dict[tuple[type[Part], int], int]]
"""For each rank, the time steps of F⁰, F¹, I¹ and I⁰, by kind and chunk."""


@named("v-half")
def v_half(stages: int, micro_batches: int, times: Times | None = None) -> Schedule:
    """Half of 1F1B's memory, p/2 + 1 micro-batches, and where TF = TB = TW half of its bubble: δ = 2, 1, 2, 1.

    Args:
        times: to place W's by; where not given TF = TB = TW, and messages take no time.

    Raises:
        ArgumentError: `times` has another number of stages than 2p.
    """
    return _repeated("v-half", _block(stages, 2, 1, 2, 1), micro_batches, 2 * ((stages + 2) // 2), times)


@named("v-min")
def v_min(stages: int, micro_batches: int, times: Times | None = None) -> Schedule:
    """A third of 1F1B's memory, (p + 4)/3 micro-batches, and where TF = TB = TW two thirds of its bubble: δ = 1.

    Args, Raises: as of `v_half`.
    """
    return _repeated("v-min", _block(stages, 1, 1, 1, 1), micro_batches, 2 * ((stages + 4) // 3), times)


def _block(p: int, down: int, up: int, down_again: int, up_again: int) -> _Block:
    """The block with the shortest turns for which no rank has two actions in the same time step."""
    last = p - 1
    for turn_1, turn_2, turn_3 in sorted(product(range(1, _REPEAT + 1), repeat=3), key=sum):
        # Where each sweep after the first begins: F¹ on the last rank, I¹ on rank 0, I⁰ on the last rank.
        f1 = down * last + turn_1
        i1 = f1 + up * last + turn_2
        i0 = i1 + down_again * last + turn_3
        block: _Block = [
            {
                (Forward, 0): down * r,
                (Forward, 1): f1 + up * (last - r),
                (BackwardInput, 1): i1 + down_again * r,
                (BackwardInput, 0): i0 + up_again * (last - r),
            }
            for r in range(p)
        ]
        if all(len({moment % _REPEAT for moment in moments.values()}) == len(moments) for moments in block):
            break
    return block


def _repeated(name: str, block: _Block, m: int, most: int, times: Times | None) -> Schedule:
    """The block m times. F's and I's stay in its order, but each runs as soon as it can. A W runs where a rank would
    wait, or would keep more than `most` chunks: by the given times if that is better, else by equal ones.
    """
    shape = v_shape(len(block))
    equal = Schedule(name, _Play(block, m, most, Times(), 1.0).rows(), shape, m)
    if times is None or (times.forward == times.backward_input == times.backward_weight and not times.longest_hop):
        return equal
    other = Schedule(name, _Play(block, m, most, times, _LEAST_GAP).rows(), shape, m)
    return min(equal, other, key=lambda one: simulate(one, times).longest_span)


class _Play:
    """Plays all ranks in the order of time. Each keeps `most` chunks at most, and fills waits of `least_gap` TW."""

    def __init__(self, block: _Block, m: int, most: int, times: Times, least_gap: float) -> None:
        p = len(block)
        self.schedule = Schedule("", [[]] * p, v_shape(p))
        self.clockwork = Clockwork(self.schedule, times)
        self.times = times
        self.least_gap = least_gap
        self.done: list[list[Action]] = [[] for _ in block]
        self.order = [_order(moments, m) for moments in block]  # by rank, the F's and I's to do
        self.pending: list[deque[Part]] = [deque() for _ in block]  # and the W's
        self.room = [most] * p  # for further chunks
        self.made: dict[Value, tuple[float, int]] = {}  # when, and on which rank
        self.waiter: dict[Value, int] = {}  # the rank that waits for it
        self.next = [(0.0, r) for r in range(p)]  # when each rank chooses its next action

    def rows(self) -> Sequence[Sequence[Action]]:
        """The actions of each rank."""
        while self.next:
            now, r = heappop(self.next)
            order, pending, wait = self.order[r], self.pending[r], self._wait(r, now)
            if wait <= 0 and order:
                self._do(r, order.popleft(), now)
            elif pending and wait >= self.least_gap * self.clockwork.of(r, pending[0]):
                self._do(r, pending.popleft(), now)
            elif wait < inf:
                heappush(self.next, (now + wait, r))
            elif order and (need := self._need(r)) is not None:
                self.waiter[need] = r
        return self.done

    def _wait(self, r: int, now: float) -> float:
        """How long a rank waits for its next F or I; infinite if that is not known yet, or if there is none."""
        order = self.order[r]
        if not order or (self.room[r] == 0 and isinstance(order[0], Forward)):
            return inf
        need = self._need(r)
        return 0.0 if need is None else self._arrives(need, r) - now

    def _need(self, r: int) -> Value | None:
        """The value that a rank's next F or I needs."""
        part = self.order[r][0]
        return part.needs(self.schedule.stage(r, part))

    def _arrives(self, value: Value, r: int) -> float:
        made_at, maker = self.made.get(value, (inf, r))
        return made_at if maker == r else made_at + self.times.hop(maker, r)

    def _do(self, r: int, part: Part, now: float) -> None:
        """Run an action, from now on."""
        end = now + self.clockwork.of(r, part)
        self.done[r].append(part)
        match part:
            case Forward():
                self.room[r] -= 1
            case BackwardInput():
                self.pending[r].append(BackwardWeight(part.micro_batch, part.chunk))
            case BackwardWeight():
                self.room[r] += 1
        for value in part.gives(self.schedule.stage(r, part), self.schedule.num_stages):
            self.made[value] = end, r
            if value in self.waiter:
                other = self.waiter.pop(value)
                heappush(self.next, (self._arrives(value, other), other))
        heappush(self.next, (end, r))


def _order(moments: dict[tuple[type[Part], int], int], m: int) -> deque[Part]:
    """A rank's F's and I's of all micro-batches, in the order of the blocks."""
    of = [(at + _REPEAT * i, kind, i, chunk) for (kind, chunk), at in moments.items() for i in range(m)]
    return deque(kind(i, chunk) for _, kind, i, chunk in sorted(of, key=lambda entry: entry[0]))
