"""What goes evenly on ranks, and what is said where it does not."""

import pytest

from simdist.errors import ArgumentError
from simdist.parallel.even import check_even, divisors


def test_what_goes_evenly():
    for size in (1, 2, 3, 4, 6, 12):
        check_even("heads", 12, "tp", size)
    check_even("tokens", 12, "sp", 3, parts=2)


@pytest.mark.parametrize(
    ("count", "size", "parts", "says"),
    [
        (12, 5, 1, r"12 heads on tp 5 leave 2 over; 12 heads go evenly on tp 1, 2, 3, 4, 6, 12$"),
        (12, 4, 2, r"12 heads on tp 4 \(2 parts a rank\) leave 4 over; 12 heads go evenly on tp 1, 2, 3, 6$"),
        (7, 1, 2, r"7 heads on tp 1 \(2 parts a rank\) leave 1 over; 7 heads go evenly on no tp$"),
        (2, 3, 1, r"2 heads on tp 3 leave 2 over; 2 heads go evenly on tp 1, 2$"),
        (10**12 + 39, 2, 1, r"go evenly on tp 1, 1000000000039$"),  # without trying them all
    ],
)
def test_what_does_not(count, size, parts, says):
    with pytest.raises(ArgumentError, match=says):
        check_even("heads", count, "tp", size, parts)


def test_the_numbers_that_divide_another():
    for whole in range(100):
        assert divisors(whole) == [n for n in range(1, whole + 1) if whole % n == 0]
