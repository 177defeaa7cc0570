"""Speedup: how much faster many ranks are than one, if a part of the work is not divided.

    s  the share of the time in which only one of p ranks works, or all do the same

    one size        one rank   [ s ][        1 - s         ]        strong scaling: s is the share on one rank
                    p ranks    [ s ][(1-s)/p]

    one duration    p ranks    [ s ][        1 - s         ]        weak scaling: s is the share on p ranks
                    one rank   [ s ][               p (1 - s)             …

Source: Amdahl 1967, AFIPS 30, 483-485; Gustafson 1988, CACM 31(5), 532-533; Sun, Ni 1993, J. Parallel Distrib. Comput.
19(1), 27-37; Karp, Flatt 1990, CACM 33(5), 539-543; Gunther 2007, "Guerrilla Capacity Planning" (the universal
scalability law); Grama, Gupta, Kumar 1993, IEEE Parallel & Distributed Technology 1(3), 12-21 (isoefficiency); Brent
1974, JACM 21(2), 201-206.
"""

from math import inf, sqrt

from simdist.errors import ArgumentError, as_declared, require_least, require_more, require_share

__all__ = [
    "amdahl_speedup",
    "gustafson_speedup",
    "isoefficient_work",
    "karp_flatt_share",
    "sun_ni_speedup",
    "universal_ranks",
    "universal_speedup",
]


@as_declared
def amdahl_speedup(serial: float, ranks: float) -> float:
    """1 / (s + (1-s)/p): how much sooner p ranks are done with work of one size; never more than 1/s.

    By Brent's theorem tasks are done at least so much sooner, if no rank is idle while one is ready, with s = T_∞/T_1:
    the span, of the longest chain of tasks that wait for each other, over the work. They take T_∞ + (T_1 - T_∞)/p.

    Args:
        serial: s, of one rank's time.
        ranks: p.

    Raises:
        ArgumentError: s is not from 0 to 1, or p less than 1.
    """
    _check(serial, ranks)
    return _inverse(serial + (1 - serial) / ranks)


@as_declared
def gustafson_speedup(serial: float, ranks: float) -> float:
    """s + p (1-s): how much more p ranks do in the same time, if the work that is divided grows with them.

    With 0.4 and 0.8% it is 1020 and 1016 on 1024 ranks, where Amdahl's law has 201 and 111.

    Args:
        serial: s, of the p ranks' time.
        ranks: p.

    Raises:
        ArgumentError: as of `amdahl_speedup`.
    """
    _check(serial, ranks)
    return serial + ranks * (1 - serial)


@as_declared
def sun_ni_speedup(serial: float, ranks: float, growth: float) -> float:
    """(s + (1-s) G) / (s + (1-s) G/p): the speedup with as much work as the memory of all ranks has room for.

    G = 1 is Amdahl's law, and G = p Gustafson's. The work often grows faster than the memory: products of n x n
    matrices take n³ operations in n² numbers, so that p times the memory has room for G = p^(3/2).

    Args:
        serial, ranks: s and p, as of `amdahl_speedup`.
        growth: G, how many times as much work is divided as on one rank.

    Raises:
        ArgumentError: as of `amdahl_speedup`, or G is less than 1.
    """
    _check(serial, ranks)
    require_least("growth", growth, 1)
    divided = (1 - serial) * growth
    return (serial + divided) / (serial + divided / ranks)


@as_declared
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


@as_declared
def universal_speedup(serial: float, crosstalk: float, ranks: float) -> float:
    """p / (1 + s (p-1) + κ p (p-1)): Amdahl's law, where each rank also spends time with each of the others.

    It falls again with more than `universal_ranks`.

    Args:
        serial, ranks: s and p, as of `amdahl_speedup`, which this is without crosstalk.
        crosstalk: κ, of one rank's time, for each pair of ranks; often called β, and s α.

    Raises:
        ArgumentError: as of `amdahl_speedup`, or κ is below 0.
    """
    _check(serial, ranks)
    with_others = crosstalk * (ranks - 1) if crosstalk else 0  # also on infinitely many
    return _inverse(serial + (1 - serial) / ranks + with_others)


@as_declared
def universal_ranks(serial: float, crosstalk: float) -> float:
    """√((1-s)/κ): the number of ranks with which `universal_speedup` is highest; infinity without crosstalk.

    Args:
        serial, crosstalk: s and κ.

    Raises:
        ArgumentError: s is not from 0 to 1, or κ below 0.
    """
    require_least("crosstalk", crosstalk, 0)
    _check(serial, 1)
    return sqrt((1 - serial) / crosstalk) if crosstalk else inf


@as_declared
def isoefficient_work(overhead: float, efficiency: float) -> float:
    """E/(1-E) T_o: the work W with which ranks are busy with it for the share E of their time.

    With the W and the overhead of all ranks together, E = W / (W + T_o). T_o grows with the ranks, so W has to: to add
    up numbers on p ranks, T_o = 2 p lg p, 64 of them on 4 ranks for 80%, 192 on 8 and 512 on 16.

    Args:
        overhead: T_o, what all ranks together spend with anything else, in the unit of the work.
        efficiency: E.

    Raises:
        ArgumentError: T_o is below 0, or E not from 0 to less than 1.
    """
    require_least("overhead", overhead, 0)
    require_share("efficiency", efficiency)
    return efficiency / (1 - efficiency) * overhead


def _inverse(share: float) -> float:
    return 1 / share if share else inf


def _check(serial: float, ranks: float) -> None:
    """Raise ArgumentError if there is no such share, or no ranks."""
    require_least("ranks", ranks, 1)
    if not 0 <= serial <= 1:
        raise ArgumentError(f"serial is {serial}; needs from 0 to 1")
