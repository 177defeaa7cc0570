"""Even: a check that ranks can share something evenly, and the numbers that divide it."""

from math import isqrt

from simdist.errors import ArgumentError, require_whole

__all__ = ["check_even", "divisors"]


def check_even(what: str, count: int, axis: str, size: int, parts: int = 1, *, remedy: str = "") -> None:
    """Raise ArgumentError, which lists the possible sizes of this axis, unless all ranks get the same number.

    Args:
        what, count: the things to share, in the plural, and their number.
        axis, size: of the mesh.
        parts: the number of equal parts that each rank takes.
        remedy: a hint that ends the message.
    """
    require_whole(axis, size, 1)
    if count % (size * parts):
        whole = count // parts if count % parts == 0 else 0
        possible = f"{axis} {', '.join(map(str, divisors(whole)))}" if whole else f"no {axis}"
        each = f" ({parts} parts a rank)" if parts > 1 else ""
        more = f"; {remedy}" if remedy else ""
        raise ArgumentError(
            f"{count} {what} on {axis} {size}{each} leave {count % (size * parts)} over; "
            f"{count} {what} go evenly on {possible}{more}"
        )


def divisors(whole: int) -> list[int]:
    """The numbers that divide this one, in order; of 0, none."""
    small = [n for n in range(1, isqrt(whole) + 1) if whole % n == 0]
    return sorted({*small, *(whole // n for n in small)})
