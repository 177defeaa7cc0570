"""Speedup: how much faster many ranks are than one, if a part of the work is not divided.

    s  the share of the time in which only one of p ranks works, or all do the same

    one size        one rank   [ s ][        1 - s         ]        strong scaling: s is the share on one rank
                    p ranks    [ s ][(1-s)/p]

    one duration    p ranks    [ s ][        1 - s         ]        weak scaling: s is the share on p ranks
                    one rank   [ s ][               p (1 - s)             …

Source: Amdahl 1967, AFIPS 30, 483-485; Gustafson 1988, CACM 31(5), 532-533; Karp, Flatt 1990, CACM 33(5), 539-543.
"""

from simdist.errors import ArgumentError, require_least, require_more

__all__ = ["amdahl_speedup", "gustafson_speedup", "karp_flatt_share"]


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


def karp_flatt_share(speedup: float, ranks: float) -> float:
    """(1/S - 1/p) / (1 - 1/p): the serial share s with which Amdahl's law has this speedup, as measured on p ranks.

    It stays the same with more ranks where work is not divided, and grows where messages and waiting cost more.

    Args:
        speedup: S.
        ranks: p.

    Raises:
        ArgumentError: S is not above 0, or p not above 1.
    """
    require_more("speedup", speedup, 0)
    require_more("ranks", ranks, 1)
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks)


def _check(serial: float, ranks: float) -> None:
    """Raise ArgumentError if there is no such share, or no ranks."""
    require_least("ranks", ranks, 1)
    if not 0 <= serial <= 1:
        raise ArgumentError(f"serial is {serial}; needs from 0 to 1")
