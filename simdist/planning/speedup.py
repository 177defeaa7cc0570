"""Speedup: how much faster many ranks are than one, if a part of the work is not divided.

    s  the share of the time in which only one of p ranks works, or all do the same

    one size        one rank   [ s ][        1 - s         ]        strong scaling: s is the share on one rank
                    p ranks    [ s ][(1-s)/p]

    one duration    p ranks    [ s ][        1 - s         ]        weak scaling: s is the share on p ranks
                    one rank   [ s ][               p (1 - s)             …

Source: Amdahl 1967, AFIPS 30, 483-485; Gustafson 1988, CACM 31(5), 532-533.
"""

from simdist.errors import ArgumentError, require_least

__all__ = ["amdahl_speedup", "gustafson_speedup"]


def amdahl_speedup(serial: float, ranks: float) -> float:
    """1 / (s + (1-s)/p): how much sooner p ranks are done with work of one size; never more than 1/s.

    Args:
        serial: s, of one rank's time.
        ranks: p.

    Raises:
        ArgumentError: s is not from 0 to 1, or p less than 1.
    """
    _check(serial, ranks)
    return 1 / (serial + (1 - serial) / ranks)


def gustafson_speedup(serial: float, ranks: float) -> float:
    """p + (1-p) s: how much more p ranks do in the same time, if the work that is divided grows with them.

    With 0.4 and 0.8% it is 1020 and 1016 on 1024 ranks, where Amdahl's law has 201 and 111.

    Args:
        serial: s, of the p ranks' time.
        ranks: p.

    Raises:
        ArgumentError: as of `amdahl_speedup`.
    """
    _check(serial, ranks)
    return ranks + (1 - ranks) * serial


def _check(serial: float, ranks: float) -> None:
    """Raise ArgumentError if there is no such share, or no ranks."""
    require_least("ranks", ranks, 1)
    if not 0 <= serial <= 1:
        raise ArgumentError(f"serial is {serial}; needs from 0 to 1")
