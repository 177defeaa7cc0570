"""What a cost or a formula is asked for."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from anatomy import seconds
from oracle import OPERATIONS, every_algorithm

from simdist.bench.measure import bus_bytes_per_s
from simdist.bench.trial import ROOTED
from simdist.cli import main
from simdist.cluster import preset
from simdist.collectives import algorithms, cost, formula, lower_bound
from simdist.collectives.cost import case_of
from simdist.collectives.registry import choose
from simdist.comm.placement import Placement
from simdist.errors import ArgumentError, UnknownNameError

both = pytest.mark.parametrize("count", [cost, formula])


@both
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranks": 0}, "ranks is 0; needs at least 1"),
        ({"ranks": 2.5}, "ranks is 2.5; needs a whole number"),
        ({"num_bytes": 8.5}, "num_bytes is 8.5; needs a whole number"),
        ({"num_bytes": float("nan")}, "num_bytes is nan; needs a whole number"),
        ({"num_bytes": float("inf")}, "num_bytes is inf; needs a whole number"),
        ({"rank": 4}, "rank 4 is not one of ranks 0 to 3"),
        ({"rank": 1.5}, "rank is 1.5; needs a whole number"),
        ({"root": 1.5}, "root is 1.5; needs a whole number"),
        ({"itemsize": 2.5}, "itemsize is 2.5; needs a whole number"),
        ({"ranks_per_node": 2.5}, "ranks_per_node is 2.5; needs a whole number"),
        ({"root": -1}, "root -1 is not one of ranks 0 to 3"),
        ({"itemsize": 3}, "8 bytes are no whole number of items of 3 bytes"),
        ({"num_bytes": -1}, "-1 bytes are no whole number"),
        ({"ranks_per_node": -2}, "ranks_per_node is -2; needs at least 0"),
    ],
)
def test_a_case_that_cannot_be(count, wrong, message):
    with pytest.raises(ArgumentError, match=message):
        count("all_reduce", "ring", **{"ranks": 4, "num_bytes": 8, **wrong})


@pytest.mark.parametrize(("operation", "name"), every_algorithm())
def test_sizes_may_be_written_as_people_do(operation, name):
    """And counts are whole numbers, whatever the sizes are."""
    if operation == "barrier":
        return
    for given in ({"ranks": 8.0, "num_bytes": 1e8}, {"ranks": np.int64(8), "num_bytes": np.float64(1e8)}):
        found = cost(operation, name, **given)
        assert found == cost(operation, name, ranks=8, num_bytes=10**8)
        assert {type(count) for count in found} == {int}
        assert formula(operation, name, **given) == formula(operation, name, ranks=8, num_bytes=10**8)


def test_all_numbers_of_a_case_may_be_written_so():
    floats = {"rank": 1.0, "root": 2.0, "itemsize": 4.0, "ranks_per_node": 2.0}
    found = cost("all_reduce", "multi_ring", ranks=5, num_bytes=44, **floats)
    assert found == cost("all_reduce", "multi_ring", ranks=5, num_bytes=44, **{k: int(v) for k, v in floats.items()})
    assert {type(count) for count in found} == {int}


def test_ranks_that_ask_alike_get_one_case():
    """Making one took half of the time of what `auto` does for each virtual rank."""
    case = case_of(Placement([0, 0, 1]), 8, True)
    assert case_of(Placement([3, 3, 5]), 8, True) is case
    assert case.ranks_per_node == 2 and case_of(Placement([0, 1, 1]), 8, True).first_lacks == 1


@both
@pytest.mark.parametrize("ranks_per_node", [0, 3])
@pytest.mark.parametrize(("operation", "name"), every_algorithm([each for each in OPERATIONS if each not in ROOTED]))
def test_a_root_changes_nothing_where_there_is_none(count, operation, name, ranks_per_node):
    """The cost of the all_reduce by a tree was that of a tree from there; it grows from rank 0."""
    for rank in range(8):
        case = {"ranks": 8, "num_bytes": 64, "rank": rank, "ranks_per_node": ranks_per_node}
        assert count(operation, name, root=3, **case) == count(operation, name, **case)


@both
def test_names_that_there_are_not(count):
    with pytest.raises(UnknownNameError, match="unknown option of all_reduce ring 'oder'; did you mean 'order'"):
        count("all_reduce", "ring", ranks=4, num_bytes=8, oder=[0, 1, 2, 3])
    with pytest.raises(UnknownNameError, match=re.escape("algorithm 'auto'. There are: bruck, direct")):
        count("all_gather", "auto", ranks=4, num_bytes=8)


@both
@pytest.mark.parametrize(
    ("operation", "given", "name"),
    [
        ("all_reduce", "Ring", "ring"),
        ("all_gather", "recursive-doubling", "recursive_doubling"),
        ("all_reduce", "double binary tree", "double_tree"),
        ("all_reduce", "halving-doubling", "rabenseifner"),
        ("all_reduce", "reduce_scatter_allgather", "rabenseifner"),
        ("all_reduce", "2D-torus", "torus"),
        ("broadcast", "scatter_ring_allgather", "scatter_all_gather"),
        ("all_reduce", "recursive halving-doubling", "rabenseifner"),
        ("all_reduce", "BlueConnect", "hierarchical"),
        ("broadcast", "van de Geijn", "scatter_all_gather"),
        ("broadcast", "pipeline", "chain"),
        ("reduce", "binomial tree", "binomial"),
        ("all_gather", "bucket", "ring"),
        ("all_gather", "brucks", "bruck"),
        ("all_to_all", "modified_bruck", "bruck"),
        ("all_to_all", "scattered", "linear"),
        ("broadcast", "basic_linear", "linear"),
        ("broadcast", "scatter_allgather_ring", "scatter_all_gather"),
        ("reduce_scatter", "bucket", "ring"),
    ],
)
def test_names_in_other_libraries_and_spellings(count, operation, given, name):
    assert count(operation, given, ranks=8, num_bytes=64) == count(operation, name, ranks=8, num_bytes=64)


@pytest.mark.parametrize(
    ("given", "operation"),
    [("AllReduce", "all_reduce"), ("MPI_Bcast", "broadcast"), ("MPI_Reduce_scatter", "reduce_scatter")],
)
def test_collectives_may_be_spelled_as_in_mpi_and_nccl(given, operation, capsys):
    sizes = {"ranks": 4, "num_bytes": 64}
    assert algorithms(given) == algorithms(operation)
    for count in (cost, formula):
        assert count(given, "direct", **sizes) == count(operation, "direct", **sizes)
    assert lower_bound(given, **sizes) == lower_bound(operation, **sizes)
    assert bus_bytes_per_s(given, 4, 64, 1.0) == bus_bytes_per_s(operation, 4, 64, 1.0)
    assert main(["verify", given, "--ranks", "2", "--algorithms", "direct"]) == 0
    assert f"\n{operation} " in capsys.readouterr().out
    with pytest.raises(UnknownNameError, match="unknown collective 'AllRotate'"):
        algorithms("AllRotate")


@pytest.mark.parametrize(("ranks", "steps"), [(2, 2), (8, 6), (64, 12)])
def test_halving_and_doubling_is_as_gloo_counts_it(ranks, steps):
    """2 lg P steps and 2S bytes, for large P."""
    found = cost("all_reduce", "halving_doubling", ranks=ranks, num_bytes=ranks << 10)
    assert (found.steps, found.sent_bytes) == (steps, 2 * (ranks - 1) << 10)


def test_a_cluster_may_be_given_by_its_name():
    told = formula("all_reduce", "ring", ranks=8, num_bytes=1 << 20)
    assert told.on("H100", 8) == told.on(preset("h100"), 8) > 0
    with pytest.raises(ArgumentError, match="cluster is 8; needs a Cluster, or a name such as 'h100'"):
        told.on(8, 8)


ALL_SEND = [
    ("all_reduce", "naive"),
    ("all_reduce", "rabenseifner"),
    ("all_reduce", "recursive_doubling"),
    ("all_reduce", "torus"),
    ("reduce_scatter", "pairwise"),
    ("reduce_scatter", "recursive_halving"),
    ("reduce_scatter", "recursive_doubling"),
    ("all_gather", "bruck"),
    ("all_gather", "recursive_doubling"),
    ("all_to_all", "bruck"),
    ("all_to_all", "linear"),
    ("all_to_all", "pairwise"),
]


@pytest.mark.parametrize("p", [8, 10, 16])
@pytest.mark.parametrize(("operation", "name"), ALL_SEND)
def test_all_ranks_that_send_share_the_card_of_their_node(operation, name, p):
    """Formulas once gave each its own, and were up to 3.5 times too short."""
    cluster, n = preset("this-machine").with_(devices_per_node=4), p * 1_000_000
    measured = seconds(operation, name, p, n, cluster=cluster)
    predicted = formula(operation, name, ranks=p, num_bytes=n, ranks_per_node=4).on(cluster, p)
    assert measured / 1.55 < predicted < measured * 1.55


NEAR_OR_FAR = [
    ("all_reduce", "rabenseifner"),
    ("all_reduce", "recursive_doubling"),
    ("all_reduce", "tree"),
    ("all_gather", "recursive_doubling"),
    ("reduce", "binomial"),
    ("reduce_scatter", "recursive_halving"),
    ("reduce_scatter", "recursive_doubling"),
]


@pytest.mark.parametrize("num_bytes", [160, 16_000_000])
@pytest.mark.parametrize("p", [8, 16])
@pytest.mark.parametrize(("operation", "name"), NEAR_OR_FAR)
def test_rounds_between_near_ranks_take_the_link_inside_their_node(operation, name, p, num_bytes):
    """All took the link between nodes, and trees on nodes of eight seemed three times as slow as they are."""
    cluster = preset("h100").with_(devices_per_node=4)
    root = {"root": 0} if operation == "reduce" else {}
    measured = seconds(operation, name, p, num_bytes, cluster=cluster, **root)
    predicted = formula(operation, name, ranks=p, num_bytes=num_bytes, ranks_per_node=4).on(cluster, p)
    assert predicted == pytest.approx(measured, rel=0.01)


def test_auto_takes_no_algorithm_in_which_all_share_the_card_of_their_node():
    """With Bruck's, which pays fewer latencies, ten ranks on nodes of four took 2.8 times as long."""
    cluster = preset("this-machine").with_(devices_per_node=4)
    ranks = SimpleNamespace(cluster=cluster, nodes=Placement(map(cluster.node_of, range(10))))
    assert choose("all_gather", ranks, 10_000_000).own.name == "ring"


@pytest.mark.parametrize("p", [2, 4, 7])
def test_loads_and_stores_of_an_all_reduce_in_shared_memory(p):
    """Of all ranks together: each message copied once, or in and out again; and the least there can be."""
    n = 840 * 1024

    def moved(name, *copies):
        every = [cost("all_reduce", name, ranks=p, num_bytes=n, rank=r, itemsize=4) for r in range(p)]
        return sum(each.memory_bytes(*copies) for each in every)

    assert moved("ring") == 7 * (p - 1) * n
    assert moved("ring", 2) == 11 * (p - 1) * n
    assert moved("direct") == 2 * p * n


@pytest.mark.parametrize(
    ("name", "p", "n", "microseconds"),
    [
        ("ring", 64, 1e8, 8997),
        ("recursive_doubling", 64, 1e8, 27030),
        ("rabenseifner", 64, 1e8, 8427),
        ("ring", 8, 1024, 70.1),
        ("recursive_doubling", 8, 1024, 15.1),
        ("rabenseifner", 8, 1024, 30.1),
    ],
)
def test_times_by_alpha_beta_and_gamma(name, p, n, microseconds):
    found = formula("all_reduce", name, ranks=p, num_bytes=n)
    assert found.at(alpha=5e-6, beta=1 / 25e9, gamma=1 / 200e9) == pytest.approx(microseconds * 1e-6, rel=3e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": -1e-6}, "alpha is -1e-06; needs at least 0"),
        ({"beta": float("nan")}, "beta is nan; needs at least 0"),
        ({"gamma": "fast"}, "gamma is 'fast'; needs a number"),
    ],
)
def test_no_time_by_impossible_alpha_beta_or_gamma(wrong, message):
    with pytest.raises(ArgumentError, match=message):
        formula("all_reduce", "ring", ranks=4, num_bytes=8).at(**{"alpha": 5e-6, "beta": 1e-9, **wrong})
