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
    short, none = (0.1,) * given.p, (0.0,) * given.p
    start = Rules(_warm_up(given, 0), short, short, none, (1.0,) * given.p, (False,) * given.p)
    trials = _Trials(given, start)
    same_on_all = _same_on_all_stages(trials, start)
    for seed in range(1 + trials.left // _CLIMB):
        _change_at_random(trials, same_on_all, Random(seed))
    return trials.best


class _Trials:
    """The runs of the dispatcher: how many are left, and the best schedule so far."""

    def __init__(self, given: Problem, start: Rules) -> None:
        self.given = given
        self.best = dispatch(given, start)
        self.left = min(_MOST_RUNS, max(_FEWEST_RUNS, int(_EFFORT / (3 * given.p * given.m) ** 1.25)))
        self._bound = given.lower_bound * (1 + 1e-12)

    @property
    def over(self) -> bool:
        """Whether the bound is met, or no run is left."""
        return self.left <= 0 or self.best.cost <= self._bound

    def cost(self, rules: Rules) -> float:
        """The cost of the schedule of these rules."""
        self.left -= 1
        found = dispatch(self.given, rules)
        self.best = min(self.best, found, key=lambda outcome: outcome.cost)
        return found.cost


def _same_on_all_stages(trials: _Trials, rules: Rules) -> Rules:
    """Step 1."""
    cost = trials.best.cost
    for value in (value for _ in range(_ROUNDS) for value in _values_on_all_stages(trials.given)):
        changed = replace(rules, **value)
        if changed != rules and not trials.over and (new := trials.cost(changed)) <= cost:
            rules, cost = changed, new
    return rules


def _values_on_all_stages(given: Problem) -> Iterator[dict[str, Any]]:
    """For one rule after the other, its values, the same on all stages."""
    for more in (1, -1, 2):
        yield {"warm_up": _warm_up(given, more)}
    for name in ("w_waits_for_last", "w_waits_at_end", "w_waits", "f_waits"):
        for wait in _WAITS:
            yield {name: (wait,) * given.p}
    for turn in (True, False):
        yield {"f_in_turn": (turn,) * given.p}


def _change_at_random(trials: _Trials, rules: Rules, random: Random) -> None:
    """Step 2, once."""
    cost = trials.best.cost
    for _ in range(_CLIMB):
        if trials.over:
            break
        changed = rules
        for _ in range(random.choice((1, 1, 2))):
            changed = _changed(changed, random)
        if (new := trials.cost(changed)) <= cost:
            rules, cost = changed, new


def _changed(rules: Rules, random: Random) -> Rules:
    """Another value of one rule, on one stage or from there to the last."""
    p = len(rules.warm_up)
    first = random.randrange(p)
    end = random.choice((first + 1, p))
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
    fit = [int(min(m, given.first_back(s) / f + 1e-9)) if f else m for s, f in enumerate(given.f)]
    return tuple(max(1, number + more) for number in fit)
