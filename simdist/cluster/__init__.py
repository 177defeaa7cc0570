"""Models of machines: devices, links, clusters, and the arrival times of messages; the sizes of networks."""

from simdist.cluster.calibration import calibrated
from simdist.cluster.cluster import Cluster
from simdist.cluster.device import Device
from simdist.cluster.file import as_toml, find_cluster, read_cluster
from simdist.cluster.host import Host
from simdist.cluster.link import Link
from simdist.cluster.nccl import nccl_link
from simdist.cluster.network import Network, Path, Routed
from simdist.cluster.presets import add_preset, preset, presets
from simdist.cluster.route import Route, Torus, torus_route
from simdist.cluster.topologies import Topology, dragonfly, fat_tree, hyperx, slim_fly, torus
from simdist.cluster.tuned import Pick, Tuned

__all__ = [
    "Cluster",
    "Device",
    "Host",
    "Link",
    "Network",
    "Path",
    "Pick",
    "Route",
    "Routed",
    "Topology",
    "Torus",
    "Tuned",
    "add_preset",
    "as_toml",
    "calibrated",
    "dragonfly",
    "fat_tree",
    "find_cluster",
    "hyperx",
    "nccl_link",
    "preset",
    "presets",
    "read_cluster",
    "slim_fly",
    "torus",
    "torus_route",
]
