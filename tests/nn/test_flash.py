"""Attention a tile of queries and keys at a time, against the same over all keys at once, and against PyTorch's."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.arrays import Meter, metered, phantom
from simdist.errors import ArgumentError
from simdist.nn import Noise, Shape, gpt
from simdist.nn import functional as f
from simdist.nn.formulas import attention_accesses, matmul_flops
from simdist.nn.functional import flash
from simdist.nn.layers import Attention

NOISE = Noise(seed=1, step=2, samples=np.array([3, 7]))
SHAPE = Shape(layers=2, width=24, heads=4, context=20, vocabulary=11)


def inputs(t, heads, groups, d, dtype=np.float64, w=None):
    random, w = np.random.default_rng(0), w or d
    widths = heads * d + groups * (d + w), heads * w
    return [random.normal(size=(2, t, width)).astype(dtype) for width in widths]


def passes(layer, x, dy, noise=NOISE):
    """y and dx."""
    y, context = layer.forward(x, noise)
    return y, layer.backward_input(context, dy)[0]


def close(found, expected, limit=1e-12):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * np.abs(b).max())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("t", "heads", "groups"), [(1, 2, 2), (7, 4, 2), (64, 2, 1), (130, 3, 3), (1100, 2, 1)])
@pytest.mark.parametrize("w", [None, 3, 7])
def test_against_all_keys_at_once_with_the_same_masks(t, heads, groups, w, dropout):
    x, dy = inputs(t, heads, groups, 4, w=w)
    given = "it", heads, dropout, 5, groups
    plain, tiled = (Attention(*given, flash, value_width=w) for flash in (False, True))
    close(passes(tiled, x, dy), passes(plain, x, dy))


@settings(max_examples=40)
@given(
    t=st.integers(1, 40), keys=st.integers(1, 20), groups=st.integers(1, 3), each=st.integers(1, 3), drop=st.booleans()
)
def test_however_texts_and_blocks_are_long(t, keys, groups, each, drop):
    x, dy = inputs(t, groups * each, groups, 2)
    given = "it", groups * each, 0.4 * drop, 0, groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flash, "TILE", 1)
        patch.setattr(flash, "_BLOCKS", 40)
        patch.setattr(flash, "_KEYS", keys)
        found = passes(Attention(*given, flash=True), x, dy)
    close(found, passes(Attention(*given), x, dy))


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("flash", [False, True], ids=["plain", "flash"])
@pytest.mark.parametrize("w", [None, 4, 9])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_against_pytorch(groups, w, flash, dropout):
    torch = pytest.importorskip("torch")
    heads, e, t = 4, 6, 700
    x, dy = inputs(t, heads, groups, e, w=w)
    qkv, each = torch.tensor(x, requires_grad=True), heads // groups
    q, k, v = qkv.reshape(2, t, groups, -1).split([each * e, e, w or e], dim=-1)
    q = q.reshape(2, t, heads, e).transpose(1, 2)
    k, v = (part.transpose(1, 2).repeat_interleave(each, dim=1) for part in (k, v))
    later = torch.ones(t, t, dtype=torch.bool).triu(1)
    p = (q @ k.transpose(2, 3) / e**0.5).masked_fill(later, -torch.inf).softmax(-1)
    if dropout:
        p = p * torch.tensor(NOISE.scores("it", x, heads, dropout)).transpose(2, 3) / (1 - dropout)
    y = (p @ v).transpose(1, 2).reshape(2, t, -1)
    y.backward(torch.tensor(dy))
    layer = Attention("it", heads, dropout, groups=groups, flash=flash, value_width=w)
    close(passes(layer, x, dy), (y.detach().numpy(), qkv.grad.numpy()))


@pytest.mark.parametrize("w", [None, 6])
@pytest.mark.parametrize("flash", [False, True], ids=["plain", "flash"])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e-6), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_shorter_numbers(dtype, limit, flash, w):
    x, dy = inputs(600, 4, 2, 8, dtype, w)
    found = passes(Attention("it", 4, 0.2, groups=2, flash=flash, value_width=w), x, dy)
    assert [each.dtype for each in found] == [x.dtype, x.dtype]
    exact = passes(Attention("it", 4, 0.2, groups=2, value_width=w), x.astype(np.float64), dy.astype(np.float64))
    close([each.astype(np.float64) for each in found], exact, limit)


def test_scores_too_large_for_an_exponential():
    x, dy = inputs(600, 2, 2, 4)
    found = passes(Attention("it", 2, flash=True), 200 * x, dy)
    assert all(np.isfinite(each).all() for each in found)
    close(found, passes(Attention("it", 2), 200 * x, dy), 1e-9)


def charged(call):
    with metered(meter := Meter()):
        made = call()
    return made, meter


@pytest.mark.parametrize("w", [256, 192])
def test_of_memory_only_what_goes_in_and_comes_out(w):
    """However long a text is; and operations of all pairs, two products of them forward, five backward."""
    for t in (64, 640):
        x, dy = inputs(t, 4, 2, 256, np.float32, w)
        (y, lse), forward = charged(lambda x=x: f.flash_attention(x, 4, groups=2, value_width=w))
        _, backward = charged(lambda x=x, y=y, lse=lse, dy=dy: f.flash_attention_backward(x, y, lse, dy, groups=2))
        assert forward.bytes == x.nbytes + y.nbytes + lse.nbytes
        assert backward.bytes == 2 * x.nbytes + 2 * y.nbytes + lse.nbytes
        of_keys, of_values = (2 * 2 * 4 * d * flash.num_flash_pairs(t) for d in (256, w))
        assert forward.flops == pytest.approx(of_keys + of_values, rel=0.02)
        assert backward.flops == pytest.approx(3 * of_keys + 2 * of_values, rel=0.02)
        assert forward.flops > of_keys + of_values
        assert backward.flops > 3 * of_keys + 2 * of_values


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_models_products_are_counted(recompute):
    """With much width, of which all else is little."""
    shape = Shape(layers=1, width=1024, heads=2, context=576, vocabulary=256, flash=True, recompute=recompute)
    model = gpt(shape)
    model.parameters.bind(*(phantom(model.parameters.size) for _ in range(2)))

    def step():
        _, context = model.forward(phantom((2, 577), np.uint8))
        model.backward(context, 1.0)

    assert charged(step)[1].flops == pytest.approx(matmul_flops(shape, 2), rel=0.02)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("block", ["gpt2", "llama"])
def test_a_models_loss_and_gradients(block, recompute):
    windows = np.random.default_rng(0).integers(0, 11, (2, 21)).astype(np.uint8)
    found = []
    for flash_too in (False, True):
        shape = replace(SHAPE, block=block, kv_heads=2, dropout=0.2, recompute=recompute, flash=flash_too)
        model = gpt(shape)
        model.parameters.bind(*(np.zeros(model.parameters.size) for _ in range(2)))
        model.parameters.initialize(0)
        loss, context = model.forward(windows, NOISE)
        model.backward(context, 1.0)
        found.append((loss, model.parameters.gradient))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-14)
    close(found[1][1:], found[0][1:])


class Memory:
    """Arrays outside the chip, which counts what is read and written; what is on the chip is any other array."""

    def __init__(self):
        self.arrays, self.moved = {}, 0

    def put(self, **arrays):
        """Arrays that are there before."""
        self.arrays |= {name: x.copy() for name, x in arrays.items()}

    def read(self, names, rows=slice(None)):
        found = [self.arrays[name][rows].copy() for name in names.split()]
        self.moved += sum(x.size for x in found)
        return found

    def write(self, rows=slice(None), **arrays):
        for name, x in arrays.items():
            self.arrays.setdefault(name, x.copy())[rows] = x
            self.moved += x.size


def standard(memory):
    """Algorithms 0 and 3 of arXiv 2205.14135; what forward has moved."""
    q, k = memory.read("q k")
    memory.write(s=q @ k.T)
    (s,) = memory.read("s")
    memory.write(p=np.exp(s) / np.exp(s).sum(axis=1, keepdims=True))
    p, v = memory.read("p v")
    memory.write(o=p @ v)
    forward = memory.moved
    p, do = memory.read("p do")
    memory.write(dv=p.T @ do)
    do, v = memory.read("do v")
    memory.write(dp=do @ v.T)
    p, dp = memory.read("p dp")
    memory.write(ds=p * (dp - (p * dp).sum(axis=1, keepdims=True)))
    ds, k = memory.read("ds k")
    memory.write(dq=ds @ k)
    ds, q = memory.read("ds q")
    memory.write(dk=ds.T @ q)
    return forward


def tiled(memory, n, d, m):
    """Algorithms 1 and 4, with blocks as in line 1 of each; what forward has moved."""
    columns = -(-m // (4 * d))
    rows = min(columns, d)
    blocks = [[slice(a, min(a + size, n)) for a in range(0, n, size)] for size in (columns, rows)]
    memory.write(o=np.zeros((n, d)), sum=np.zeros(n), top=np.full(n, -np.inf))
    for j in blocks[0]:
        k, v = memory.read("k v", j)
        for i in blocks[1]:
            q, o, before, top = memory.read("q o sum top", i)
            s = q @ k.T
            higher = np.maximum(top, s.max(axis=1))
            p, shrink = np.exp(s - higher[:, None]), before * np.exp(top - higher)
            total = shrink + p.sum(axis=1)
            memory.write(i, o=(shrink[:, None] * o + p @ v) / total[:, None], sum=total, top=higher)
    forward = memory.moved
    memory.write(dq=np.zeros((n, d)), dk=np.zeros((n, d)), dv=np.zeros((n, d)))
    for j in blocks[0]:
        k, v = memory.read("k v", j)
        dk, dv = np.zeros_like(k), np.zeros_like(v)
        for i in blocks[1]:
            q, o, do, dq, total, top = memory.read("q o do dq sum top", i)
            p = np.exp(q @ k.T - top[:, None]) / total[:, None]
            ds = p * (do @ v.T - (do * o).sum(axis=1, keepdims=True))
            dv += p.T @ do
            dk += ds.T @ q
            memory.write(i, dq=dq + ds @ k)
        memory.write(j, dk=dk, dv=dv)
    return forward


@pytest.mark.parametrize(("n", "d", "m"), [(16, 4, 64), (13, 4, 70), (24, 8, 1000), (5, 3, 1)])
def test_accesses_to_memory_are_those_of_the_papers_algorithms(n, d, m):
    random = np.random.default_rng(0)
    given, plain, flashed = {x: random.normal(size=(n, d)) for x in ("q", "k", "v", "do")}, Memory(), Memory()
    plain.put(**given)
    flashed.put(**given)
    for memory, forward, chip in ((plain, standard(plain), None), (flashed, tiled(flashed, n, d, m), m)):
        assert forward == attention_accesses(n, d, chip)
        assert memory.moved - forward == attention_accesses(n, d, chip, backward=True)
    for name in ("o", "dq", "dk", "dv"):
        np.testing.assert_allclose(flashed.arrays[name], plain.arrays[name], rtol=1e-10, atol=1e-12)


def test_accesses_fall_as_the_chip_grows():
    """Theorem 2: Θ(N² + Nd) and Θ(N²d²/M)."""
    assert attention_accesses(2**20, 64, 2**16) == pytest.approx(12 * 2**40 * 64**2 / 2**16, rel=0.03)
    assert attention_accesses(2**20, 64) == pytest.approx(4 * 2**40, rel=0.01)
    with pytest.raises(ArgumentError, match="on_chip_elements is 0; needs more than 0"):
        attention_accesses(16, 4, 0)
