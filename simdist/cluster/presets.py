"""Presets: clusters by name."""

from math import inf

from simdist.cluster.cluster import Cluster
from simdist.cluster.device import Device
from simdist.cluster.host import Host
from simdist.cluster.link import Link
from simdist.errors import ArgumentError, unknown_name
from simdist.registry import Registry
from simdist.words import meant

__all__ = ["add_preset", "preset", "presets"]

_GB = 1e9
_TFLOP = 1e12
_RATES = ("float64_flops_per_s", "float32_flops_per_s", "flops_per_s", "float8_flops_per_s", "float4_flops_per_s")

# Latencies are those of a message between GPUs as seen by a program: a few microseconds over NVLink,
# somewhat more over InfiniBand. Makers publish NVLink's bandwidth for both directions together; a link
# has half of it each way.
_NVLINK_S, _INFINIBAND_S = 3e-6, 5e-6
_ICI_S, _DATA_CENTRE_S = 1e-6, 1e-5  # of a TPU's hop to a neighbour, and of one between pods


def _dgx(
    name: str,
    tflops: tuple[float, ...],
    memory_gb_per_s: float,
    memory_gb: float,
    nvlink_gb_per_s: float,
    nic_gb_per_s: float,
    nics: int,
    host: Host,
    gpus: int = 8,
) -> Cluster:
    """Nodes of GPUs on NVLink, each node with `nics` network cards; rates of numbers of 64, 32, 16, 8 and 4 bits."""
    rates = {name: rate * _TFLOP for name, rate in zip(_RATES, tflops, strict=False)}  # of four bits not all have one
    return Cluster(
        name=name,
        device=Device(name.upper(), memory_bytes_per_s=memory_gb_per_s * _GB, memory_bytes=memory_gb * _GB, **rates),
        inside=Link(_NVLINK_S, nvlink_gb_per_s / 2 * _GB),
        between=Link(_INFINIBAND_S, nic_gb_per_s * _GB),
        devices_per_node=gpus,
        nics_per_node=nics,
        host=host,
    )


def _pod(
    version: str,
    tflops: float,
    memory_gb_per_s: float,
    memory_gb: float,
    ici_gb_per_s: float,
    network_gb_per_s: float,
    chips: int,
    byte_tflops: float = 0,
    pcie_gb_per_s: float = 16,
) -> Cluster:
    """A pod of TPUs as one node; its chips have a share each of the network between pods."""
    return Cluster(
        name=f"tpu-{version}",
        device=Device(
            f"TPU {version}",
            tflops * _TFLOP,
            memory_gb_per_s * _GB,
            memory_gb * _GB,
            float8_flops_per_s=byte_tflops * _TFLOP,
        ),
        inside=Link(_ICI_S, ici_gb_per_s / 2 * _GB),
        between=Link(_DATA_CENTRE_S, network_gb_per_s * _GB),
        devices_per_node=chips,
        nics_per_node=chips,
        host=Host(pcie_gb_per_s * _GB, 51.2 * _GB, 3 * _GB),  # its memory and drives as of DGX A100, in round figures
    )


# A device's own 16 lanes of PCIe 3, 4 or 5; its eighth of the memory of two processors, DDR4-2133 on four channels
# each, DDR4-3200 on eight, DDR5-4800 on eight or twelve; and of the data drives, four by SATA, four or eight by NVMe.
# By NVLink two GPUs share a Grace processor, and a GH200 has its own. Of the hosts of Gaudi 3 and Trainium2 little is
# published, so they are DGX H100's.
_DGX1 = Host(16 * _GB, 17 * _GB, 0.25 * _GB)
_DGX_A100 = Host(32 * _GB, 51.2 * _GB, 3 * _GB)
_DGX_H100 = Host(64 * _GB, 76.8 * _GB, 6 * _GB)
_EPYC = Host(64 * _GB, 115.2 * _GB, 6 * _GB)
_FRONTIER = Host(72 * _GB, 51.2 * _GB, 1 * _GB)  # of four cards on one processor: two links each, and two drives
_GRACE = Host(225 * _GB, 256 * _GB, 6 * _GB)
_OWN_GRACE = Host(450 * _GB, 512 * _GB, 6 * _GB)

_OWN = (
    # A core of an ordinary computer and messages through its memory, in round figures; `calibrated` measures.
    Cluster(
        name="this-machine",
        device=Device("one core", 5e10, 1.2e10, 4e9),
        inside=Link(2e-6, 5e9),
        between=Link(3e-5, 1e9),
        devices_per_node=1 << 20,
        host=Host(inf, 1.2e10, 1e9),  # the device's own memory
        one_memory=True,
    ),
    # NVIDIA's data sheets: dense rates of FP64 (on matrix units where it has such), of FP32 (not TF32, which rounds to
    # 19 bits), of BF16 (P100, V100: FP16), of FP8 (0 where there is none, which computes in 16 bits) and of FP4 where
    # there is, memory, NVLink both ways, one network card (of DGX-1 and DGX-2 100 Gb/s; of a node of four GH200, as in
    # Alps, 200). Of memory their GB are nearly GiB (nvidia-smi has 81,559 MiB of an H100's 80 GB), which leaves 7% for
    # what is not an array.
    _dgx("p100", (5.3, 10.6, 21.2, 0), 732, 16, 160, 12.5, nics=4, host=_DGX1),
    _dgx("v100", (7.8, 15.7, 125, 0), 900, 32, 300, 12.5, nics=4, host=_DGX1),
    _dgx("a100", (19.5, 19.5, 312, 0), 2039, 80, 600, 25, nics=8, host=_DGX_A100),
    _dgx("a100-40", (19.5, 19.5, 312, 0), 1555, 40, 600, 25, nics=8, host=_DGX_A100),
    _dgx("a800", (19.5, 19.5, 312, 0), 2039, 80, 400, 25, nics=8, host=_DGX_A100),
    _dgx("h100", (67, 67, 989.4, 1978.9), 3350, 80, 900, 50, nics=8, host=_DGX_H100),
    _dgx("h100-pcie", (51, 51, 756, 1513), 2000, 80, 600, 50, nics=2, host=_DGX_H100, gpus=2),  # a bridge
    _dgx("l40s", (1.43, 91.6, 362, 733), 864, 48, 64, 12.5, nics=4, host=_DGX_A100),  # on PCIe; AWS's g6e
    _dgx("h800", (1, 67, 989.4, 1978.9), 3350, 80, 400, 50, nics=8, host=_DGX_H100),
    _dgx("h200", (67, 67, 989, 1979), 4800, 141, 900, 50, nics=8, host=_DGX_H100),
    _dgx("gh200", (67, 67, 989.4, 1978.9), 4000, 96, 900, 25, nics=4, host=_OWN_GRACE, gpus=4),
    _dgx("h20", (1, 44, 148, 296), 4000, 96, 900, 50, nics=8, host=_DGX_H100),
    _dgx("b200", (37, 75, 2250, 4500, 9000), 8000, 180, 1800, 50, nics=8, host=_DGX_H100),
    _dgx("b300", (1.25, 75, 2250, 4500, 13_500), 8000, 270, 1800, 100, nics=8, host=_DGX_H100),
    _dgx("gb200", (40, 80, 2500, 5000, 10_000), 8000, 186, 1800, 50, nics=72, host=_GRACE, gpus=72),
    _dgx("gb300", (1.39, 80, 2500, 5000, 15_000), 8000, 279, 1800, 100, nics=72, host=_GRACE, gpus=72),
    # AMD's data sheets: rates of matrix units. Seven links of 128 GB/s, of MI355X 153.6, join a GPU to each of the
    # others; here they are one of 896 GB/s, as for collectives that use all seven at once. The nodes of MI250 and
    # MI250X are Frontier's: a card has two dies, which its programs see as GPUs of half of it, and six links of 100
    # GB/s to other cards.
    _dgx("mi250", (90.5, 90.5, 362.1, 0), 3276.8, 128, 600, 25, nics=4, host=_FRONTIER, gpus=4),
    _dgx("mi250x", (95.7, 95.7, 383, 0), 3276.8, 128, 600, 25, nics=4, host=_FRONTIER, gpus=4),
    _dgx("mi300x", (163.4, 163.4, 1307.4, 2614.9), 5300, 192, 896, 50, nics=8, host=_EPYC),
    _dgx("mi325x", (163.4, 163.4, 1307.4, 2614.9), 6000, 256, 896, 50, nics=8, host=_EPYC),
    _dgx("mi355x", (78.6, 157.3, 2516.6, 5033.2, 10_066.3), 8000, 288, 1075.2, 50, nics=8, host=_EPYC),
    # Intel's white paper on Gaudi 3 and its page on networks: 21 of a card's 24 ports lead to the others of its node,
    # three out. AWS's pages on Trainium2 and Trn2: 96 GiB, and four links of 256 GB/s to neighbours in a torus, one
    # here. Of float64 nothing is published, nor of float32 for Gaudi 3, so they have the rate of 16 bits.
    _dgx("gaudi3", (0, 0, 1835, 1835), 3670, 128, 1050, 75, nics=8, host=_DGX_H100),
    _dgx("trainium2", (0, 181, 667, 1299), 2900, 103.1, 1024, 25, nics=16, host=_DGX_H100, gpus=16),
    # Google's pages on each TPU: rates of BF16, to which float32 is rounded too (of float64 nothing is published, so it
    # has the same), and of FP8 where it is faster, memory, the ICI of a chip both ways; between pods and to the host,
    # "How to Scale Your Model" (Austin et al. 2025), chapter 2. The four or six links of a chip to its neighbours in a
    # torus are here one, as for collectives that use all of them at once. Of v3's links the page has the sum that an
    # all-reduce of a pod reaches, 340 TB/s; of its network and host nothing, so they are v5e's, as are v2's. The memory
    # and the four links of v2, 496 Gb/s each way, are those of Jouppi et al. 2020, CACM 63(7), 67-78.
    _pod("v2", 45, 700, 16, 496, 3.125, chips=256),
    _pod("v3", 123, 900, 32, 664, 3.125, chips=1024),
    _pod("v4", 275, 1200, 32, 600, 6.25, chips=4096),
    _pod("v5e", 197, 819, 16, 400, 3.125, chips=256),
    _pod("v5p", 459, 2765, 95, 1200, 6.25, chips=8960),
    _pod("v6e", 918, 1638, 32, 800, 12.5, chips=256, pcie_gb_per_s=32),
    _pod("7x", 2307, 7380, 192, 1200, 12.5, chips=9216, byte_tflops=4614),
)

_OTHER_NAMES = {
    other: name
    for name, others in {
        "p100": "p100-sxm2",
        "v100": "v100-sxm2 v100-32gb",
        "a100": "a100-80 a100-80gb a100-sxm a100-80-sxm a100-sxm4-80gb",
        "a100-40": "a100-40gb a100-sxm4-40gb",
        "h100": "h100-sxm h100-sxm5 h100-80gb",
        "h200": "h200-sxm",
        "gb200": "gb200-nvl72",
        "gb300": "gb300-nvl72",
        "trainium2": "trn2",
        "tpu-v5e": "tpu-v5-lite",  # as JAX calls it
        "tpu-v6e": "tpu-v6-lite trillium",
        "tpu-7x": "ironwood tpu-v7x tpu-v7",
    }.items()
    for other in others.split()
}

_PRESETS = Registry("cluster", _OTHER_NAMES, {each.name: each for each in _OWN})


def add_preset(cluster: Cluster) -> Cluster:
    """Register your own cluster, so that `preset(cluster.name)` and `--cluster` on the command line find it.
    It may be registered again, changed.

    Raises:
        ArgumentError: it is no Cluster, or has the name of one of simdist's, as a copy of one has.
    """
    if not isinstance(cluster, Cluster):
        raise ArgumentError(f"cluster is {cluster!r}; needs a Cluster")
    if _PRESETS.is_own(cluster.name):
        raise ArgumentError(f"name is {cluster.name}, a preset of simdist's; needs another, with_(name=…)")
    _PRESETS.register(cluster.name, cluster)
    return cluster


def presets() -> list[str]:
    """The names of all presets."""
    return list(_PRESETS)


def preset(name: str) -> Cluster:
    """The cluster of this name: 'this-machine'; nodes of eight P100, V100, A100 (of 80 or 40 GB), A800, H100, H800,
    H200, H20, L40S, B200, B300, MI300X, MI325X, MI355X or Gaudi 3, of four GH200, MI250 or MI250X, of 16 Trainium2, of
    72 GB200 or GB300 (NVL72), or of two H100 PCIe that a bridge joins; pods of TPU v2, v3, v4, v5e, v5p, v6e or 7x; in
    any spelling; or one registered with `add_preset`.

        device.flops_per_s            of dense products of 16-bit numbers
        device.memory_bytes_per_s     of HBM
        inside.bytes_per_s            of NVLink, ICI or the like each way: half of what its maker gives for both
        between.bytes_per_s           of one network card; there are nics_per_node, for devices_per_node

    Raises:
        UnknownNameError: there is no such preset.
    """
    found = meant(name, _PRESETS, _OTHER_NAMES)
    if found is None:
        raise unknown_name("cluster", name, _PRESETS)
    return _PRESETS[found]
