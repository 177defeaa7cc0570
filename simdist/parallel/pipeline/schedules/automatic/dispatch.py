"""Dispatch: a schedule in which every stage, whenever it is free, chooses its next action by rules.

    B ready?       do it: another stage waits for it
    F ready?       do it, if there is memory and no B is about to arrive
    else W         if one is pending, and fits before the next arrival; it also makes room for an F
    else           wait

    stage 0    F F F F F F . B W B F B F B W B W B W B W W W          before the first B only F's, at most
    stage 1      F F F F F B F B W B F B F B W B W B W B W W W W      `warm_up`; then W's where there would
    stage 2        F F F B F B F B F B F B F B W B W B W W W W W W    be a bubble, or memory is full; at the
    stage 3          F B F B F B F B F B F B F B F B W W W W W W W W  end all remaining W's

A stage knows when values of actions that have begun will arrive, but not what other stages will choose.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from simdist.parallel.pipeline.schedules.automatic.problem import Problem

__all__ = ["Outcome", "Rules", "dispatch"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The parameters of the choice, for each stage.

    Attributes:
        warm_up: the most F's before the first B.
        f_waits: an F waits for a B that arrives within this many TF.
        w_waits: a W waits for an F or B that arrives within this many TW, while F's remain.
        w_waits_at_end: the same after the last F, for all B's but the last.
        w_waits_for_last: the same for the last B, which previous stages wait for too.
        f_in_turn: if both are ready, an F goes before a B if the last action was a B.
    """

    warm_up: tuple[int, ...]
    f_waits: tuple[float, ...]
    w_waits: tuple[float, ...]
    w_waits_at_end: tuple[float, ...]
    w_waits_for_last: tuple[float, ...]
    f_in_turn: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A schedule and its cost.

    Attributes:
        cost: the longest span of a stage.
        rows: for each stage its actions in order, as letters; the n-th of a letter is for micro-batch n.
    """

    cost: float
    rows: tuple[str, ...]


def dispatch(given: Problem, rules: Rules) -> Outcome:
    """Let the stages choose, in the order of time. Takes at least 3pm choices.

    There is no deadlock: the oldest micro-batch can always go on.
    """
    stages = [_Stage(given, rules, s) for s in range(given.p)]
    events = [(0.0, 0)]
    while events:
        now, s = heappop(events)
        stage = stages[s]
        if now < stage.free:
            continue
        letter, wake = stage.choose(now)
        if not letter:
            if wake < inf:
                heappush(events, (wake, s))
            continue
        end = stage.do(letter, now)
        heappush(events, (end, s))
        if letter == "F" and s == given.p - 1:
            stage.gradients.append(end)
        elif letter == "F" or (letter == "B" and s):
            other, hop = (s + 1, given.down[s]) if letter == "F" else (s - 1, given.up[s - 1])
            arrives = end + hop
            (stages[other].activations if letter == "F" else stages[other].gradients).append(arrives)
            if arrives >= stages[other].free:
                heappush(events, (arrives, other))
    cost = max(stage.free - stage.activations[0] for stage in stages)
    return Outcome(cost, tuple("".join(stage.row) for stage in stages))


class _Stage:
    """The state of a stage: its past actions, and when its inputs arrive."""

    def __init__(self, given: Problem, rules: Rules, s: int) -> None:
        self.activations = [] if s else [0.0] * given.m  # when they arrive, by micro-batch
        self.gradients: list[float] = []
        self.row: list[str] = []
        self.forwards = self.backwards = self.weights = 0
        self.free = 0.0
        self._f, self._b, self._w = given.f[s], given.b[s], given.w[s]
        self._m, self._m_b, self._m_w = given.m, given.memory.backward, given.memory.weight
        self._limit = given.limit * (1 + 1e-12)
        self._reserve = max(0.0, self._m_w - self._m_b)  # so that one of the kept F's can always become a W
        self._warm_up = rules.warm_up[s]
        self._f_waits = rules.f_waits[s] * self._f
        self._w_waits, self._at_end = rules.w_waits[s] * self._w, rules.w_waits_at_end[s] * self._w
        self._for_last = rules.w_waits_for_last[s] * self._w
        self._f_in_turn = rules.f_in_turn[s]

    def choose(self, now: float) -> tuple[str, float]:
        """F, B or W and now; or an empty string and when to choose again."""
        i, j = self.forwards, self.backwards
        f = self.activations[i] if i < len(self.activations) and (j or i < self._warm_up) else inf
        b = self.gradients[j] if j < len(self.gradients) else inf
        pending = j - self.weights
        level = (i - j) * self._m_b + pending * self._m_w
        fits = level + self._m_b + self._reserve <= self._limit  # another F
        if b <= now:
            if pending and level + self._m_w - self._m_b > self._limit:
                return "W", now
            return ("F" if self._f_in_turn and f <= now and fits and self.row[-1] == "B" else "B"), now
        if f <= now and fits and b - now > self._f_waits:
            return "F", now
        least_gap = self._w_waits if i < self._m else self._at_end if j < self._m - 1 else self._for_last
        next_start = b if f <= now or not fits else min(b, f)
        if pending and next_start - now >= least_gap:
            return "W", now
        return "", min(b, f) if f > now else b

    def do(self, letter: str, now: float) -> float:
        """Do an action; returns when it ends."""
        self.row.append(letter)
        if letter == "F":
            self.forwards, self.free = self.forwards + 1, now + self._f
        elif letter == "B":
            self.backwards, self.free = self.backwards + 1, now + self._b
        else:
            self.weights, self.free = self.weights + 1, now + self._w
        return self.free
