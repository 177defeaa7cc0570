"""Link: what carries a message."""

from dataclasses import dataclass, replace
from math import ceil

from simdist.cluster.limits import check_least, check_positive
from simdist.errors import as_declared

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

    @classmethod
    @as_declared
    def of_lanes(cls, latency_s: float, lanes: int, bits_per_s: float, data: float = 1.0) -> "Link":
        """The link of some lanes, of whose bits the share `data` is not the code's: lanes · bits_per_s · data / 8.

            lanes   Gb/s                  data       GB/s each way
            16      8, 16, 32             128/130    15.75, 31.5, 63          PCIe 3, 4, 5
            16      64                    242/256    121                      PCIe 6
            4       25, 50, 100, 200      1          12.5, 25, 50, 100        InfiniBand EDR, HDR, NDR, XDR
            32      20                    1          80                       NVLink 1: 4 links of P100, 8 lanes each
            48      25, 50                1          150, 300                 NVLink 2, 3: 6 links of 8, 12 of 4
            36      100, 200              1          450, 900                 NVLink 4, 5: 18 links of 2

        InfiniBand's and NVLink's rates are those after their codes.

        Args:
            bits_per_s: of a lane, each way.

        Raises:
            ArgumentError: a latency below 0, or no bandwidth.

        Source: PCI-SIG's and the InfiniBand Trade Association's roadmaps; NVIDIA's white papers, P100 to Blackwell.
        """
        return cls(latency_s, lanes * bits_per_s * data / 8)

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
