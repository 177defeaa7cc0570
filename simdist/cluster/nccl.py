"""NCCL: its three protocols, which trade the bandwidth of a link for latency.

    protocol    a line on the wire                      data     latency    how a receiver knows that data have come
    simple      chunks of hundreds of KiB               all      6 us       memory fences around each chunk
    ll          8 bytes: 4 of data, 4 of a flag         1/2      1 us       the flag arrives with the data
    ll128       128 bytes: 120 of data, 8 of a flag     15/16    2 us       the same, 120 bytes at a time

Latencies are those of a hop, in round figures. LL is for short arrays, Simple for long ones, and LL128 for those
between, on links that store 128 bytes at once, as NVLink does.

Source: Hu et al. 2025, arXiv 2507.04786, table 1. It measures 25 to 50% of the peak for LL, and about 95% for LL128.
"""

from simdist.cluster.link import Link
from simdist.errors import as_declared, unknown_name
from simdist.words import meant

__all__ = ["nccl_link"]

_PROTOCOLS = {  # seconds a hop, and the share of the bytes that are data
    "simple": (6e-6, 1.0),
    "ll": (1e-6, 4 / 8),
    "ll128": (2e-6, 120 / 128),
}


@as_declared
def nccl_link(link: Link, protocol: str) -> Link:
    """A link as messages by one of NCCL's protocols find it: its latency, and the bandwidth left for data.

        cluster = preset("h100")
        cluster.with_(inside=nccl_link(cluster.inside, "ll128"))

    Args:
        link: its latency is replaced by the protocol's.
        protocol: "simple", "ll" or "ll128".

    Raises:
        UnknownNameError: there is no such protocol.
    """
    found = meant(protocol, _PROTOCOLS)
    if found is None:
        raise unknown_name("protocol", protocol, _PROTOCOLS)
    latency_s, data = _PROTOCOLS[found]
    return Link(latency_s, link.bytes_per_s * data)
