from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.asynchronous import graphs
from simdist.asynchronous.graphs import (
    Graph,
    bipartite,
    complete,
    exponential,
    graph,
    grid,
    hypercube,
    line,
    ring,
    star,
    torus,
)
from simdist.asynchronous.mixing import metropolis
from simdist.errors import ArgumentError, UnknownNameError

SIZES = [1, 2, 3, 5, 8, 16]


@pytest.mark.parametrize("p", SIZES)
def test_a_ring(p):
    assert [set(others) for others in ring(p).neighbours] == [{(r - 1) % p, (r + 1) % p} - {r} for r in range(p)]
    assert len(ring(p).edges) == (p if p > 2 else p - 1)


@pytest.mark.parametrize("d", range(5))
def test_a_hypercube_whose_spectral_gap_is_known(d):
    cube = hypercube(2**d)
    assert [cube.degree(r) for r in range(2**d)] == [d] * 2**d
    assert metropolis(cube).spectral_gap == pytest.approx(2 / (d + 1) if d > 1 else 1)
    assert cube.reach(0) == d


@pytest.mark.parametrize("p", [0, 3, 12])
def test_a_hypercube_of_no_power_of_two(p):
    with pytest.raises(ArgumentError, match="needs a power of two"):
        hypercube(p)


@pytest.mark.parametrize("p", SIZES)
def test_lines_and_stars(p):
    assert line(p) == grid(1, p) == grid(p, 1)
    assert line(p).edges == [(i, i + 1) for i in range(p - 1)]
    assert star(p).edges == [(0, i) for i in range(1, p)]
    assert line(p).reach(0) == p - 1


def test_a_grid():
    assert grid(3, 4).neighbours[0] == (1, 4)
    assert grid(3, 4).neighbours[6] == (2, 5, 7, 10)
    assert graph("grid", 12) == grid(3, 4)
    with pytest.raises(ArgumentError, match="grid of 0 x 4"):
        grid(0, 4)


def test_a_torus():
    assert torus(3, 4).neighbours[0] == (1, 3, 4, 8)
    assert torus(3, 4).neighbours[6] == (2, 5, 7, 10)
    assert torus(2, 2) == ring(4).__class__.of(4, [(0, 1), (1, 3), (3, 2), (2, 0)])
    assert torus(1, 5) == torus(5, 1) == ring(5)
    assert torus(1, 1).neighbours == ((),)


def test_an_exponential_graph():
    assert exponential(8).neighbours[0] == (1, 2, 4, 6, 7)
    assert exponential(5) == complete(5)
    assert [exponential(2**k).degree(0) for k in range(6)] == [0, 1, 3, 5, 7, 9]
    assert exponential(1).edges == []


@pytest.mark.parametrize("p", SIZES)
def test_a_complete_graph(p):
    assert complete(p).neighbours == tuple(tuple(j for j in range(p) if j != i) for i in range(p))


@pytest.mark.parametrize("p", SIZES)
def test_even_beside_odd(p):
    graph = bipartite(p)
    assert graph.sides() == [r % 2 for r in range(p)]
    assert len(graph.edges) == (p // 2) * ((p + 1) // 2)


@pytest.mark.parametrize(
    ("graph", "steps"),
    [(ring(9), 4), (line(9), 8), (grid(4, 5), 7), (torus(4, 6), 5), (hypercube(64), 6), (star(9), 2), (complete(9), 1)],
)
def test_the_diameters_of_the_closed_forms(graph, steps):
    assert graph.diameter == steps


@pytest.mark.parametrize("graph", [ring(8), torus(4, 6), torus(1, 2), exponential(2), Graph.of(5, [(0, 4), (1, 2)])])
def test_sides(graph):
    sides = graph.sides()
    assert all(sides[i] != sides[j] for i, j in graph.edges)
    assert sides[0] == 0


@pytest.mark.parametrize("graph", [ring(5), torus(3, 4), exponential(8), complete(3)])
def test_an_odd_cycle_has_no_sides(graph):
    with pytest.raises(ArgumentError, match="not bipartite: edge .* cycle of odd length"):
        graph.sides()


EDGES = st.integers(1, 9).flatmap(
    lambda p: st.tuples(
        st.just(p),
        st.lists(st.tuples(st.integers(0, p - 1), st.integers(0, p - 1)).filter(lambda e: e[0] != e[1]), max_size=12),
    )
)


@given(EDGES)
@settings(max_examples=200)
def test_any_graph_is_as_networkx_finds_it(drawn):
    networkx = pytest.importorskip("networkx")
    p, edges = drawn
    theirs, ours = networkx.Graph(), Graph.of(p, edges)
    theirs.add_nodes_from(range(p))
    theirs.add_edges_from(edges)
    assert set(ours.edges) == {tuple(sorted(edge)) for edge in theirs.edges}
    assert [ours.degree(r) for r in range(p)] == [theirs.degree(r) for r in range(p)]
    assert ours.connected == networkx.is_connected(theirs)
    parts = [theirs.subgraph(part) for part in networkx.connected_components(theirs)]
    assert ours.diameter == max(map(networkx.diameter, parts))
    if networkx.is_bipartite(theirs):
        assert all(ours.sides()[i] != ours.sides()[j] for i, j in ours.edges)
    else:
        with pytest.raises(ArgumentError, match="odd|bipartite"):
            ours.sides()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.of(3, [(0, 0)]), r"edge \(0, 0\)"),
        (lambda: Graph.of(3, [(0, 3)]), r"edge \(0, 3\): needs two different ranks of 0 to 2"),
        (lambda: Graph.of(0, []), "a graph of 0 ranks"),
        (lambda: Graph(()), "a graph of 0 ranks"),
        (lambda: torus(0, 3), "0 x 3"),
        (lambda: graph("torus", 0), "ranks is 0; needs at least 1"),
        (lambda: graph("torus", 2.5), "ranks is 2.5; needs a whole number of at least 1"),
        (lambda: graph("torus", -1), "ranks is -1"),
        (
            lambda: Graph(((1,), (2,), (0,))),
            r"rank 0 has neighbours \[1\], and is a neighbour of \[2\]; needs the same",
        ),
        (lambda: Graph(((1,), (0, -1))), r"edge \(1, -1\)"),
        (lambda: Graph(((0,),)), r"edge \(0, 0\)"),
    ],
)
def test_what_is_no_graph(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_neighbours_may_be_named_in_any_order_and_twice():
    assert Graph([[2, 1, 2], {0}, [0]]) == Graph(((1, 2), (0,), (0,)))


def test_graphs_by_name():
    every = ["ring", "torus", "exponential", "hypercube", "line", "grid", "star", "complete", "bipartite"]
    assert graphs.graphs() == every
    assert graph("ring", 5) == ring(5)
    assert [graph("torus", p) for p in (6, 7, 9)] == [torus(2, 3), torus(1, 7), torus(3, 3)]
    with pytest.raises(UnknownNameError, match="unknown graph 'rign'; did you mean 'ring'"):
        graph("rign", 3)


def test_a_graph_of_ones_own(monkeypatch):
    monkeypatch.setattr(graphs, "_MAKERS", deepcopy(graphs._MAKERS))

    @graphs.named("ladder")
    def ladder(ranks):
        return Graph.of(ranks, [(r, r + k) for k in (1, 2) for r in range(ranks - k)])

    assert graphs.graphs()[-1] == "ladder"
    assert graph("ladder", 4).neighbours == ((1, 2), (0, 2, 3), (0, 1, 3), (1, 2))


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda ranks: [(0, 1)], "what makes graph mine returns a list; needs a Graph"),
        (lambda ranks: ring(ranks + 1), "graph mine has 5 ranks; needs 4"),
        (lambda ranks: Graph.of(ranks, [(0, 1), (2, 3)]), "graph mine on 4 ranks is disconnected; needs a path"),
    ],
)
def test_what_is_none_of_ones_own(make, fault, monkeypatch):
    monkeypatch.setattr(graphs, "_MAKERS", deepcopy(graphs._MAKERS))
    graphs.named("mine")(make)
    with pytest.raises(ArgumentError, match=fault):
        graph("mine", 4)
