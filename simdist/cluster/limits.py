"""Limits: checks that the description of a machine is possible."""

from collections.abc import Callable, Iterable
from math import inf
from numbers import Integral
from typing import Any

from simdist.errors import ArgumentError

__all__ = ["check_kind", "check_least", "check_positive", "check_share", "check_whole", "fulfils"]


def check_positive(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are above 0; infinity is allowed."""
    _check(machine, names, lambda x: x > 0, "more than 0")


def check_least(machine: object, least: float, *names: str) -> None:
    """Raise ArgumentError unless these attributes are at least `least`, and finite."""
    _check(machine, names, lambda x: least <= x < inf, f"at least {least}, and finite")


def check_share(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are above 0 and at most 1."""
    _check(machine, names, lambda x: 0 < x <= 1, "more than 0 and at most 1")


def check_whole(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are integers; 8.0 is not."""
    _check(machine, names, lambda x: isinstance(x, Integral), "a whole number")


def check_kind(machine: object, kind: type, *names: str) -> None:
    """Raise ArgumentError unless these attributes are objects of this class."""
    _check(machine, names, lambda x: isinstance(x, kind), f"a {kind.__name__}")


def _check(machine: object, names: Iterable[str], holds: Callable[[Any], bool], needs: str) -> None:
    for name in names:
        value = getattr(machine, name)
        if not fulfils(value, holds):
            raise ArgumentError(f"{name} is {value!r}; needs {needs}")


def fulfils(value: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether this holds for a value; for what is no number, no limit does."""
    try:
        return bool(holds(value))
    except (TypeError, ValueError):
        return False
