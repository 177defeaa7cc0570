from copy import deepcopy
from importlib import import_module

import ml_dtypes
import pytest

from simdist.cluster import add_preset, preset, presets
from simdist.errors import ArgumentError, UnknownNameError

# TFLOP/s dense of 8 (else of 16), 16, 32 and 64 bits, memory GB/s and GB, NVLink GB/s both ways, network GB/s a card,
# cards a node: the data sheets of NVIDIA, AMD and Intel, the pages of AWS and Google.
DTYPES = "float8_e4m3", "float16", "float32", "float64"
SHEETS = {
    "p100": ((21.2, 21.2, 10.6, 5.3), 732, 16, 160, 12.5, 4),
    "v100": ((125, 125, 15.7, 7.8), 900, 32, 300, 12.5, 4),
    "a100": ((312, 312, 19.5, 19.5), 2039, 80, 600, 25, 8),
    "a100-40": ((312, 312, 19.5, 19.5), 1555, 40, 600, 25, 8),
    "a800": ((312, 312, 19.5, 19.5), 2039, 80, 400, 25, 8),
    "h100": ((1978.9, 989.4, 67, 67), 3350, 80, 900, 50, 8),
    "h100-pcie": ((1513, 756, 51, 51), 2000, 80, 600, 50, 2),
    "l40s": ((733, 362, 91.6, 1.43), 864, 48, 64, 12.5, 4),
    "h800": ((1978.9, 989.4, 67, 1), 3350, 80, 400, 50, 8),
    "h200": ((1979, 989, 67, 67), 4800, 141, 900, 50, 8),
    "gh200": ((1978.9, 989.4, 67, 67), 4000, 96, 900, 25, 4),
    "h20": ((296, 148, 44, 1), 4000, 96, 900, 50, 8),
    "b200": ((4500, 2250, 75, 37), 8000, 180, 1800, 50, 8),
    "b300": ((4500, 2250, 75, 1.25), 8000, 270, 1800, 100, 8),
    "gb200": ((5000, 2500, 80, 40), 8000, 186, 1800, 50, 72),
    "gb300": ((5000, 2500, 80, 1.39), 8000, 279, 1800, 100, 72),
    "mi250": ((362.1, 362.1, 90.5, 90.5), 3276.8, 128, 600, 25, 4),
    "mi250x": ((383, 383, 95.7, 95.7), 3276.8, 128, 600, 25, 4),
    "mi300x": ((2614.9, 1307.4, 163.4, 163.4), 5300, 192, 896, 50, 8),
    "mi325x": ((2614.9, 1307.4, 163.4, 163.4), 6000, 256, 896, 50, 8),
    "mi355x": ((5033.2, 2516.6, 157.3, 78.6), 8000, 288, 1075.2, 50, 8),
    "gaudi3": ((1835,) * 4, 3670, 128, 1050, 75, 8),
    "trainium2": ((1299, 667, 181, 667), 2900, 103.1, 1024, 25, 16),
    "tpu-v2": ((45,) * 4, 700, 16, 496, 3.125, 256),
    "tpu-v3": ((123,) * 4, 900, 32, 664, 3.125, 1024),
    "tpu-v4": ((275,) * 4, 1200, 32, 600, 6.25, 4096),
    "tpu-v5e": ((197,) * 4, 819, 16, 400, 3.125, 256),
    "tpu-v5p": ((459,) * 4, 2765, 95, 1200, 6.25, 8960),
    "tpu-v6e": ((918,) * 4, 1638, 32, 800, 12.5, 256),
    "tpu-7x": ((4614, 2307, 2307, 2307), 7380, 192, 1200, 12.5, 9216),
}


def test_the_names():
    assert set(presets()) == {"this-machine", *SHEETS}


@pytest.mark.parametrize("name", SHEETS)
def test_are_the_data_sheets(name):
    cluster = preset(name)
    tflops, memory, room, nvlink, card, cards = SHEETS[name]
    devices = {"h100-pcie": 2, "gh200": 4, "mi250": 4, "mi250x": 4}.get(name, max(8, cards))
    assert (cluster.devices_per_node, cluster.nics_per_node) == (devices, cards)
    assert cluster.device.memory_bytes == pytest.approx(room * 1e9)
    rates = [cluster.computing_in(dtype).device.flops_per_s for dtype in DTYPES]
    assert rates == pytest.approx([rate * 1e12 for rate in tflops])
    assert cluster.device.memory_bytes_per_s == pytest.approx(memory * 1e9)
    assert cluster.inside.bytes_per_s == pytest.approx(nvlink * 1e9 / 2)  # a link has half of it each way
    assert cluster.between.bytes_per_s == pytest.approx(card * 1e9)


@pytest.mark.parametrize(
    ("name", "pflops", "bisection"),
    [
        ("tpu-v2", 11.5, 1.984),
        ("tpu-v3", 126, None),
        ("tpu-v4", 1126, None),
        ("tpu-v5e", 50.4, 1.6),
        ("tpu-v5p", 4113, None),
        ("tpu-v6e", 235, 3.2),
    ],
)
def test_a_pod_has_the_sums_that_google_gives(name, pflops, bisection):
    pod = preset(name)
    chips = pod.devices_per_node
    assert pod.device.flops_per_s * chips == pytest.approx(pflops * 1e15, rel=0.002)
    if bisection:  # in a torus of 16 x 16 chips with four links each, 32 links join the halves
        assert 32 * pod.inside.bytes_per_s / 4 == pytest.approx(bisection * 1e12)


@pytest.mark.parametrize(("name", "tb_per_s"), [("tpu-v3", 340), ("tpu-v5e", 51.2), ("tpu-v6e", 102.4)])
def test_a_pod_sums_as_fast_as_google_says(name, tb_per_s):
    pod = preset(name)
    assert pod.devices_per_node * pod.inside.bytes_per_s == pytest.approx(tb_per_s * 1e12, rel=0.001)


@pytest.mark.parametrize(
    ("name", "devices", "pflops_of_8_bits", "memory_tb", "memory_tb_per_s", "links_tb_per_s"),
    [
        ("b200", 8, 36, 1.44, 64, 14.4),
        ("gb200", 72, 360, 13.4, 576, 130),
        ("gb300", 72, 360, 20.1, 576, 130),
        ("mi300x", 8, 20.9, 1.5, 42.4, None),
        ("mi355x", 8, 40.3, 2.3, 64, None),
        ("trainium2", 16, 20.8, 1.65, 46.4, 16.4),
        ("tpu-7x", 9216, 42_500, 1770, None, None),
    ],
)
def test_sums_of_a_node_or_a_pod(name, devices, pflops_of_8_bits, memory_tb, memory_tb_per_s, links_tb_per_s):
    """DGX B200, GB200 and GB300 NVL72, AMD's platforms of eight, AWS's trn2.48xlarge, Ironwood: as on their makers'
    pages, not sparse.
    """
    cluster = preset(name).computing_in("float8_e4m3")
    device = cluster.device
    assert devices == cluster.devices_per_node
    assert devices * device.flops_per_s / 1e15 == pytest.approx(pflops_of_8_bits, rel=0.003)
    assert devices * device.memory_bytes / 1e12 == pytest.approx(memory_tb, rel=0.03)
    if memory_tb_per_s:
        assert devices * device.memory_bytes_per_s / 1e12 == pytest.approx(memory_tb_per_s)
    if links_tb_per_s:
        assert devices * 2 * cluster.inside.bytes_per_s / 1e12 == pytest.approx(links_tb_per_s, rel=0.005)


@pytest.mark.parametrize(
    ("name", "pflops"), [("b200", 72), ("b300", 108), ("gb200", 720), ("gb300", 1080), ("mi355x", 80.5), ("h100", None)]
)
def test_rates_of_4_bits(name, pflops):
    """Dense, of HGX B200 and B300, GB200 and GB300 NVL72, and AMD's platform of eight; others compute in 16 bits."""
    cluster = preset(name)
    for dtype in ("fp4", ml_dtypes.float4_e2m1fn):
        rate = cluster.computing_in(dtype).device.flops_per_s
        whole = cluster.devices_per_node * rate / 1e15
        assert whole == pytest.approx(pflops, rel=1e-3) if pflops else rate == cluster.device.flops_per_s


def test_rates_are_those_of_the_compute_units():
    """MI355X: 256 units at 2.4 GHz, 8192 operations of 8 bits a cycle; MI300X: 304 at 2.1 GHz, 4096. MI250X and MI250:
    220 and 208 at 1.7 GHz, 1024 of 16 bits.
    """
    for name, units, hertz, operations in (
        ("mi355x", 256, 2.4e9, 8192),
        ("mi300x", 304, 2.1e9, 4096),
        ("mi250x", 220, 1.7e9, 1024),
        ("mi250", 208, 1.7e9, 1024),
    ):
        device = preset(name).computing_in("float8_e4m3").device
        assert device.flops_per_s == pytest.approx(units * hertz * operations, rel=1e-4)


@pytest.mark.parametrize("name", ["this-machine", *SHEETS])
def test_the_way_out_of_a_node_is_the_slower_one(name):
    cluster = preset(name)
    assert cluster.inside.latency_s < cluster.between.latency_s
    assert cluster.inside.bytes_per_s > cluster.between.bytes_per_s


def test_a_cluster_of_ones_own(monkeypatch):
    module = import_module("simdist.cluster.presets")  # whose name in the package is that of its function
    monkeypatch.setattr(module, "_PRESETS", deepcopy(module._PRESETS))
    ours = add_preset(preset("h100").with_(name="ours", slow={3: 2.0}))
    assert preset("ours") is ours
    assert "ours" in presets()


def test_a_copy_does_not_take_the_place_of_what_it_is_a_copy_of():
    with pytest.raises(ArgumentError, match="name is h100, a preset of simdist's; needs another"):
        add_preset(preset("h100").with_(slow={3: 2.0}))
    with pytest.raises(ArgumentError, match="name is A100-80GB, a preset"):
        add_preset(preset("h100").with_(name="A100-80GB"))
    with pytest.raises(ArgumentError, match="cluster is 'h100'; needs a Cluster"):
        add_preset("h100")
    assert preset("h100").slow == {}


def test_one_of_ones_own_can_be_changed(monkeypatch):
    module = import_module("simdist.cluster.presets")
    monkeypatch.setattr(module, "_PRESETS", deepcopy(module._PRESETS))
    for factor in (2.0, 3.0):  # as a cell of a notebook is run again
        add_preset(preset("h100").with_(name="ours", slow={3: factor}))
    assert preset("ours").slow == {3: 3.0}


def test_an_unknown_name_is_told_with_the_nearest_or_all():
    with pytest.raises(UnknownNameError, match=r"unknown cluster 'h10'; did you mean 'h100'\?$"):
        preset("h10")
    with pytest.raises(UnknownNameError, match="unknown cluster 'cray'. There are: .* h800, l40s, mi250, .*, v100$"):
        preset("cray")


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("H100", "h100"),
        ("A100-80", "a100"),
        ("a100-80", "a100"),
        ("A100-80GB", "a100"),
        ("A100-40", "a100-40"),
        ("a100-40gb", "a100-40"),
        ("TPUv5e", "tpu-v5e"),
        ("TPU v4", "tpu-v4"),
        ("Trillium", "tpu-v6e"),
        ("TPU7x", "tpu-7x"),
        ("TPUv7x", "tpu-7x"),
        ("TPU v7", "tpu-7x"),
        ("TPU v5 lite", "tpu-v5e"),
        ("TPU v6 lite", "tpu-v6e"),
        ("P100-SXM2", "p100"),
        ("H100 SXM", "h100"),
        ("A100-80 SXM", "a100"),
        ("GB200 NVL72", "gb200"),
        ("GB300-NVL72", "gb300"),
        ("A100-SXM4-80GB", "a100"),
        ("H100 SXM5", "h100"),
        ("H100 PCIe", "h100-pcie"),
        ("V100-32GB", "v100"),
        ("Gaudi 3", "gaudi3"),
        ("Trainium 2", "trainium2"),
        ("Trn2", "trainium2"),
    ],
)
def test_names_as_makers_write_them(name, small):
    assert preset(name) is preset(small)


def test_no_other_card_has_a_kind_of_80_gb():
    with pytest.raises(UnknownNameError, match="unknown cluster 'V100-80'"):
        preset("V100-80")
