"""Limits: checks that the description of a machine is possible."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from simdist.errors import ArgumentError

__all__ = ["check_least", "check_positive", "check_share", "fulfils"]


def check_positive(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are above 0; infinity is allowed."""
    _check(machine, names, lambda x: x > 0, "more than 0")


def check_least(machine: object, least: float, *names: str) -> None:
    """Raise ArgumentError unless these attributes are at least `least`, and finite."""
    _check(machine, names, lambda x: least <= x < inf, f"at least {least}, and finite")


def check_share(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are above 0 and at most 1."""
    _check(machine, names, lambda x: 0 < x <= 1, "more than 0 and at most 1")


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
