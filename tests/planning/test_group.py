"""Groups of ranks that nobody started, against those of a mesh, and their collectives against executed ones."""

from copy import deepcopy
from functools import lru_cache

import numpy as np
import pytest

import simdist as sd
from simdist import collectives
from simdist.arrays import phantom
from simdist.cluster import preset
from simdist.collectives import Formula, registry
from simdist.comm import Mesh
from simdist.planning.group import Group, members

SIZES = {"pp": 2, "dp": 3, "ep": 1, "sp": 2, "tp": 2}


def test_members_are_those_of_the_mesh():
    def program(comm):
        mesh = Mesh(comm, **SIZES)
        return {
            axes: tuple(mesh.group(*axes).ranks) for axes in (("dp",), ("tp", "pp"), ("sp",), (), ("pp", "dp", "tp"))
        }

    for axes, ranks in sd.run(program, 24).results[0].items():
        assert members(SIZES, *axes) == ranks


@pytest.mark.parametrize("machine", ["a100", "this-machine"])
@pytest.mark.parametrize(("devices_per_node", "rel"), [(4, 0.1), (16, 1e-3)], ids=["four nodes", "one node"])
@pytest.mark.parametrize("stride", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("all_reduce", lambda x, comm: collectives.all_reduce(x, comm)),
        ("reduce_scatter", lambda x, comm: collectives.reduce_scatter(x, comm)),
        ("all_gather", lambda x, comm: collectives.all_gather(x[: len(x) // comm.size], comm)),
    ],
)
def test_its_collectives_take_as_long_as_executed_ones(operation, call, stride, devices_per_node, rel, machine):
    """Ranks a stride apart, and so as many groups side by side, on nodes with two network cards."""
    cluster = preset(machine).with_(devices_per_node=devices_per_node, nics_per_node=2)

    def program(comm):
        group = comm.split(comm.rank % stride)
        comm.barrier()
        start_s = comm.clock()
        call(phantom(1 << 22, np.float64), group)
        return comm.clock() - start_s

    took_s = max(sd.run(program, 16, cluster=cluster).results)
    predicted_s = Group.slowest(cluster, range(0, 16, stride), range(stride)).seconds(operation, 8 << 22)
    assert predicted_s == pytest.approx(took_s, rel=rel)


@pytest.mark.parametrize(
    ("operation", "num_bytes", "call"),
    [
        ("reduce_scatter", 1 << 24, lambda comm: collectives.reduce_scatter(phantom(1 << 24, np.uint8), comm)),
        ("all_gather", 1 << 24, lambda comm: collectives.all_gather(phantom(1 << 21, np.uint8), comm)),
        ("all_to_all", 1 << 18, lambda comm: collectives.all_to_all(phantom((8, 1 << 15), np.uint8), comm)),
    ],
)
def test_nodes_are_counted_where_fewer_could_hold_the_ranks(operation, num_bytes, call):
    """Two, one, one, two, one, one: for four full nodes, formulas promised half of the time, and auto believed them."""
    cluster = preset("h100")

    def program(comm):
        group = comm.split(comm.rank % 6)
        comm.barrier()
        start_s = comm.clock()
        call(group)
        return comm.clock() - start_s if comm.rank % 6 == 0 else 0.0

    took_s = max(sd.run(program, 48, cluster=cluster).results)
    assert Group(cluster, tuple(range(0, 48, 6))).seconds(operation, num_bytes) == pytest.approx(took_s, rel=0.15)


def test_the_slowest_of_many_groups():
    """Of pairs on nodes of three devices every other one is in one node; of eights on nodes of six the second has four
    ranks on each of two, and so takes less than the first."""
    threes, sixes = (preset("h100").with_(devices_per_node=n) for n in (3, 6))
    assert Group.slowest(threes, range(2), range(0, 12, 2)) == Group(threes, (2, 3), at_once=1)
    assert Group.slowest(threes, (0, 3), range(3)) == Group(threes, (0, 3), at_once=3)
    assert Group.slowest(sixes, range(8), (0, 8)).ranks == tuple(range(8))


def test_of_one_there_is_nothing_to_wait_for():
    assert Group(preset("h100"), (3,)).seconds("all_reduce", 1 << 30) == 0


def test_groups_of_many_ranks_are_found_in_one_pass():
    """A pass over all nodes for each rank would take an hour."""
    group = Group.slowest(preset("h100"), range(1 << 18), [0])
    assert (len(group.ranks), group.nodes.num_nodes, group.at_once) == (1 << 18, 1 << 15, 1)


def test_times_are_found_anew_when_an_algorithm_is_registered(monkeypatch):
    monkeypatch.setattr(registry, "_ALGORITHMS", deepcopy(registry._ALGORITHMS))
    monkeypatch.setattr(registry, "_fastest", lru_cache(registry._fastest.__wrapped__))  # to be forgotten afterwards
    group = Group(preset("a100"), tuple(range(8)))
    ring = registry.find("all_reduce", "ring")
    before_s = group.seconds("all_reduce", 1 << 20)
    at_once = collectives.algorithm("all_reduce", "at-once", cost=ring.cost, formula=lambda case: Formula(0, 0))
    at_once(ring.run)
    assert group.seconds("all_reduce", 1 << 20) == 0 < before_s
