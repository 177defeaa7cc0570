import numpy as np
import pytest

import simdist as sd
from simdist.cluster import Link, nccl_link, preset
from simdist.collectives import all_reduce, formula
from simdist.errors import UnknownNameError

PROTOCOLS = "simple", "ll", "ll128"


def test_are_those_of_the_paper():
    link = Link(3e-6, 450e9)
    found = [nccl_link(link, name) for name in PROTOCOLS]
    assert [each.latency_s for each in found] == [6e-6, 1e-6, 2e-6]
    assert [each.bytes_per_s for each in found] == [450e9, 225e9, 421.875e9]
    assert nccl_link(link, "LL128") == found[2]
    with pytest.raises(UnknownNameError, match="unknown protocol 'll64'"):
        nccl_link(link, "ll64")


def seconds(protocol, num_bytes):
    """Of a ring all-reduce on a node, by the paper's formula."""
    cluster = preset("h100")
    cluster = cluster.with_(inside=nccl_link(cluster.inside, protocol))
    return formula("all_reduce", "ring", ranks=8, num_bytes=num_bytes).on(cluster, 8)


@pytest.mark.parametrize(("num_bytes", "best"), [(1 << 10, "ll"), (1 << 23, "ll128"), (1 << 30, "simple")])
def test_each_has_its_sizes(num_bytes, best):
    assert min(PROTOCOLS, key=lambda protocol: seconds(protocol, num_bytes)) == best


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("length", [8, 1 << 17])
def test_virtual_ranks_take_as_long(protocol, length):
    cluster = preset("h100")
    cluster = cluster.with_(inside=nccl_link(cluster.inside, protocol), eager_bytes=1 << 30)

    def program(comm):
        all_reduce(np.ones(length), comm, algorithm="ring")

    assert sd.run(program, 8, cluster=cluster).elapsed_s == pytest.approx(seconds(protocol, 8 * length), rel=1e-9)
