"""Bounds: the least that any algorithm by messages needs."""

from simdist.collectives.cost import Case, Formula
from simdist.errors import require_known

__all__ = ["lower_bound"]

_SHARES = {  # bytes sent or received, and bytes reduced: (of n, of n (p-1)/p) each
    "broadcast": ((1, 0), (0, 0)),
    "reduce": ((1, 0), (0, 1)),
    "scatter": ((0, 1), (0, 0)),
    "gather": ((0, 1), (0, 0)),
    "all_gather": ((0, 1), (0, 0)),
    "reduce_scatter": ((0, 1), (0, 1)),
    "all_reduce": ((0, 2), (0, 1)),
    "all_to_all": ((0, 1), (0, 0)),
    "barrier": ((0, 0), (0, 0)),
}


def lower_bound(operation: str, *, ranks: int, num_bytes: int, in_network: bool = False) -> Formula:
    """The least latencies, bytes and reduced bytes of a collective, where a rank sends and receives one message at a
    time. Each bound holds by itself: an algorithm that reaches one may exceed another.

        p ranks, n bytes           latencies    bytes         reduced bytes
        broadcast                  ⌈lg p⌉       n
        reduce                     ⌈lg p⌉       n             n(p-1)/p
        scatter, gather            ⌈lg p⌉       n(p-1)/p
        all_gather, all_to_all     ⌈lg p⌉       n(p-1)/p
        reduce_scatter             ⌈lg p⌉       n(p-1)/p      n(p-1)/p
        all_reduce                 ⌈lg p⌉       2n(p-1)/p     n(p-1)/p
        barrier                    ⌈lg p⌉

    Switches that add up what passes through them, and copy it, make it a single latency and nothing reduced, and only
    n bytes for all_reduce: up to half. In two phases, as on NVLink (NVLS), all_reduce takes n(p+1)/p.

    Args:
        ranks, num_bytes: p and n, as of `Case`.
        in_network: whether switches do so, as with SHARP.

    Raises:
        UnknownNameError: there is no such collective.
        ArgumentError: no such case.

    Source: Chan, Heimlich, Purkayastha, van de Geijn 2007, Concurrency and Computation 19(13), table of lower bounds.
    It has no all_to_all, in which each rank has this much to send, and no barrier. Sapio et al. 2021, NSDI (SwitchML).
    """
    require_known("collective", operation, _SHARES)
    case = Case(ranks, num_bytes)
    p, n = case.ranks, case.num_bytes
    if p == 1:
        return Formula(0, 0.0, 0.0)
    others = n * (p - 1) / p
    sent, reduced = (whole * n + part * others for whole, part in _SHARES[operation])
    if in_network:
        return Formula(1, min(sent, n), 0.0)
    return Formula((p - 1).bit_length(), sent, reduced)
