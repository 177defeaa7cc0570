"""V-shapes with little memory: a building block, which is the way of one micro-batch, repeated every 6 moments.

    p  ranks     r  this rank     two chunks a rank: F⁰ goes down the ranks, F¹ up to the loss, I¹ down, I⁰ up

    rank 0    F⁰            F¹ I¹            I⁰      δ    how many moments later the next rank follows, in each of
    rank 1        F⁰     F¹       I¹      I⁰              the four sweeps; the turns between them are 1 to 6
    rank 2           F⁰ F¹           I¹ I⁰           gaps of a rank, two in every 6 moments, are for W's

A chunk is kept from F to I, and as many at once as that has sixths. Where it is long for chunk 0 it is short for
chunk 1, so all ranks keep the same.

Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362.
"""

from collections import deque
from itertools import product

from simdist.parallel.pipeline.action import Action, BackwardInput, BackwardWeight, Forward, Part, Value
from simdist.parallel.pipeline.placement import v_shape
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.schedules.registry import named

__all__ = ["v_half", "v_min"]

_REPEAT = 6

_Block = list[dict[tuple[type[Part], int], int]]
"""For each rank the moments of F⁰, F¹, I¹ and I⁰, by kind and chunk."""


@named("v-half")
def v_half(stages: int, micro_batches: int) -> Schedule:
    """Half of 1F1B's memory, p/2 + 1 micro-batches, and where TF = TB = TW half of its bubble: δ = 2, 1, 2, 1."""
    rows = _squeezed(_block(stages, 2, 1, 2, 1), micro_batches, most=2 * ((stages + 2) // 2))
    return Schedule("v-half", rows, v_shape(stages))


@named("v-min")
def v_min(stages: int, micro_batches: int) -> Schedule:
    """A third of 1F1B's memory, (p + 4)/3 micro-batches, and where TF = TB = TW two thirds of its bubble: δ = 1."""
    rows = _squeezed(_block(stages, 1, 1, 1, 1), micro_batches, most=2 * ((stages + 4) // 3))
    return Schedule("v-min", rows, v_shape(stages))


def _block(p: int, down: int, up: int, down_again: int, up_again: int) -> _Block:
    """The block with the shortest turns for which no rank ever has to do two things at one moment."""
    last = p - 1
    for turns in sorted(product(range(1, _REPEAT + 1), repeat=3), key=sum):
        f1 = down * last + turns[0]
        i1 = f1 + up * last + turns[1]
        i0 = i1 + down_again * last + turns[2]
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


def _squeezed(block: _Block, m: int, most: int) -> list[list[Action]]:
    """The block m times. F's and I's stay in its order, but each is done as soon as it can be, where all actions
    take equally long. A W is done where a rank would wait, or would keep more than `most` chunks.
    """
    p = len(block)
    ranks = [_Rank(moments, m, (r, 2 * p - 1 - r), most) for r, moments in enumerate(block)]
    made: dict[Value, int] = {}
    now = 0
    while any(rank.order or rank.pending for rank in ranks):
        for rank in ranks:
            rank.act(now, made, 2 * p)
        now += 1
    return [rank.row for rank in ranks]


class _Rank:
    """A rank that acts once every moment, if it can."""

    def __init__(self, moments: dict[tuple[type[Part], int], int], m: int, stages: tuple[int, int], most: int) -> None:
        of = [(at + _REPEAT * i, kind, i, chunk) for (kind, chunk), at in moments.items() for i in range(m)]
        self.order = deque(kind(i, chunk) for _, kind, i, chunk in sorted(of, key=lambda entry: entry[0]))
        self.pending: deque[Part] = deque()
        self.row: list[Action] = []
        self.stages = stages
        self.room = most

    def act(self, now: int, made: dict[Value, int], num_stages: int) -> None:
        """Do the next F or I, else a W, else nothing.

        Args:
            made: since when there is what ranks have made.
        """
        if self.order and self._can(self.order[0], now, made):
            part = self.order.popleft()
            made.update(dict.fromkeys(part.gives(self.stages[part.chunk], num_stages), now + 1))
            if isinstance(part, Forward):
                self.room -= 1
            else:
                self.pending.append(BackwardWeight(part.micro_batch, part.chunk))
        elif self.pending:
            part = self.pending.popleft()
            self.room += 1
        else:
            return
        self.row.append(part)

    def _can(self, part: Part, now: int, made: dict[Value, int]) -> bool:
        need = part.needs(self.stages[part.chunk])
        there = need is None or made.get(need, now + 1) <= now
        return there and (self.room > 0 or not isinstance(part, Forward))
