"""A cluster by a file: what is told, what is like another, and what is refused."""

from dataclasses import replace
from math import inf

import pytest

from simdist.cluster import Cluster, Device, Host, Link, as_toml, find_cluster, preset, presets, read_cluster
from simdist.errors import ArgumentError, DataError, UnknownNameError

WHOLE = """
name = "ours"
devices_per_node = 4
nics_per_node = 2
eager_bytes = 1000
jitter = 1
seed = 7
one_memory = true
slow = { 3 = 2, 10 = 1.5 }
device = { name = "card", flops_per_s = 1e12, memory_bytes_per_s = 2e11, memory_bytes = 16000000000 }
inside = { latency_s = 1e-6, bytes_per_s = 3e10 }
between = { latency_s = 0, bytes_per_s = 1e10 }
host = { link_bytes_per_s = inf, memory_bytes_per_s = 5e10, disk_bytes_per_s = 1e9 }
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "ours.toml"
        path.write_text(text)
        return str(path)

    return write


def test_all_of_it_can_be_told(written):
    assert find_cluster(written(WHOLE)) == Cluster(
        name="ours",
        device=Device("card", 1e12, 2e11, 1.6e10),
        inside=Link(1e-6, 3e10),
        between=Link(0.0, 1e10),
        devices_per_node=4,
        nics_per_node=2,
        eager_bytes=1000,
        jitter=1.0,
        slow={3: 2.0, 10: 1.5},
        seed=7,
        host=Host(inf, 5e10, 1e9),
        one_memory=True,
    )


def test_what_is_not_told_is_as_in_the_one_that_it_is_like(written):
    a100 = preset("a100")
    told = read_cluster(written('like = "a100"\n[device]\nflops_efficiency = 0.85\n[between]\nlatency_s = 1e-5\n'))
    device, between = replace(a100.device, flops_efficiency=0.85), replace(a100.between, latency_s=1e-5)
    assert told == a100.with_(name="ours", device=device, between=between)


@pytest.mark.parametrize("name", presets())
def test_there_and_back(written, name):
    for cluster in (preset(name), preset(name).with_(name='a "b" \\n ü😀\x7f', slow={0: 2, 7: 0.5}, jitter=1, seed=3)):
        assert read_cluster(written(as_toml(cluster))) == cluster


def test_a_mark_of_the_order_of_bytes_is_no_part_of_it(tmp_path):
    (tmp_path / "ours.toml").write_text('like = "a100"', encoding="utf-8-sig")
    assert read_cluster(tmp_path / "ours.toml") == preset("a100").with_(name="ours")


def test_a_name_is_that_of_a_preset():
    assert find_cluster("h100") == preset("h100")
    with pytest.raises(UnknownNameError, match="unknown cluster 'h10'; did you mean 'h100'"):
        find_cluster("h10")


@pytest.mark.parametrize("name", ["ours.json", "ours.yaml", "ours.yml"])
def test_a_cluster_file_of_another_format_is_told_which_it_needs(name):
    with pytest.raises(ArgumentError, match=f"cluster is '{name}'; a cluster's file is TOML, and its name"):
        find_cluster(name)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('like = "a10"', UnknownNameError, "unknown cluster 'a10'; did you mean 'a100'"),
        ('lik = "a100"', UnknownNameError, r"key in .*ours\.toml: 'lik'; did you mean 'like'"),
        ("tuned = 1", UnknownNameError, r"key in .*ours\.toml: 'tuned'"),
        ('like = "a100"\n[device]\nflop_per_s = 1', UnknownNameError, r"\[device\] in .*'flop_per_s'; did you mean"),
        ('like = "a100"\ndevice = 3', ArgumentError, r"device in .*ours\.toml is 3; needs a table"),
        ('like = "a100"\ndevices_per_node = 4.0', ArgumentError, "devices_per_node in .* is 4.0; needs a whole number"),
        ('like = "a100"\ndevices_per_node = true', ArgumentError, "devices_per_node in .* is True; needs a whole"),
        ('like = "a100"\ndevices_per_node = 0', ArgumentError, "devices_per_node is 0; needs at least 1"),
        ('like = "a100"\n[host]\ndisk_bytes_per_s = "9"', ArgumentError, r"\[host\] in .* is '9'; needs a number"),
        ('like = "a100"\n[device]\nmemory_efficiency = 1.5', ArgumentError, "memory_efficiency is 1.5; needs more"),
        ('like = "a100"\nslow = { a = 2.0 }', ArgumentError, r"slow in .* needs a factor by rank, such as { 2 = 4.0 }"),
        ('like = "a100"\nslow = { 1 = "a" }', ArgumentError, r"1 in slow in .* is 'a'; needs a number"),
        ('like = "a100"\nslow = { 1 = 0 }', ArgumentError, "rank 1 cannot be slow by the factor 0.0"),
        ('name = "x"', ArgumentError, r"ours\.toml needs device and inside and between, or else .* like = "),
        ("[device]\nflops_per_s = 1", ArgumentError, r"\[device\] in .* needs memory_bytes_per_s and memory_bytes, or"),
        (
            'like = "a100"\n[between]\nlatency_s = -1',
            ArgumentError,
            r"\[between\] in .*: latency_s is -1.0; needs at least 0",
        ),
        (
            'like = "a100"\n[inside]\nlatency_s = inf',
            ArgumentError,
            r"\[inside\] in .*: latency_s is inf; needs at least 0",
        ),
        ('like = "a100"\njitter = inf', ArgumentError, r"ours\.toml: jitter is inf; needs at least 0, and finite"),
        ('like = "a100"\nslow = { 1 = inf }', ArgumentError, "rank 1 cannot be slow by the factor inf"),
        ('like = "a100"\nslow = { 3 = 2.0, 03 = 4.0 }', ArgumentError, "needs a factor by rank"),
        (f'like = "a100"\nslow = {{ {"9" * 5000} = 2.0 }}', ArgumentError, "needs a factor by rank"),
        (f'like = "a100"\njitter = {"9" * 400}', ArgumentError, "jitter in .* is too large for a float"),
        ("like =", ArgumentError, r"the cluster file .*ours\.toml is not TOML"),
        ("[" * 5000, ArgumentError, r"the cluster file .*ours\.toml is not TOML"),
    ],
)
def test_what_cannot_be_is_told_by_name(written, text, error, message):
    with pytest.raises(error, match=message):
        read_cluster(written(text))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"cannot read the cluster file .*none\.toml: No such file"):
        find_cluster(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match=r"bytes\.toml is not TOML"):
        find_cluster(str(tmp_path / "bytes.toml"))
