"""Scope: the settings whose runs are predicted."""

from collections.abc import Mapping
from typing import Any

from simdist.errors import ArgumentError
from simdist.training.methods import CUT_METHODS
from simdist.training.pipelines import is_updating

__all__ = ["MOST_MICRO_BATCHES", "check_known"]

MOST_MICRO_BATCHES = 1 << 14
"""The largest number that is predicted: they are timed one by one."""

_EXECUTED = "; simdist train --world virtual --device phantom times others"


def check_known(settings: Mapping[str, Any]) -> None:
    """Raise ArgumentError if these settings include a feature that is not predicted."""
    for name, known in (("method", CUT_METHODS), ("offload", ("none",)), ("compress", ()), ("algorithm", ("auto",))):
        if settings.get(name) not in (None, *known):
            instead = _EXECUTED if name in ("offload", "algorithm") else ""
            raise ArgumentError(
                f"{name} is {settings[name]}; plans are of {name} {', '.join(known) or 'none'}{instead}"
            )
    if is_updating(settings.get("schedule")):
        raise ArgumentError(
            f"schedule is {settings['schedule']}; plans are of those that update after all micro-batches, such as 1f1b"
            f"{_EXECUTED}"
        )
    if (count := settings.get("micro_batches") or 1) > MOST_MICRO_BATCHES:
        raise ArgumentError(f"micro_batches is {count}; plans are of at most {MOST_MICRO_BATCHES:,}")
