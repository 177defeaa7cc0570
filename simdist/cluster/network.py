"""Network: when a message leaves and when it arrives, given everything sent before it."""

from collections.abc import Callable, Hashable, Sequence
from math import inf

from simdist.cluster.cluster import Cluster
from simdist.errors import ArgumentError

__all__ = ["Network", "Path", "Port", "Routed"]

_MASK = (1 << 64) - 1


class Port:
    """One end of a wire, in one direction: busy with one message at a time.

        booked      |==A==|       |==B==|           B has to wait for its sender's port, which leaves a gap here
        and C       |==A==|=C=|   |==B==|           C, sent after B, is here before it and need not wait
        and D       |==A==|=C=|=D=|==B==|=D=|       D takes what is left

    Attributes:
        free_s: when it is free again for good.
        gaps: when it is free before that, as (from, to), the earliest first.
    """

    __slots__ = ("free_s", "gaps")

    def __init__(self) -> None:
        self.free_s = 0.0
        self.gaps: list[tuple[float, float]] = []

    def book(self, head_s: float, busy_s: float, now_s: float) -> float:
        """Book the first busy_s seconds that are free from head_s on; returns when the last of them ends.

        A message too long for one gap is split over several, as packets are. So the port never idles while a message
        waits for it, and what was booked before keeps its time. Gaps that end before now_s are forgotten.
        """
        free, end_s, missing_s = [], inf, busy_s
        for from_s, to_s in (*self.gaps, (self.free_s, inf)):
            begin_s = max(from_s, head_s)
            if begin_s >= to_s or (end_s < inf and missing_s <= 1e-12 * (end_s + busy_s)):  # which is rounding
                free.append((from_s, to_s))
                continue
            end_s = min(begin_s + missing_s, to_s)
            missing_s -= end_s - begin_s
            free += [(from_s, begin_s), (end_s, to_s)]
        *gaps, (self.free_s, _) = free
        self.gaps = [(from_s, to_s) for from_s, to_s in gaps if max(from_s, now_s) < to_s]
        return end_s


class Path:
    """The path from one device to another: an output port, a wire, an input port.

    A message of n bytes holds the sender's port for n * beta seconds from the moment it is free; its head
    arrives alpha later and holds the receiver's port for n * beta more:

        sender     |--wait--|== n*beta ==|                     (messages leave in the order of the calls)
        wire                |-- alpha --|
        receiver                        |--wait--|== n*beta ==|

    Alone on idle ports it takes alpha + n * beta.

    Args:
        out, into: the ports. All paths into a port have the same alpha.
        alpha_s, beta_s: seconds a message and seconds a byte.
        stretch: returns the factor for the next message's latency; None for 1.
    """

    __slots__ = ("_head_s", "_into", "_out", "_stretch", "alpha_s", "beta_s")

    def __init__(
        self, out: Port, into: Port, alpha_s: float, beta_s: float, stretch: Callable[[], float] | None = None
    ) -> None:
        self._out = out
        self._into = into
        self._stretch = stretch
        self._head_s = 0.0
        self.alpha_s = alpha_s
        self.beta_s = beta_s

    def carry(self, num_bytes: int, ready_s: float) -> tuple[float, float]:
        """Send this many bytes, ready at ready_s; returns (when the output port is free again, when they have arrived).

        Messages book their ports in the order of the calls; the virtual world calls in the order of time. One that
        waits to leave leaves the receiver's port idle until then, and others may use that gap.
        """
        out = self._out
        into = self._into
        busy_s = num_bytes * self.beta_s
        start_s = out.free_s
        if start_s < ready_s:
            start_s = ready_s
        out.free_s = sent_s = start_s + busy_s
        if self._stretch is not None:  # no message overtakes another of its path
            head_s = self._head_s = max(self._head_s, start_s + self.alpha_s * self._stretch())
            return sent_s, into.book(head_s, busy_s, ready_s)
        head_s = start_s + self.alpha_s
        if head_s < into.free_s or start_s > ready_s:
            return sent_s, into.book(head_s, busy_s, ready_s)
        # All later heads come later, so the gap before this one is of no use.
        into.free_s = arrival_s = head_s + busy_s
        return sent_s, arrival_s


class Routed:
    """A path over wires that other messages share, each busy with one at a time: see `simdist.cluster.route`.

    The head of a message goes on while its tail is still coming, so that alone it takes alpha + n * beta on any number
    of wires. Where it has to wait for a wire, those behind it are free meanwhile.

    Args:
        wires: in order.
        alpha_s, beta_s, stretch: as of `Path`.
    """

    __slots__ = ("_arrival_s", "_stretch", "_wires", "alpha_s", "beta_s")

    def __init__(
        self, wires: Sequence[Port], alpha_s: float, beta_s: float, stretch: Callable[[], float] | None
    ) -> None:
        self._wires = wires
        self._stretch = stretch
        self._arrival_s = 0.0
        self.alpha_s = alpha_s
        self.beta_s = beta_s

    def carry(self, num_bytes: int, ready_s: float) -> tuple[float, float]:
        """As of `Path`: returns (when the first wire is done, when all bytes have arrived)."""
        busy_s = num_bytes * self.beta_s
        end_s = sent_s = self._wires[0].book(ready_s, busy_s, ready_s)
        for wire in self._wires[1:]:
            end_s = wire.book(end_s - busy_s, busy_s, ready_s)
        latency_s = self.alpha_s * self._stretch() if self._stretch is not None else self.alpha_s
        self._arrival_s = max(self._arrival_s, end_s + latency_s)  # no message overtakes another of its path
        return sent_s, self._arrival_s


class Network:
    """The ports of a cluster's devices and network cards, and the paths between them.

    Args:
        cluster: what to model.
        ranks: how many devices are in use; device i is global rank i.
    """

    def __init__(self, cluster: Cluster, ranks: int) -> None:
        self.cluster = cluster
        self._out = [Port() for _ in range(ranks)]
        self._into = [Port() for _ in range(ranks)]
        nodes = cluster.node_of(ranks - 1) + 1
        self._nic_ports = [[(Port(), Port()) for _ in range(cluster.nics_per_node)] for _ in range(nodes)]
        self._per_node = cluster.devices_per_node
        # (alpha, beta) of a message within a node, between nodes, and from a rank to itself.
        self._inside = cluster.inside.latency_s, 1 / cluster.inside.bytes_per_s
        self._between = cluster.between.latency_s, 1 / cluster.between.bytes_per_s
        self._copy = 0.0, 2 / cluster.device.reached_bytes_per_s  # it reads and writes
        self._copies = [Port() for _ in range(ranks)]
        self._sent = [0] * ranks
        self._wires: dict[Hashable, Port] = {}

    def path(self, src: int, dst: int) -> Path | Routed:
        """The path from global rank src to dst; from a rank to itself it is a copy in the device's memory."""
        jitter, per_node = self.cluster.jitter, self._per_node
        stretch = (lambda: 1 + jitter * self._noise(src)) if jitter else None
        if src == dst:
            return Path(self._copies[src], Port(), *self._copy)
        if src // per_node == dst // per_node:
            return Path(self._out[src], self._into[dst], *self._inside, stretch)
        if self.cluster.route is not None:
            return Routed(self._routed(self.cluster.route(src, dst), src, dst), *self._between, stretch)
        return Path(self._nic(src)[0], self._nic(dst)[1], *self._between, stretch)

    def _routed(self, names: Sequence[Hashable], src: int, dst: int) -> list[Port]:
        """The wires of these names."""
        if not names:
            raise ArgumentError(f"the route of {self.cluster.name} from rank {src} to {dst} is {names!r}; needs a wire")
        return [self._wires.setdefault(name, Port()) for name in names]

    def _nic(self, rank: int) -> tuple[Port, Port]:
        """The network card of a rank, which others of its node may share."""
        cluster = self.cluster
        return self._nic_ports[cluster.node_of(rank)][rank % cluster.devices_per_node % cluster.nics_per_node]

    def _noise(self, src: int) -> float:
        """A number in [0, 1) that depends on the seed, the sender and how much it has sent."""
        self._sent[src] += 1
        z = _mixed(_mixed(self.cluster.seed) + src) + self._sent[src]
        return (_mixed(z) >> 11) / (1 << 53)


def _mixed(z: int) -> int:
    """The 64 bits of splitmix64 (Steele, Lea, Flood 2014) for this state: numbers in sequence look independent."""
    z = z * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31
