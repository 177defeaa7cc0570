"""Link: what carries a message."""

from dataclasses import dataclass, replace
from math import ceil

from simdist.cluster.limits import check_least, check_positive

__all__ = ["Link"]


@dataclass(frozen=True, slots=True)
class Link:
    """A wire by latency and bandwidth: n bytes arrive latency_s + n / bytes_per_s after they are sent.

    The papers' alpha is `latency_s`, their beta 1 / `bytes_per_s`. Each direction has this bandwidth. In LogGP, where n
    bytes arrive after o + (n-1)G + L + o, beta is G and alpha L + 2o - G; a port is busy for n beta, LogP's gap g. So
    messages of one byte have Link(L + 2o - g, 1 / g) in LogP, if o is at most g. In BSP, where a superstep of h bytes
    into or out of any rank takes w + hg + l, it takes `seconds(h)` of Link(l, 1 / g) besides its work w.

    Raises:
        ArgumentError: a latency below 0, or no bandwidth.

    Source: Culler et al. 1993, PPoPP (LogP); Alexandrov, Ionescu, Schauser, Scheiman 1995, SPAA (LogGP); Skillicorn,
    Hill, McColl 1997, Scientific Programming 6(3), 249-274 (BSP).
    """

    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        check_least(self, 0, "latency_s")
        check_positive(self, "bytes_per_s")

    def seconds(self, num_bytes: float) -> float:
        """The time of one message alone on the wire: alpha + n * beta."""
        return self.latency_s + num_bytes / self.bytes_per_s

    @property
    def half_bytes(self) -> float:
        """Hockney's n½ = alpha / beta: the length of a message that reaches half of the bandwidth.

        One of n bytes reaches the share n / (n + n½): shorter ones take mostly latency, longer ones mostly bytes.

        Source: Hockney 1994, Parallel Computing 20(3), 389-398.
        """
        return self.latency_s * self.bytes_per_s if self.latency_s else 0.0

    def among(self, senders: int, wires: float) -> "Link":
        """The share of one of several senders that send at once over a number of such wires."""
        return replace(self, bytes_per_s=self.bytes_per_s / max(1, ceil(senders / wires)))
