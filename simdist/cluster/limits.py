"""Limits: checks that the description of a machine is possible."""

from math import inf
from numbers import Integral

from simdist.errors import ArgumentError

__all__ = ["check_least", "check_positive", "check_share", "check_whole"]


def check_positive(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are above 0; infinity is allowed."""
    for name in names:
        if not getattr(machine, name) > 0:
            raise ArgumentError(f"{name} is {getattr(machine, name)}; needs more than 0")


def check_least(machine: object, least: float, *names: str) -> None:
    """Raise ArgumentError unless these attributes are at least `least`, and finite."""
    for name in names:
        if not least <= getattr(machine, name) < inf:
            raise ArgumentError(f"{name} is {getattr(machine, name)}; needs at least {least}, and finite")


def check_share(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are above 0 and at most 1."""
    for name in names:
        if not 0 < getattr(machine, name) <= 1:
            raise ArgumentError(f"{name} is {getattr(machine, name)}; needs more than 0 and at most 1")


def check_whole(machine: object, *names: str) -> None:
    """Raise ArgumentError unless these attributes are integers; 8.0 is not."""
    for name in names:
        if not isinstance(getattr(machine, name), Integral):
            raise ArgumentError(f"{name} is {getattr(machine, name)}; needs a whole number")
