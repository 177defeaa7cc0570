"""Products of matrices in blocks, on virtual ranks: that they are right, and that they send what the formulas say."""

import numpy as np
import pytest

import simdist as sd
from simdist.collectives import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from simdist.errors import ArgumentError
from simdist.parallel.tensor import cube_elements, grid_elements, mlp_elements, product_lower_bound

T, H, F = 36, 36, 72
RNG = np.random.default_rng(0)
X, W, DY = RNG.normal(size=(T, H)), RNG.normal(size=(H, F)), RNG.normal(size=(T, F))
ANSWERS = X @ W, DY @ W.T, X.T @ DY


def block(x, rows, columns, row, column):
    """One of rows x columns blocks."""
    height, width = x.shape[0] // rows, x.shape[1] // columns
    return x[row * height : (row + 1) * height, column * width : (column + 1) * width].copy()


def summa(comm, q, d):
    """Y, dX and dW of a rank of d grids, in 2D if d is 1."""
    grid, place = divmod(comm.rank, q * q)
    i, j = divmod(place, q)
    row, column = comm.split(grid * q + i, j), comm.split(grid * q + j, i)
    x, w, dy = block(X, d * q, q, grid * q + i, j), block(W, q, q, i, j), block(DY, d * q, q, grid * q + i, j)
    y, dx, dw = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)

    def sent(mine, group, root):
        out = mine.copy()
        broadcast(out, group, root, algorithm="binomial")
        return out

    for k in range(q):
        y += sent(x, row, k) @ sent(w, column, k)
    for k in range(q):
        part = dy @ sent(w, column, k).T
        reduce(part, row, k, algorithm="binomial")
        if j == k:
            dx += part
    for k in range(q):
        part = sent(x, row, k).T @ dy
        reduce(part, column, k, algorithm="binomial")
        if i == k:
            dw += part
    all_reduce(dw, comm.split(place, grid), algorithm="ring")
    rows = d * q, q, grid * q + i, j
    return [(y, block(ANSWERS[0], *rows)), (dx, block(ANSWERS[1], *rows)), (dw, block(ANSWERS[2], q, q, i, j))]


def cube(comm, q):
    """The same of a rank (i, j, k) of a cube: X is cut by i, k and then by j, W by k, j and i, Y by i, j and k."""
    i, rest = divmod(comm.rank, q * q)
    j, k = divmod(rest, q)
    along_i, along_j, along_k = comm.split(j * q + k, i), comm.split(i * q + k, j), comm.split(i * q + j, k)

    def gathered(x, row, column, group):
        whole = block(x, q, q, row, column)
        return all_gather(block(whole, q, 1, group.rank, 0).ravel(), group, algorithm="ring").reshape(whole.shape)

    def summed(x, group):
        return reduce_scatter(x.ravel(), group, algorithm="ring").reshape(-1, x.shape[1])

    x, w = gathered(X, i, k, along_j), gathered(W, k, j, along_i)
    y = summed(x @ w, along_k)
    dy = gathered(DY, i, j, along_k)
    dx, dw = summed(dy @ w.T, along_j), summed(x.T @ dy, along_i)
    parts = ((y, i, j, along_k), (dx, i, k, along_j), (dw, k, j, along_i))
    return [
        (found, block(block(whole, q, q, row, column), q, 1, group.rank, 0))
        for (found, row, column, group), whole in zip(parts, ANSWERS, strict=True)
    ]


def received(run):
    """Elements that a rank receives, on average, after a look at the answers."""
    for pairs in run.results:
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    num_bytes = sum(span.bytes for span in run.trace.spans if span.name == "recv")
    return num_bytes / len(run.results) / X.itemsize


@pytest.mark.parametrize(("q", "d"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (2, 3), (3, 2)])
def test_squares_of_blocks(q, d):
    assert received(sd.run(summa, d * q * q, args=(q, d))) == pytest.approx(grid_elements(T, H, F, q, d), rel=1e-12)


@pytest.mark.parametrize("q", [1, 2, 3])
def test_cubes_of_blocks(q):
    assert received(sd.run(cube, q**3, args=(q,))) == pytest.approx(cube_elements(T, H, F, q), rel=1e-12)


def test_what_papers_say_of_them():
    """Optimus counts 7bsh + 12h² elements of a block's forward; Colossal-AI's documentation 6 (q-1)/q³ in 3D."""
    b, s, h, q = 8, 512, 1024, 4
    maps = (h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)
    found = sum(grid_elements(b * s, *of, q) for of in maps)
    assert found == pytest.approx(3 * (q - 1) / q**2 * (7 * b * s * h + 12 * h**2))
    assert cube_elements(1, 1, 1, 2) == 6 * (2 - 1) / 2**3
    assert grid_elements(1, 1, 1, 2, 2) == pytest.approx(3 * (2 - 1) * (2 + 1) / (2 * 2) / 2 + 1 / 4)


@pytest.mark.parametrize(("x", "y", "d"), [(1, 1, 1), (1, 4, 1), (2, 1, 1), (2, 3, 1), (1, 2, 3), (3, 2, 2)])
def test_an_mlp_whose_weights_are_cut_in_both_directions(x, y, d):
    t, h, f = 12, 12, 24
    rng = np.random.default_rng(1)
    tokens, w1, w2 = rng.normal(size=(t, h)), rng.normal(size=(h, f)), rng.normal(size=(f, h))

    def program(comm):
        k, (i, j) = comm.rank // (x * y), divmod(comm.rank % (x * y), y)
        along_y, along_x = comm.split(k * x + i, j), comm.split(k * y + j, i)
        copies = comm.split(comm.rank % (x * y), k)

        def whole(weights, rows, columns, row, column):
            mine = block(weights, rows, columns, row, column)
            return all_gather(np.array_split(mine.ravel(), d)[k], copies, algorithm="ring").reshape(mine.shape)

        def gathered(part, group):
            return all_gather(np.ascontiguousarray(part.T).ravel(), group, algorithm="ring").reshape(-1, t // d).T

        def scattered(part, group):
            return reduce_scatter(part.T.ravel(), group, algorithm="ring").reshape(-1, t // d).T

        own = block(block(tokens, d, x, k, i), 1, y, 0, j)
        hidden = scattered(gathered(own, along_y) @ whole(w1, x, y, i, j), along_x)
        found = scattered(gathered(np.maximum(hidden, 0), along_x) @ whole(w2, y, x, j, i), along_y)
        return found, block(block(np.maximum(tokens @ w1, 0) @ w2, d, x, k, i), 1, y, 0, j)

    run = sd.run(program, x * y * d)
    for found, expected in run.results:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    sent = sum(s.bytes for s in run.trace.sends(0)) / tokens.itemsize
    assert sent == pytest.approx(mlp_elements(t, h, f, x, y, d), rel=1e-12)


def test_layouts_of_palm_540b():
    """arXiv 2211.05102: 2Th, 8Th/√p and 4h √(Tf/p), for many ranks, each the least of its kind."""
    t, h, f, p = 2**20, 18_432, 4 * 18_432, 4096
    assert mlp_elements(t, h, f, 1, p) == pytest.approx(2 * t * h, rel=0.001)
    flat = {x: mlp_elements(t, h, f, x, p // x) for x in (2**i for i in range(13))}
    assert min(flat, key=flat.get) == 32  # √p/2
    assert flat[32] == pytest.approx(8 * t * h / p**0.5, rel=0.03)
    gathered = {d: mlp_elements(t, h, f, 1, p // d, d) for d in (2**i for i in range(13))}
    assert min(gathered, key=gathered.get) == 256  # √(Tp/f) is 241
    assert gathered[256] == pytest.approx(4 * h * (t * f / p) ** 0.5, rel=0.05)


@pytest.mark.parametrize("sides", [(36, 36, 36), (512, 64, 8), (4, 300, 20), (1, 1, 4096)])
@pytest.mark.parametrize("p", [1, 2, 4, 16, 64, 512])
def test_no_grid_of_ranks_sends_less_than_the_bound(sides, p):
    """arXiv 2205.13407: with a x b x c ranks that cut T, h and f, whose own parts are sent along one axis each."""
    t, h, f = sides
    grids = [(a, b, p // a // b) for a in range(1, p + 1) for b in range(1, p + 1) if p % (a * b) == 0]
    sent = [
        t * h / (a * b) * (1 - 1 / c) + h * f / (b * c) * (1 - 1 / a) + t * f / (a * c) * (1 - 1 / b)
        for a, b, c in grids
    ]
    assert min(sent) >= product_lower_bound(*sides, p) * (1 - 1e-12)


def test_what_reaches_the_bound():
    """Cubes on q³ ranks, slices of a long side, a grid of flat blocks; and with little room, that of 2.5D."""
    for q in (1, 2, 3, 8):
        assert product_lower_bound(72, 72, 72, q**3) == pytest.approx(cube_elements(72, 72, 72, q) / 2)
    assert product_lower_bound(1000, 10, 20, 4) == pytest.approx(10 * 20 * (1 - 1 / 4))
    t, h, f, a, c = 960, 6, 240, 8, 2  # blocks of 120 x 120 of Y, which stays
    least = t * h / a * (1 - 1 / c) + h * f / c * (1 - 1 / a)
    assert product_lower_bound(t, h, f, a * c) == pytest.approx(least)
    n, p = 4096, 1024
    for copies in (1 / 64, 4):
        room = copies * n**2 / p
        crowded = n**2 / np.sqrt(8 * copies * p) - room
        assert product_lower_bound(n, n, n, p, room) == max(crowded, product_lower_bound(n, n, n, p))


def test_sides_that_there_are_not():
    with pytest.raises(ArgumentError, match="ranks is 0; needs at least 1"):
        product_lower_bound(1, 1, 1, 0)
    with pytest.raises(ArgumentError, match="memory_elements is 0; needs more than 0"):
        product_lower_bound(1, 1, 1, 1, 0)
    for made in (lambda: grid_elements(1, 1, 1, 0), lambda: cube_elements(1, 1, 1, 0)):
        with pytest.raises(ArgumentError, match="side is 0; needs at least 1"):
            made()
    with pytest.raises(ArgumentError, match="columns is 0; needs at least 1"):
        mlp_elements(1, 1, 1, 1, 0)
    with pytest.raises(ArgumentError, match="depth is 0; needs at least 1"):
        grid_elements(1, 1, 1, 1, 0)
