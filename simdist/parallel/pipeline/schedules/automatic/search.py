"""Search: the rules whose schedule has the shortest longest span, within one memory limit.

    1    the same rules on all stages: try every value of one rule and keep the best, then the next rule; repeat
    2    change one or two rules at random, on one stage or from there to the last; keep the change if it is not
         worse; restart from the result of 1 after a fixed number of runs

It ends when the lower bound is met, or after a maximum number of runs. The random numbers are the same every time.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from random import Random
from typing import Any

from simdist.parallel.pipeline.schedules.automatic.bound import first_back, lower_bound
from simdist.parallel.pipeline.schedules.automatic.dispatch import Outcome, Rules, dispatch
from simdist.parallel.pipeline.schedules.automatic.problem import Problem

__all__ = ["search"]

_MOST_RUNS, _FEWEST_RUNS, _EFFORT = 2500, 24, 7_000_000
"""The number of runs is the effort over (3pm)^(5/4), within these limits, so that the total time falls with pm."""

_WAITS = (0.0, 0.1, 0.3, 0.6, 1.0)
_MORE_WAITS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0, 1.5)
_ROUNDS = 2
_CLIMB = 500


def search(given: Problem) -> Outcome:
    """The best schedule found."""
    return _Search(given).best


class _Search:
    def __init__(self, given: Problem) -> None:
        self._given = given
        self._bound = lower_bound(given) * (1 + 1e-12)
        runs = int(_EFFORT / (3 * given.p * given.m) ** 1.25)
        self._runs = min(_MOST_RUNS, max(_FEWEST_RUNS, runs))
        short, none = (0.1,) * given.p, (0.0,) * given.p
        start = Rules(_warm_up(given, 0), short, short, none, (1.0,) * given.p, (False,) * given.p)
        self.best = dispatch(given, start)
        same_on_all = self._same_on_all_stages(start, self.best.cost)
        for seed in range(1 + self._runs // _CLIMB):
            self._change_at_random(same_on_all, self.best.cost, Random(seed))

    def _cost(self, rules: Rules) -> float:
        """The cost of the schedule of these rules; keeps the schedule if it is the best so far."""
        self._runs -= 1
        found = dispatch(self._given, rules)
        if found.cost < self.best.cost:
            self.best = found
        return found.cost

    def _is_done(self) -> bool:
        return self._runs <= 0 or self.best.cost <= self._bound

    def _same_on_all_stages(self, rules: Rules, cost: float) -> Rules:
        """Step 1."""
        for _ in range(_ROUNDS):
            for values in self._values_on_all_stages():
                for value in values:
                    changed = replace(rules, **value)
                    if changed == rules or self._is_done():
                        continue
                    new = self._cost(changed)
                    if new <= cost:
                        rules, cost = changed, new
        return rules

    def _values_on_all_stages(self) -> Iterator[list[dict[str, Any]]]:
        """For each rule, its values, the same on all stages."""
        p = self._given.p
        yield [{"warm_up": _warm_up(self._given, more)} for more in (1, -1, 2)]
        for name in ("w_waits_for_last", "w_waits_at_end", "w_waits", "f_waits"):
            yield [{name: (value,) * p} for value in _WAITS]
        yield [{"f_in_turn": (turn,) * p} for turn in (True, False)]

    def _change_at_random(self, rules: Rules, cost: float, random: Random) -> None:
        """Step 2, once."""
        for _ in range(_CLIMB):
            if self._is_done():
                break
            changed = rules
            for _ in range(random.choice((1, 1, 2))):
                changed = self._changed(changed, random)
            new = self._cost(changed)
            if new <= cost:
                rules, cost = changed, new

    def _changed(self, rules: Rules, random: Random) -> Rules:
        first = random.randrange(self._given.p)
        end = random.choice((first + 1, self._given.p))
        name = random.choice([field.name for field in fields(Rules)])
        values = list(getattr(rules, name))
        more, wait = random.choice((-1, 1)), random.choice(_MORE_WAITS)
        for s in range(first, end):
            if name == "warm_up":
                values[s] = max(1, values[s] + more)
            else:
                values[s] = not values[s] if name == "f_in_turn" else wait
        return replace(rules, **{name: tuple(values)})


def _warm_up(given: Problem, more: int) -> tuple[int, ...]:
    """For each stage, the F's that fit before the first B, plus `more`."""
    m = given.m
    fit = [int(min(m, first_back(given, s) / f + 1e-9)) if f else m for s, f in enumerate(given.f)]
    return tuple(max(1, number + more) for number in fit)
