"""Meter: what the arithmetic at hand costs, in operations and bytes.

The one ambient thing in simdist: a layer or a reduction says what it does by `charge`, and whoever runs
it may listen. A virtual rank listens with its clock, a training step with a counter.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["Chargeable", "Meter", "charge", "clear", "metered"]


class Chargeable(Protocol):
    """Whatever can be told of arithmetic."""

    def charge(self, flops: int, bytes: int) -> None:
        """Hear of so many floating-point operations on so many bytes."""


class Meter:
    """Counts floating-point operations and the bytes that they read and write.

    Attributes:
        flops, bytes: the counts.
        outer: the meter around this one, which is told as well.
    """

    __slots__ = ("bytes", "flops", "outer")

    def __init__(self) -> None:
        self.flops = 0
        self.bytes = 0
        self.outer: Chargeable | None = None

    def charge(self, flops: int, bytes: int) -> None:
        """Count, and pass on."""
        self.flops += flops
        self.bytes += bytes
        if self.outer is not None:
            self.outer.charge(flops, bytes)


_meter: ContextVar[Chargeable | None] = ContextVar("simdist_meter", default=None)
current_meter = _meter.get


def charge(flops: int = 0, bytes: int = 0) -> None:
    """Tell the meter of this context, if there is one, what is being done."""
    meter = _meter.get()
    if meter is not None:
        meter.charge(flops, bytes)


def clear(x: Any) -> None:
    """Set every number of x to zero: one pass over it."""
    x[...] = 0
    charge(0, x.nbytes)


@contextmanager
def metered(meter: Chargeable) -> Iterator[None]:
    """Charge `meter` inside this block; a Meter passes on to the one around it."""
    if isinstance(meter, Meter):
        meter.outer = _meter.get()
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)
