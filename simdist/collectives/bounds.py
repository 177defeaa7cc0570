"""Bounds: the least that any algorithm by messages needs."""

from heapq import heappop, heappush

from simdist.cluster import Link
from simdist.collectives.cost import Case, Formula
from simdist.collectives.names import collective
from simdist.errors import as_declared, require_whole

__all__ = ["logp_broadcast_s", "logp_sum_values", "lower_bound"]

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


@as_declared
def lower_bound(operation: str, *, ranks: int, num_bytes: int, in_network: bool = False, ports: int = 1) -> Formula:
    """The least latencies, bytes and reduced bytes of a collective, where a rank sends and receives one message at a
    time by each of its ports. Each bound holds by itself: an algorithm that reaches one may exceed another.

        p ranks, n bytes           latencies    bytes         reduced bytes
        broadcast                  ⌈lg p⌉       n
        reduce                     ⌈lg p⌉       n             n(p-1)/p
        scatter, gather            ⌈lg p⌉       n(p-1)/p
        all_gather, all_to_all     ⌈lg p⌉       n(p-1)/p
        reduce_scatter             ⌈lg p⌉       n(p-1)/p      n(p-1)/p
        all_reduce                 ⌈lg p⌉       2n(p-1)/p     n(p-1)/p
        barrier                    ⌈lg p⌉
        with k ports               to the base k+1   a k-th of that

    Switches that add up what passes through them, and copy it, make it a single latency and nothing reduced, and only
    n bytes for all_reduce: up to half. In two phases, as on NVLink (NVLS), all_reduce takes n(p+1)/p.

    Args:
        ranks, num_bytes: p and n, as of `Case`.
        in_network: whether switches do so, as with SHARP.
        ports: k, of a rank: six links of each of DGX-1's eight GPUs, whose all-gather has 2 latencies and n/8 · 7/6.

    Raises:
        UnknownNameError: there is no such collective.
        ArgumentError: no such case, or ports is no whole number of at least 1.

    Source: Chan, Heimlich, Purkayastha, van de Geijn 2007, Concurrency and Computation 19(13), table of lower bounds.
    It has no all_to_all, in which each rank has this much to send, and no barrier. Sapio et al. 2021, NSDI (SwitchML).
    Bruck, Ho, Kipnis, Upfal, Weathersby 1997, IEEE TPDS 8(11) (ports).
    """
    operation = collective(operation, _SHARES)
    require_whole("ports", ports, 1)
    case = Case(ranks, num_bytes)
    p, n = case.ranks, case.num_bytes
    if p == 1:
        return Formula(0, 0.0, 0.0)
    sent, reduced = (whole * n + part * n * (p - 1) / p for whole, part in _SHARES[operation])
    if in_network:
        return Formula(1, min(sent, n) / ports, 0.0)
    return Formula(next(k for k in range(p) if (ports + 1) ** k >= p), sent / ports, reduced)


@as_declared
def logp_broadcast_s(link: Link, ranks: int, num_bytes: float = 1) -> float:
    """The least time of a broadcast of one message, if a rank may send it again before it has arrived, as in LogP.

    Each rank that has it sends it on and on. So the best tree is not binomial where latency is long: a rank's first
    message arrives after alpha + n beta, each further one n beta later, and in the meantime that rank sends, too.

        L, o, g = 6, 2, 4
        logp_broadcast_s(Link(L + 2 * o - g, 1 / g), ranks=8)           # 24; binomial trees take 10 a round, 30

    Args:
        link, ranks, num_bytes: between any two of p ranks, and n, of the message, which is not cut into pieces.

    Raises:
        ArgumentError: ranks is no whole number of at least 1.

    Source: Culler et al. 1993, PPoPP, figure 3 (LogP); Karp, Sahay, Santos, Schauser 1993, SPAA; Bar-Noy, Kipnis 1994,
    Mathematical Systems Theory 27(5), 431-452 (g = 1, the postal model: ranks reached grow as Fibonacci's numbers).
    """
    require_whole("ranks", ranks, 1)
    first_s, each_s, got_s = link.seconds(num_bytes), num_bytes / link.bytes_per_s, 0.0
    arrivals = [first_s]  # of the next message of each rank that has it
    for _ in range(ranks - 1):
        got_s = heappop(arrivals)
        heappush(arrivals, got_s + each_s)
        heappush(arrivals, got_s + first_s)
    return got_s


@as_declared
def logp_sum_values(cycles: int, ranks: int, *, latency: int, overhead: int, gap: int) -> int:
    """How many values some ranks can add up in so many cycles, of which an addition takes one, in LogP.

    The best tree is that of the broadcast, backwards: of a rank that is to be done at t the last child is done at
    t - (L + 2o + 1), each one before it g earlier. A rank adds t + 1 values until t by itself, and each that it
    receives from another takes it o cycles, so that a child has to be worth more than these.

        logp_sum_values(28, 8, latency=5, overhead=2, gap=4)      # 79, by ranks done at 28, 18, 14, 10, 8, 6, 4, 4

    Args:
        cycles, ranks: until the first of these ranks has the sum, and how many there are at most.
        latency, overhead, gap: L, o and g of LogP, in cycles. A gap below o + 1 counts as that.

    Raises:
        ArgumentError: ranks is no whole number of at least 1, or another is no whole number of at least 0.

    Source: Culler et al. 1993, PPoPP, figure 4; Karp, Sahay, Santos, Schauser 1993, SPAA.
    """
    require_whole("ranks", ranks, 1)
    for name, value in (("cycles", cycles), ("latency", latency), ("overhead", overhead), ("gap", gap)):
        require_whole(name, value, 0)
    travel = latency + 2 * overhead + 1  # until the sum that arrives has been added, too
    values, late = 1 + cycles, [travel - cycles]  # when further ranks have to be done, with their signs turned
    for _ in range(ranks - 1):
        done = -heappop(late)
        if done <= overhead:
            break
        values += done - overhead
        heappush(late, max(gap, overhead + 1) - done)
        heappush(late, travel - done)
    return values
