"""Even: checks that something can be divided equally over ranks."""

from math import isqrt

from simdist.errors import ArgumentError

__all__ = ["check_even"]


def check_even(what: str, count: int, axis: str, size: int, parts: int = 1) -> None:
    """Raise ArgumentError, which lists the sizes of this axis that are possible, unless each rank gets as many.

    Args:
        what, count: what is shared, in the plural, and how many there are.
        axis, size: of the mesh.
        parts: how many each rank takes, where it takes several.
    """
    if count % (size * parts):
        whole = count // parts if count % parts == 0 else 0
        small = [n for n in range(1, isqrt(whole) + 1) if whole % n == 0]
        possible = map(str, sorted({*small, *(whole // n for n in small)}))
        each = f" ({parts} parts a rank)" if parts > 1 else ""
        raise ArgumentError(
            f"{count} {what} on {axis} {size}{each} leave {count % (size * parts)} over; "
            f"{count} {what} go evenly on {axis} {', '.join(possible) or 'of no size'}"
        )
