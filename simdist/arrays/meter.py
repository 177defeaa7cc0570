"""Meter: the cost of arithmetic, in operations and bytes.

The meter is ambient: a layer or a reduction reports its work with `charge`, and the caller may install a meter, such
as a virtual rank's clock or a training step's counter.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from simdist.arrays.ambient import ambient

__all__ = ["Chargeable", "Meter", "charge", "clear", "current_meter", "in_one_pass", "metered", "unmetered"]


class Chargeable(Protocol):
    """Anything that can be charged for arithmetic."""

    def charge(self, flops: int, bytes: int) -> None:
        """Charge this many floating-point operations on this many bytes."""


class Meter:
    """Counts floating-point operations and the bytes that they read and write.

    Attributes:
        flops, bytes: the counts.
    """

    __slots__ = ("bytes", "flops")

    def __init__(self) -> None:
        self.flops = 0
        self.bytes = 0

    def charge(self, flops: int, bytes: int) -> None:
        """Add to the counts."""
        self.flops += flops
        self.bytes += bytes


class _Both(NamedTuple):
    """Charges two meters, one installed inside the other."""

    inner: Chargeable
    outer: Chargeable

    def charge(self, flops: int, bytes: int) -> None:
        self.inner.charge(flops, bytes)
        self.outer.charge(flops, bytes)


_meter: ContextVar[Chargeable | None] = ContextVar("simdist_meter", default=None)
current_meter = _meter.get


def charge(flops: int = 0, bytes: int = 0) -> None:
    """Charge the meter of this context, if there is one."""
    meter = _meter.get()
    if meter is not None:
        meter.charge(flops, bytes)


@contextmanager
def in_one_pass(num_bytes: int) -> Iterator[None]:
    """Charge the work inside this block as one kernel that reads and writes `num_bytes` of memory.

    Intermediate results count as staying in the cache.
    """
    inside = Meter()
    with ambient(_meter, inside):
        yield
    charge(inside.flops, num_bytes)


def clear(x: Any) -> None:
    """Set x to zero: one pass over its memory."""
    x[...] = 0
    charge(0, x.nbytes)


def metered(meter: Chargeable) -> AbstractContextManager[object]:
    """Charge `meter` inside this block; if it is a Meter, the one around the block is charged as well."""
    outer = _meter.get()
    return ambient(_meter, meter if outer is None or not isinstance(meter, Meter) else _Both(meter, outer))


def unmetered() -> AbstractContextManager[object]:
    """Charge nothing inside this block."""
    return ambient(_meter, None)
