"""Scope: the settings whose runs are predicted."""

from collections.abc import Mapping
from typing import Any

from simdist.errors import ArgumentError
from simdist.training.methods import CUT_METHODS
from simdist.training.pipelines import is_updating
from simdist.words import counted

__all__ = ["MOST_MICRO_BATCHES", "MOST_TOKENS", "check_known", "too_long"]

MOST_MICRO_BATCHES = 1 << 14
"""The most that are predicted: they are timed one by one."""
MOST_TOKENS = 1 << 24
"""The most tokens of a micro-batch that is predicted: a sample of its text is made and sorted. No device has room for
the activations of more, except of toy models.
"""

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


def too_long(windows: int, context: int) -> str:
    """Why a micro-batch of so many windows of so many tokens is not predicted; empty if it is."""
    if (tokens := windows * context) <= MOST_TOKENS:
        return ""
    return f"{counted(windows, 'window')} in a micro-batch are {tokens:,} tokens; plans are of at most {MOST_TOKENS:,}"
