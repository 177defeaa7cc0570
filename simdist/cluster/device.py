"""Device: what one rank computes with."""

from dataclasses import dataclass

from simdist.cluster.limits import check_positive

__all__ = ["Device"]


@dataclass(frozen=True, slots=True)
class Device:
    """A processor by its roofline: the rate of its arithmetic and of its memory, whichever is slower.

    Args:
        name: as its maker calls it.
        flops_per_s: floating-point operations a second, dense, in the precision of training.
        memory_bytes_per_s: bytes a second between memory and arithmetic, reads and writes together.
        memory_bytes: how much it holds.

    Raises:
        ArgumentError: one of these is not above 0.
    """

    name: str
    flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float

    def __post_init__(self) -> None:
        check_positive(self, "flops_per_s", "memory_bytes_per_s", "memory_bytes")

    def seconds(self, flops: float, num_bytes: float) -> float:
        """How long this many operations on this many bytes take: the slower of the two."""
        return max(flops / self.flops_per_s, num_bytes / self.memory_bytes_per_s)

    @property
    def reduced_bytes_per_s(self) -> float:
        """The rate of x += y in bytes of x: two reads and a write each. Its inverse is the papers' gamma."""
        return self.memory_bytes_per_s / 3
