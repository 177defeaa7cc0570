import pytest

from simdist.cluster import Host, preset
from simdist.errors import ArgumentError, UnknownNameError

HOST = Host(link_bytes_per_s=4.0, memory_bytes_per_s=8.0, disk_bytes_per_s=2.0)


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [("device", "host", 2), ("host", "device", 2), ("host", "disk", 4), ("device", "disk", 4), ("disk", "disk", 0)],
)
def test_the_slowest_part_of_the_way_decides(start, end, seconds):
    assert HOST.seconds(8, start, end) == seconds


def test_what_is_wrong_is_named():
    with pytest.raises(UnknownNameError, match="unknown place 'cpu'"):
        HOST.seconds(1, "device", "cpu")
    with pytest.raises(ArgumentError, match="disk_bytes_per_s is 0"):
        Host(1.0, 1.0, 0.0)


def test_pcie_is_between_the_memories():
    for name in ("v100", "a100", "h100"):
        cluster = preset(name)
        assert cluster.host.link_bytes_per_s < cluster.inside.bytes_per_s < cluster.device.memory_bytes_per_s
        assert cluster.host.disk_bytes_per_s < cluster.host.link_bytes_per_s
