"""Link: what carries a message."""

from dataclasses import dataclass

__all__ = ["Link"]


@dataclass(frozen=True, slots=True)
class Link:
    """A wire by latency and bandwidth: n bytes arrive latency_s + n / bytes_per_s after they set out.

    The papers' alpha is `latency_s`, their beta 1 / `bytes_per_s`. Each direction has this bandwidth.
    """

    latency_s: float
    bytes_per_s: float

    def seconds(self, num_bytes: float) -> float:
        """The time of one message alone on the wire: alpha + n * beta."""
        return self.latency_s + num_bytes / self.bytes_per_s
