import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.asynchronous.graphs import Graph, complete, exponential, hypercube, line, ring, star, torus
from simdist.asynchronous.mixing import (
    Mixing,
    circulant,
    circulant_gap,
    mean_pairwise,
    metropolis,
    one_peer_exponential,
)
from simdist.errors import ArgumentError


@pytest.mark.parametrize("n", [3, 4, 5, 8, 16, 33])
def test_a_ring_has_the_eigenvalues_of_the_closed_form(n):
    expected = (1 + 2 * np.cos(2 * np.pi * np.arange(n) / n)) / 3
    mixing = metropolis(ring(n))
    np.testing.assert_allclose(mixing.eigenvalues, np.sort(expected)[::-1], atol=1e-13)
    rest = np.sort(expected)[:-1]
    assert mixing.contraction == pytest.approx(max(rest[-1], -rest[0]) ** 2, abs=1e-13)
    assert mixing.spectral_gap == pytest.approx(1 - max(abs(rest)), abs=1e-13)


@pytest.mark.parametrize("n", [4, 16, 64])
def test_other_graphs_have_the_gaps_of_their_closed_forms(n):
    """By Metropolis weights: λ₂ is 1 - 2/(lg n + 1), 1 - 1/n, (1 + 2 cos(π/n))/3 and (3 + 2 cos(2π/√n))/5."""
    side = round(n**0.5)
    assert metropolis(hypercube(n)).spectral_gap == pytest.approx(2 / n.bit_length())
    assert metropolis(star(n)).spectral_gap == pytest.approx(1 / n)
    assert metropolis(line(n)).spectral_gap == pytest.approx(2 / 3 * (1 - np.cos(np.pi / n)))
    if side > 2:
        assert metropolis(torus(side, side)).spectral_gap == pytest.approx(2 / 5 * (1 - np.cos(2 * np.pi / side)))


@pytest.mark.parametrize("n", [2, 4, 6, 8, 16, 20, 32, 64])
def test_the_static_exponential_graph_has_the_gap_of_its_paper(n):
    hops = [2**k for k in range((n - 1).bit_length())]
    assert circulant_gap(n, hops) == pytest.approx(2 / (1 + len(hops)), abs=1e-13)


@pytest.mark.parametrize("hops", [[1, -1], [0, 1, -1], [1, -1, 1]])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 16])
def test_of_a_ring_both_ways_the_gap_is_that_of_its_mixing(n, hops):
    """Also if the rank itself is among those that it hears, or one of them twice, as both neighbours of two ranks."""
    assert circulant_gap(n, hops) == pytest.approx(metropolis(ring(n)).spectral_gap, abs=1e-13)
    with pytest.raises(ArgumentError, match="size is 0; needs at least 1"):
        circulant_gap(0, [])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 8, 12])
def test_a_directed_mean_has_the_gap_of_its_formula(n):
    hops = [1 << k for k in range((n - 1).bit_length())]
    mixing = circulant(n, hops)
    assert (np.diff(np.abs(mixing.eigenvalues)) < 1e-12).all(), "the largest first"
    assert mixing.spectral_gap == pytest.approx(circulant_gap(n, hops), abs=1e-13)
    assert mixing.contraction == pytest.approx((1 - mixing.spectral_gap) ** 2, abs=1e-13)
    assert [sorted({(i + hop) % n for hop in hops} - {i}) for i in range(n)] == list(map(mixing.neighbours, range(n)))
    assert all(i in mixing.listeners(j) for i in range(n) for j in mixing.neighbours(i))
    assert mixing.graph == exponential(n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 33, 48, 64, 100, 129])
def test_one_peer_graphs_give_the_mean_exactly_if_and_only_if_n_is_a_power_of_two(n):
    turns = one_peer_exponential(n)
    assert len(turns) == max(1, (n - 1).bit_length())
    assert {len(mixing.neighbours(i)) for mixing in turns for i in range(n)} == {min(1, n - 1)}
    for first in range(len(turns)):  # whichever comes first
        product = np.eye(n)
        for mixing in turns[first:] + turns[:first]:
            product = mixing.weights @ product
        assert (product == 1 / n).all() == (n & (n - 1) == 0)
        assert np.linalg.norm(product - 1 / n, 2) <= 0.25 + 1e-12


def test_a_directed_mean_is_no_symmetric_one():
    with pytest.raises(ArgumentError, match="not symmetric"):
        Mixing(circulant(3, [1]).weights)
    with pytest.raises(ArgumentError, match="row 0 of the mixing matrix sums to 0.5; needs 1"):
        Mixing([[0.5, 0], [0, 1]], directed=True)
    with pytest.raises(ArgumentError, match="size is 0; needs at least 1"):
        one_peer_exponential(0)


def test_the_contraction_of_a_directed_mean_is_the_most_that_is_left():
    w = np.array([[0.5, 0.5, 0, 0], [0.1, 0.2, 0.7, 0], [0.4, 0, 0.3, 0.3], [0, 0.3, 0, 0.7]])
    mixing = Mixing(w, directed=True)
    x = np.random.default_rng(0).normal(size=(4, 5000))
    x -= x.mean(axis=0)
    left = ((w @ x) ** 2).sum(axis=0) / (x**2).sum(axis=0)
    assert 0.99 * mixing.contraction < left.max() <= mixing.contraction
    assert mixing.contraction > (1 - mixing.spectral_gap) ** 2 + 1e-3


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 5), (4, 6)])
def test_a_torus_has_the_eigenvalues_of_the_closed_form(rows, columns):
    wave = [2 * np.cos(2 * np.pi * np.arange(n) / n) for n in (rows, columns)]
    expected = np.sort((1 + wave[0][:, None] + wave[1]).ravel() / 5)[::-1]
    np.testing.assert_allclose(metropolis(torus(rows, columns)).eigenvalues, expected, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_on_a_complete_graph_it_is_the_mean(n):
    mixing = metropolis(complete(n))
    np.testing.assert_allclose(mixing.weights, np.full((n, n), 1 / n), rtol=1e-15)
    assert mixing.contraction == pytest.approx(0, abs=1e-28)


@pytest.mark.parametrize("n", [3, 4, 5, 16])
def test_pairs_drawn_at_random_leave_what_the_closed_forms_say(n):
    assert mean_pairwise(complete(n)).spectral_gap == pytest.approx(1 / (n - 1))
    assert mean_pairwise(ring(n)).spectral_gap == pytest.approx((1 - np.cos(2 * np.pi / n)) / n)


def test_pairs_drawn_at_random_leave_this_share_on_average():
    graph = Graph.of(5, [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)])
    mixing = mean_pairwise(graph)
    draws = [(i, j, 1 / 5 / graph.degree(i)) for i in range(5) for j in graph.neighbours[i]]
    found, squares = np.zeros((5, 5)), np.zeros((5, 5))
    for i, j, probability in draws:
        w = np.eye(5)
        w[[[i], [j]], [i, j]] = 0.5
        found += probability * w
        squares += probability * w.T @ w
    np.testing.assert_allclose(mixing.weights, found, atol=1e-15)
    np.testing.assert_allclose(mixing.weights, squares, atol=1e-15)
    assert mean_pairwise(Graph.of(1, [])).spectral_gap == 1
    with pytest.raises(ArgumentError, match="rank 2 of 3 has no neighbour"):
        mean_pairwise(Graph.of(3, [(0, 1)]))


def test_the_further_a_graph_reaches_the_faster_it_agrees():
    gaps = [metropolis(graph).spectral_gap for graph in (ring(64), torus(8, 8), exponential(64), complete(64))]
    assert gaps == sorted(gaps)
    assert gaps[0] == pytest.approx((2 - 2 * np.cos(2 * np.pi / 64)) / 3)  # about (2π/n)² / 3


def test_a_graph_that_falls_apart_never_agrees():
    assert metropolis(Graph.of(4, [(0, 1), (2, 3)])).spectral_gap == pytest.approx(0, abs=1e-15)
    assert Mixing(np.eye(1)).spectral_gap == 1


def test_rounding_leaves_no_neighbour_that_knows_nothing_of_it():
    rounded = np.eye(3)
    rounded[0, 1] = 1e-13
    mixing = Mixing(rounded)
    assert [mixing.neighbours(rank) for rank in range(3)] == [[1], [0], []]
    assert (mixing.weights == mixing.weights.T).all()


EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] != e[1]), max_size=20)


@given(EDGES)
@settings(max_examples=100)
def test_any_graph_gets_weights_that_are_allowed(edges):
    graph = Graph.of(8, edges)
    mixing = metropolis(graph)
    assert [tuple(mixing.neighbours(r)) for r in range(8)] == list(graph.neighbours)
    assert mixing.eigenvalues[0] == pytest.approx(1)
    assert mixing.eigenvalues[-1] > -1 + 1e-12  # each keeps some of its own
    assert mixing.contraction < 1 - 1e-6 or not graph.connected


THIRD = 1 / 3


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 of the mixing matrix sums to 0.9; needs 1"),
        ([[0.5, 0.5, 0], [0.3, 0.4, 0.3], [0, 0.6, 0.4]], "column 0 .* sums to 0.8|column 1 .* sums to 1.5"),
        (
            [[0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.5, 0.3, 0.2]],
            "not symmetric: row 0 has 0.5 in column 1, row 1 has 0.3",
        ),
        (  # all that is large is symmetric
            [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]],
            "not symmetric: row 0 has 0.3 in column 1, row 1 has 0.2",
        ),
        ([[1.2, -0.2], [-0.2, 1.2]], "row 0 .* has -0.2 in column 1; needs at least 0"),
        ([[np.nan, 1], [1, 0]], "row 0 .* has nan in column 0"),
        ([[1, 0]], r"shape \(1, 2\)"),
        ([[1], [0.5, 0.5]], r"is \[\[1\], \[0.5, 0.5\]\]; needs rows of equally many numbers"),
        ([["a"]], "needs rows of equally many numbers"),
        (np.empty((0, 0)), r"shape \(0, 0\)"),
        ([[THIRD, THIRD, THIRD]] * 2 + [[THIRD, THIRD, THIRD + 1e-9]], "row 2 .* sums to 1.000000001"),
    ],
)
def test_what_is_not_doubly_stochastic_is_refused_by_its_row(weights, message):
    with pytest.raises(ArgumentError, match=message):
        Mixing(weights)
