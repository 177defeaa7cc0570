"""Meter: what the arithmetic at hand costs, in operations and bytes.

The one ambient thing in simdist: a layer or a reduction says what it does by `charge`, and whoever runs
it may listen. A virtual rank listens with its clock, a training step with its counters.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Meter", "charge", "metered"]


class Meter:
    """Counts floating-point operations and bytes moved between memory and arithmetic unit.

    Args:
        listener: called as listener(flops, bytes) at every charge.
    """

    __slots__ = ("bytes", "flops", "listener", "outer")

    def __init__(self, listener: Callable[[int, int], None] | None = None) -> None:
        self.flops = 0
        self.bytes = 0
        self.listener = listener
        self.outer: Meter | None = None

    def charge(self, flops: int, bytes: int) -> None:
        """Count, tell the listener, and pass on to the meter around this one."""
        self.flops += flops
        self.bytes += bytes
        if self.listener is not None:
            self.listener(flops, bytes)
        if self.outer is not None:
            self.outer.charge(flops, bytes)


_meter: ContextVar[Meter | None] = ContextVar("simdist_meter", default=None)


def charge(flops: int = 0, bytes: int = 0) -> None:
    """Tell the meter of this context, if there is one, what is being done."""
    meter = _meter.get()
    if meter is not None:
        meter.charge(flops, bytes)


@contextmanager
def metered(meter: Meter) -> Iterator[Meter]:
    """Charge `meter`, and the meter around it, inside this block."""
    meter.outer = _meter.get()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)
