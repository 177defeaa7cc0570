"""Host: the computer around a device."""

from dataclasses import dataclass

from simdist.cluster.limits import check_positive
from simdist.errors import require_known

__all__ = ["Host"]

_PLACES = ("device", "host", "disk")


@dataclass(frozen=True, slots=True)
class Host:
    """A device's share of the memory and the disks of its node, and the links to them.

        device  ==== link ====  host memory  ==== disk link ====  disk

    Args:
        link_bytes_per_s: between the device and the host's memory, each way.
        memory_bytes_per_s: between the host's memory and its processors, reads and writes together: it determines
            how fast an update runs there.
        disk_bytes_per_s: between the host's memory and the disks, each way.

    Raises:
        ArgumentError: one of these is not above 0.
    """

    link_bytes_per_s: float
    memory_bytes_per_s: float
    disk_bytes_per_s: float

    def __post_init__(self) -> None:
        check_positive(self, "link_bytes_per_s", "memory_bytes_per_s", "disk_bytes_per_s")

    def seconds(self, num_bytes: float, start: str, end: str) -> float:
        """The time to move this many bytes between two of "device", "host" and "disk", piece by piece.

        Raises:
            UnknownNameError: there is no such place.
        """
        for place in (start, end):
            require_known("place", place, _PLACES)
        i, j = sorted(map(_PLACES.index, (start, end)))
        return max((num_bytes / rate for rate in (self.link_bytes_per_s, self.disk_bytes_per_s)[i:j]), default=0.0)
