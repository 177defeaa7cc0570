"""Cluster: nodes of devices, and the links inside and between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from numbers import Integral
from typing import Any

from simdist.cluster.device import Device
from simdist.cluster.host import Host
from simdist.cluster.limits import check_least, fulfils
from simdist.cluster.link import Link
from simdist.cluster.route import Route, Torus
from simdist.cluster.tuned import Tuned
from simdist.errors import ArgumentError, as_declared, require_kind, require_known, require_takes, require_whole
from simdist.words import counted

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """A machine as the virtual world's clock and `auto` see it.

         node 0                      node 1
         [0]--[1]--[2]--[3]          [4]--[5]--[6]--[7]       --  inside: a port out and a port in per device
          |    |    |    |            |    |    |    |
         nic  nic  nic  nic          nic  nic  nic  nic       |   nics_per_node, shared by the node's devices
          +====+====+====+============+====+====+====+        =   between: latency and bandwidth of one NIC

    Ranks fill the nodes in order. A device's traffic between nodes goes through NIC number
    (local rank) mod nics_per_node, so with nics_per_node=1 all devices of a node share one NIC.

    Args:
        inside: the link between two devices of a node.
        between: the link between two nodes, of one NIC.
        eager_bytes: a message up to this size leaves its sender at once; a larger one waits until its
            receiver has posted a receive, as in MPI. 0 makes all sends wait, except empty ones and those to oneself.
        jitter: each message's latency is multiplied by a seeded random factor between 1 and 1 + jitter.
        slow: rank -> factor by which its computation is slower.
        seed: of the jitter, from 0 to 2**32 - 1.
        host: a device's share of its node's memory and disks; if not given, transfers to it take no time.
        one_memory: whether the devices of a node share one memory, as cores do: then a peer's data are read as fast
            as a device's own. Otherwise they come over the link `inside`.
        tuned: which algorithms were measured to be fastest, if known.
        route: the wires that messages between nodes share, each like `between`, instead of cards: of a torus, or any
            network: see `simdist.cluster.route`. Only virtual runs know them.

    Raises:
        ArgumentError: a number is outside its limits, or a part of another kind; the message names it.
    """

    name: str
    device: Device
    inside: Link
    between: Link
    devices_per_node: int = 8
    nics_per_node: int = 1
    eager_bytes: int = 65536
    jitter: float = 0.0
    slow: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    host: Host = field(default=Host(inf, inf, inf))
    one_memory: bool = False
    tuned: Tuned | None = None
    route: Route | None = None

    def __post_init__(self) -> None:
        for name, kind in {"device": Device, "inside": Link, "between": Link, "host": Host}.items():
            require_kind(name, getattr(self, name), kind)
        if self.tuned is not None:
            require_kind("tuned", self.tuned, Tuned)
        if self.route is not None:
            require_takes("the route", self.route, "src", "dst")
        if isinstance(self.route, Torus) and self.devices_per_node > 1:
            raise ArgumentError(f"devices_per_node is {self.devices_per_node}; on a torus each host has one device")
        require_whole("devices_per_node", self.devices_per_node, 1)
        require_whole("nics_per_node", self.nics_per_node, 1)
        require_whole("seed", self.seed, 0)
        if self.seed >= 1 << 32:  # larger ones would have the jitter of smaller ones
            raise ArgumentError(f"seed is {self.seed}; needs less than 2**32")
        check_least(self, 0, "eager_bytes", "jitter")
        if not isinstance(self.slow, Mapping) or not all(isinstance(r, Integral) and r >= 0 for r in self.slow):
            raise ArgumentError(f"slow is {self.slow!r}; needs a factor by rank, such as {{2: 4.0}}")
        for rank, factor in self.slow.items():
            if not fulfils(factor, lambda x: 0 < x < inf):
                raise ArgumentError(
                    f"rank {rank} cannot be slow by the factor {factor!r}; needs more than 0, and finite"
                )

    def __repr__(self) -> str:
        def of(link: Link) -> str:
            return f"{link.bytes_per_s / 1e9:,.4g} GB/s after {link.latency_s * 1e6:,.4g} µs"

        nodes = f"nodes of {counted(self.devices_per_node, 'device')} ({self.device.name})"
        more = {name: getattr(self, name) for name in ("jitter", "slow") if getattr(self, name)}
        told = "".join(f", {name} {value}" for name, value in more.items())
        told += ", whose wires messages share" if self.route is not None else ""
        return f"<cluster {self.name}: {nodes}, inside {of(self.inside)}, between {of(self.between)}{told}>"

    def node_of(self, rank: int) -> int:
        """The node that a global rank lives on."""
        return rank // self.devices_per_node

    @as_declared
    def link(self, ranks: int) -> Link:
        """The slowest link that a job on `ranks` ranks has to cross."""
        return self.inside if ranks <= self.devices_per_node else self.between

    def link_between(self, senders: int) -> Link:
        """One rank's share of the link between nodes while this many ranks of its node send at once."""
        return self.between.among(senders, self.nics_per_node)

    def seconds(self, rank: int, flops: float, num_bytes: float) -> float:
        """How long `rank` computes for this many operations on this many bytes."""
        return self.device.seconds(flops, num_bytes) * self.slow.get(rank, 1.0)

    def computing_in(self, dtype: Any) -> "Cluster":
        """This cluster as seen by a program that multiplies matrices of this dtype."""
        return self.with_(device=self.device.computing_in(dtype))

    def with_(self, **changes: Any) -> "Cluster":
        """This cluster with some of its fields changed.

        Raises:
            UnknownNameError: it has no such field.
        """
        known = [each.name for each in fields(self)]
        for name in changes:
            require_known("field of a cluster", name, known)
        return replace(self, **changes)
