"""Network: when a message leaves and when it arrives, given everything sent before it."""

from simdist.cluster.cluster import Cluster

__all__ = ["Network"]

_MASK = (1 << 64) - 1


class Network:
    """The ports of a cluster's devices and NICs, each busy with one message at a time in each direction.

    A message of n bytes holds the sender's port for n * beta seconds from the moment it is free; its head
    arrives alpha later and holds the receiver's port for n * beta more:

        sender     |--wait--|== n*beta ==|                     (the port serves messages in order)
        wire                |-- alpha --|
        receiver                        |--wait--|== n*beta ==|

    Alone on an idle network it takes alpha + n * beta. Messages book their ports in the order of the calls
    to `transfer`; the virtual world calls it in the order of time.

    Args:
        cluster: what to model.
        ranks: how many devices are in use; device i is global rank i.
    """

    def __init__(self, cluster: Cluster, ranks: int) -> None:
        self.cluster = cluster
        nodes = cluster.node_of(ranks - 1) + 1
        # Ports 0 … ranks-1 are the devices'; after them come the NICs, node by node.
        self._out_free_s = [0.0] * (ranks + nodes * cluster.nics_per_node)
        self._in_free_s = list(self._out_free_s)
        self._node = [cluster.node_of(r) for r in range(ranks)]
        self._nic = [
            ranks + self._node[r] * cluster.nics_per_node + r % cluster.devices_per_node % cluster.nics_per_node
            for r in range(ranks)
        ]
        self._inside = cluster.inside.latency_s, 1 / cluster.inside.bytes_per_s
        self._between = cluster.between.latency_s, 1 / cluster.between.bytes_per_s
        self._on_device = 0.0, 2 / cluster.device.memory_bytes_per_s  # a copy reads and writes
        self._sent = [0] * ranks

    def transfer(self, src: int, dst: int, num_bytes: int, ready_s: float) -> tuple[float, float]:
        """Send num_bytes from src to dst, ready at ready_s: (when src's port is free again, when it is there).

        Args:
            src, dst: global ranks. A message to oneself is a copy in the device's memory.
        """
        node = self._node
        if node[src] != node[dst]:
            alpha_s, beta_s = self._between
            out, into = self._nic[src], self._nic[dst]
        else:
            alpha_s, beta_s = self._inside if src != dst else self._on_device
            out, into = src, dst
        if self.cluster.jitter:
            alpha_s *= 1 + self.cluster.jitter * self._noise(src)
        busy_s = num_bytes * beta_s
        out_free_s, in_free_s = self._out_free_s, self._in_free_s
        start_s = out_free_s[out]
        if start_s < ready_s:
            start_s = ready_s
        sent_s = out_free_s[out] = start_s + busy_s
        head_s = start_s + alpha_s
        if head_s < in_free_s[into]:
            head_s = in_free_s[into]
        arrival_s = in_free_s[into] = head_s + busy_s
        return sent_s, arrival_s

    def latency_s(self, src: int, dst: int) -> float:
        """How long an empty message takes from src to dst, without jitter."""
        if src == dst:
            return 0.0
        return (self._inside if self._node[src] == self._node[dst] else self._between)[0]

    def _noise(self, src: int) -> float:
        """A number in [0, 1) that depends on the seed, the sender and how much it has sent (splitmix64)."""
        self._sent[src] += 1
        z = ((self.cluster.seed << 32) + (src << 40) + self._sent[src]) * 0x9E3779B97F4A7C15 & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return ((z ^ z >> 31) >> 11) / (1 << 53)
