"""Formulas: the papers' formulas for their schedules, to compare with simulation and measurement.

    p  ranks     m  micro-batches     v  chunks a rank     r  a rank, from 0; papers count workers i = r + 1
    q  r mod 2p/v, a rank among those between the starts of two pipelines
    F, B, W      TF, TB and TW: B is the gradient of the input alone; in 2412.19437 it includes W

| schedule                       | bubble                    | memory of rank r                    | source     |
|--------------------------------|---------------------------|-------------------------------------|------------|
| naive                          | m (p-1)(F+B+W)            | M_B                                 |            |
| gpipe                          | (p-1)(F+B+W)              | m M_B                               | 1811.06965 |
| 1f1b                           | (p-1)(F+B+W)              | (p-r) M_B                           | 2104.04473 |
| eager-1f1b                     | (p-1)(F+B+W)              | (2(p-r)-1) M_B                      | 2211.05322 |
| interleaved-1f1b               | (p-1)(F+B+W)/v            | (p + (p-1-2r)/v) M_B                | 2104.04473 |
| breadth-first                  | (p-1)(F+B+W)/v            | m M_B                               | 2211.05953 |
| zb-h1                          | (p-1)(F+B-W)              | (p-r) M_B + r M_W                   | 2401.10241 |
| zb-h2                          | (p-1)(F+B-2W)             | (2(p-r)-1) M_B + 2r M_W             | 2401.10241 |
| zb-v                           | 0 if F=B=W                | p M_B                               | 2401.10241 |
| v-half                         | (p-1)(F+B+W)/2 if F=B=W   | ⌊(p+2)/2⌋ M_B                       | 2405.15362 |
| v-min                          | 2(p-1)(F+B+W)/3 if F=B=W  | ⌊(p+4)/3⌋ M_B                       | 2405.15362 |
| chimera, of v pipelines        | (2p/v-2) max(F, B+W)      | (p-p/v+1+min(q, 2p/v-1-q)) M_B      | 2107.06925 |
| bitpipe                        | (p/2-1) max(F, B+W)       | (3p/4+1/2+min(r, p-1-r)/2) M_B      | 2410.19367 |
| hanayo, of v/2 waves           | 2(p-1) max(F, B+W)/v      | (p-(p-1-r)/v) M_B                   | 2308.15762 |
| gems                           | (p-1) m max(F, B+W)       | M_B                                 | 2107.06925 |
| dualpipe                       | (p/2-1)(F&B+B-2W)         | (p+1) M_B                           | 2412.19437 |
| dualpipe-v, of 2p half stages  | (p-1)(F&B+B-2W)/2         | (p+1/2) M_B                         | 2412.19437 |
| pipedream                      | none in the long run      | (p-r) M_B, p-r versions of weights  | 1806.03377 |
| pipedream-vertical-sync        | none in the long run      | (p-r) M_B, p versions               | 1806.03377 |
| pipedream-2bw                  | none in the long run      | (p-r) M_B, 2 versions               | 2006.09503 |

Hanayo's are those of the slots in which its schedule is made here. Each rank of dualpipe-v has two of the PP = 2p
stages that its makers count, so their times and M_B are half of these.

The bubbles hold under these conditions:

    breadth-first, zb-h1         m is at least p; for zb-h1 also W is at most F
    interleaved-1f1b             p divides m
    zb-h2, zb-v                  m is at least 2p-1; for zb-h2 also W is at most F
    v-half, v-min                m is at least p; then to within half an action
    chimera, bitpipe, hanayo     p divides m, and F = B+W or m = p; for chimera v is an even divisor of p, for bitpipe
                                 p is even, for hanayo v
    gems                         p is even; for odd m there are (p-1) min(F, B+W) more. The paper has the limit for many
                                 micro-batches and B+W = 2F, a rate of (p-1)/(p+1/2)
    dualpipe, dualpipe-v         m is at least 2p, W is at most F, B = F and F&B is from B+W to F+B+W, for the rank that
                                 is idle longest within the makespan; for dualpipe m and p are even; else roughly
"""

from collections.abc import Callable
from math import isclose
from typing import NamedTuple

from simdist.errors import ArgumentError, UnknownNameError, as_declared, require_least
from simdist.parallel.pipeline.memory import Memory
from simdist.parallel.pipeline.schedules.registry import first_name, schedules, unknown_schedule
from simdist.parallel.pipeline.times import Times

__all__ = ["Case", "Formula", "bpipe_kept", "formula", "has_formula"]


class Formula(NamedTuple):
    """The figures of a schedule's paper.

    Attributes:
        bubble: the idle time of the rank with the longest span, within that span, in the unit of the times; None where
            the paper does not cover such times.
        bubble_rate: bubble / (bubble + m (F + B + W)); also None where ranks do pairs and F&B is not F+B+W, because
            the papers do not give the busy time then. The share of the ideal time, (p-1)/m in Megatron-LM's paper, is
            bubble_rate / (1 - bubble_rate).
        memory: for each rank, the most it keeps where micro-batches fill the pipeline, or all of fewer.
        weight_versions: for each rank, how many versions of its weights it keeps in the long run.
        makespan_rate: the idle share of the makespan, averaged over ranks: bubble_rate, but None where late ranks end
            after the first, because the paper's bubble is then within a rank's own span.
        filled: whether the number of micro-batches meets the conditions above.
        weight_copies: how many ranks hold each weight: 2 where micro-batches enter at both ends, 1 in most schedules.
        share_of_1f1b: bubble / ((m + p-1) (F + B + W)), of the time that 1F1B takes: with B₀ that of 1F1B itself, the
            rates B₀/3 of zb-h1, B₀/2 of v-half and 2B₀/3 of v-min in 2405.15362, where F=B=W.
    """

    bubble: float | None
    bubble_rate: float | None
    memory: tuple[float, ...]
    weight_versions: tuple[int, ...]
    makespan_rate: float | None = None
    filled: bool = True
    weight_copies: int = 1
    share_of_1f1b: float | None = None


class Case(NamedTuple):
    """The variables of the formulas; the letters are those above, `pair` is F&B."""

    p: int
    m: int
    v: int
    f: float
    b: float
    w: float
    pair: float

    @property
    def whole(self) -> float:
        """F + B + W."""
        return self.f + self.b + self.w

    def if_equal(self, bubble: float) -> float | None:
        """This bubble, where F = B = W."""
        return bubble if self.f == self.b == self.w else None

    def slots(self, number: float) -> float | None:
        """So many slots of F or of B+W, whichever is longer; for several units in a row, only where F = B+W."""
        back = self.b + self.w
        return number * max(self.f, back) if self.m == self.p or self.f == back else None


_Bubble = Callable[[Case], float | None]
_Kept = Callable[[Case, int], tuple[float, float]]  # how many M_B, and how many M_W, on rank r


def has_formula(name: str) -> bool:
    """Whether a paper gives formulas for a schedule of this name."""
    return first_name(name) in _FORMULAS


_ALIKE = Times()


@as_declared
def formula(
    name: str, *, stages: int, micro_batches: int, times: Times = _ALIKE, memory: Memory | None = None, chunks: int = 2
) -> Formula:
    """The formulas of a schedule's paper.

        formula("gpipe", stages=4, micro_batches=8).bubble_rate          # 3/11

    Args:
        stages, micro_batches, chunks: as of the schedule.
        times: the same for all stages, TF = TB = TW = 1 where not given; Tcomm is ignored, as in the papers.
        memory: M_B and M_W; 1 where not given.

    Raises:
        UnknownNameError: there is no such schedule, or no formula for it.
        ArgumentError: the times differ from stage to stage, or a number is below 1.
    """
    name, memory = _checked(name, stages=stages, micro_batches=micro_batches, chunks=chunks), memory or Memory()
    case = Case(stages, micro_batches, chunks, *_equal(times))
    bubble_of, kept = _FORMULAS[name]
    bubble, rate = bubble_of(case), None
    if bubble is not None and bubble < 0:  # times that the paper does not cover
        bubble = None
    if bubble is not None and (name not in _PAIRED or isclose(case.pair, case.whole)):
        rate = bubble / (bubble + case.m * case.whole) if case.whole else 0.0
    return Formula(
        bubble,
        rate,
        tuple(b * memory.backward + w * memory.weight for b, w in (kept(case, r) for r in range(stages))),
        tuple(_VERSIONS[name](case, r) if name in _VERSIONS else 1 for r in range(stages)),
        None if name in _STAGGERED and _STAGGERED[name](case) else rate,
        name not in _FILLED or _FILLED[name](case),
        _COPIES[name](case) if name in _COPIES else 1,
        bubble / (case.m * case.whole + _fill(case)) if bubble is not None and case.whole else None,
    )


def _checked(name: str, **numbers: int) -> str:
    """The name of the schedule in simdist, after a look at its numbers."""
    if not has_formula(name):
        if first_name(name) in schedules():
            raise UnknownNameError(f"no paper has formulas for {name}: make the schedule and simulate it")
        raise unknown_schedule(name, _FORMULAS)
    for what, number in numbers.items():
        if number < 1:
            raise ArgumentError(f"{first_name(name)} with {what}={number}; needs at least 1")
    return first_name(name)


def _equal(times: Times) -> tuple[float, float, float, float]:
    """F, B, W and F&B, if they are the same for all stages."""
    f, b, w = times.forward, times.backward_input, times.backward_weight
    if not (isinstance(f, (int, float)) and isinstance(b, (int, float)) and isinstance(w, (int, float))):
        raise ArgumentError("the papers' formulas assume equal stages; these times differ from stage to stage")
    return f, b, w, f + b + w if times.overlapped is None else times.overlapped


@as_declared
def bpipe_kept(stages: int) -> int:
    """⌈(p+2)/2⌉: the most micro-batches on any rank, if those of 1F1B share their memory in pairs (BPipe).

    Ranks r and p-1-r keep p-r and r+1, together p+1: each takes half of them, and one that is on its way.

    Raises:
        ArgumentError: stages is less than 1.

    Source: Kim, Kim, Yu, Chun 2023, ICML, "BPipe: Memory-Balanced Pipeline Parallelism for Training Large Language
    Models".
    """
    require_least("stages", stages, 1)
    return -(-(stages + 2) // 2)


_VERSIONS: dict[str, Callable[[Case, int], int]] = {
    "pipedream": lambda c, r: c.p - r,
    "pipedream-vertical-sync": lambda c, r: c.p,
    "pipedream-2bw": lambda c, r: 2,
}

_COPIES: dict[str, Callable[[Case], int]] = {
    "chimera": lambda c: c.v,
    "bitpipe": lambda c: 2,
    "gems": lambda c: 2,
    "dualpipe": lambda c: 2,
}

_PAIRED = ("dualpipe", "dualpipe-v")
_STAGGERED: dict[str, Callable[[Case], bool]] = {  # whether late ranks end after the first
    "zb-h1": lambda c: c.p > 1 and c.w > c.b,
    "zb-h2": lambda c: c.p > 1 and 2 * c.w > c.b,
    "zb-v": lambda c: c.p > 1,
    "gems": lambda c: c.p > 1 and c.m % 2 == 0,
}

_FILLED: dict[str, Callable[[Case], bool]] = {  # whether m and p meet the conditions of the bubble
    "interleaved-1f1b": lambda c: c.m % c.p == 0,
    "breadth-first": lambda c: c.m >= c.p,
    "zb-h1": lambda c: c.m >= c.p,
    "zb-h2": lambda c: c.m >= 2 * c.p - 1,
    "zb-v": lambda c: c.m >= 2 * c.p - 1,
    "v-half": lambda c: c.m >= c.p,
    "v-min": lambda c: c.m >= c.p,
    "chimera": lambda c: c.m % c.p == 0 and c.p % c.v == 0 and c.v % 2 == 0,
    "bitpipe": lambda c: c.m % c.p == 0 and c.p % 2 == 0,
    "hanayo": lambda c: c.m % c.p == 0 and c.v % 2 == 0,
    "gems": lambda c: c.p % 2 == 0,
    "dualpipe": lambda c: c.m >= 2 * c.p and c.m % 2 == 0 and c.p % 2 == 0,
    "dualpipe-v": lambda c: c.m >= 2 * c.p,
}


def _fill(c: Case) -> float:
    """The bubble of a pipeline that fills and drains once, a whole stage at a time."""
    return (c.p - 1) * c.whole


def _warm(times: int = 1, lag: int = 0) -> _Kept:
    """What ranks keep whose warm-up is this many times that of 1F1B: it and one more, and of `lag` r only W's part."""

    def kept(c: Case, r: int) -> tuple[float, float]:
        whole = min(c.m, times * (c.p - 1 - r) + 1)
        return whole, min(lag * r, c.m - whole)

    return kept


def _both_ways_kept(c: Case, r: int) -> tuple[float, float]:
    """What rank r of Chimera keeps: the more, the further it is from where a pipeline begins."""
    apart = max(1, 2 * c.p // c.v)
    q = r % apart
    return min(c.m, c.p - c.p // c.v + 1 + min(q, apart - 1 - q)), 0


def _turns(c: Case) -> float:
    """The bubble of GEMS: forwards hide behind backwards, except on the rank where a micro-batch enters. If their
    number is even, that rank is the last to begin.
    """
    back = c.b + c.w
    return (c.p - 1) * (c.m * max(c.f, back) + c.m % 2 * min(c.f, back))


_FORMULAS: dict[str, tuple[_Bubble, _Kept]] = {
    "naive": (lambda c: c.m * _fill(c), lambda c, r: (1, 0)),
    "gpipe": (_fill, lambda c, r: (c.m, 0)),
    "1f1b": (_fill, _warm()),
    "eager-1f1b": (_fill, _warm(2)),
    "interleaved-1f1b": (lambda c: _fill(c) / c.v, lambda c, r: (min(c.m, c.p + (c.p - 1 - 2 * r) / c.v), 0)),
    "breadth-first": (lambda c: _fill(c) / c.v, lambda c, r: (c.m, 0)),
    "zb-h1": (lambda c: (c.p - 1) * (c.f + c.b - c.w), _warm(1, lag=1)),
    "zb-h2": (lambda c: (c.p - 1) * (c.f + c.b - 2 * c.w), _warm(2, lag=2)),
    "zb-v": (lambda c: c.if_equal(0.0), lambda c, r: (min(c.m, c.p), 0)),
    "v-half": (lambda c: c.if_equal(_fill(c) / 2), lambda c, r: (min(c.m, (c.p + 2) // 2), 0)),
    "v-min": (lambda c: c.if_equal(2 * _fill(c) / 3), lambda c, r: (min(c.m, (c.p + 4) // 3), 0)),
    "chimera": (lambda c: c.slots(2 * c.p / c.v - 2), _both_ways_kept),
    "bitpipe": (
        lambda c: c.slots(c.p / 2 - 1),
        lambda c, r: (min(c.m, (3 * c.p + 2) / 4 + min(r, c.p - 1 - r) / 2), 0),
    ),
    "hanayo": (lambda c: c.slots(2 * (c.p - 1) / c.v), lambda c, r: (min(c.m, c.p - (c.p - 1 - r) / c.v), 0)),
    "gems": (_turns, lambda c, r: (1, 0)),
    "dualpipe": (lambda c: (c.p / 2 - 1) * (c.pair + c.b - 2 * c.w), lambda c, r: (min(c.m, c.p + 1), 0)),
    "dualpipe-v": (lambda c: (c.p - 1) * (c.pair + c.b - 2 * c.w) / 2, lambda c, r: (min(c.m, c.p + 0.5), 0)),
    "pipedream": (lambda c: None, _warm()),
    "pipedream-vertical-sync": (lambda c: None, _warm()),
    "pipedream-2bw": (lambda c: None, _warm()),
}
