"""float16 and bfloat16 from end to end: what is kept has 16 bits, and what is computed is rounded once.

The oracles are the same operations in float64 on the same rounded numbers, and PyTorch, where it is installed.
eps is the distance from 1 to the next number, so rounding once moves a number by eps / 2 of itself at most.
"""

import ml_dtypes
import numpy as np
import pytest
from small_gpt import RECOMPUTED, arrays, bound, gradient_of, in_pytorch, noise, windows

from simdist.arrays import Meter, metered, phantom
from simdist.nn import Shape, gpt, mlp
from simdist.nn import functional as f
from simdist.optim import AdamW

SHORT = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
every_dtype = pytest.mark.parametrize("dtype", SHORT, ids=str)
RNG = np.random.default_rng(5)


def eps(dtype):
    return float(ml_dtypes.finfo(dtype).eps)


def draw(dtype, *shapes):
    return [RNG.normal(size=shape).astype(dtype) for shape in shapes]


def near(found, expected, dtype, roundings=1.0, scale=None):
    """Within so many roundings of each number, or of numbers as large as `scale`."""
    assert found.dtype == dtype
    limit = 0.51 * roundings * eps(dtype) * np.maximum(np.abs(expected), scale or 1e-2)
    assert (np.abs(found.astype(float) - expected) <= limit).all()


@every_dtype
def test_operations_round_once(dtype):
    x, w, b, dy = draw(dtype, (300, 40), (40, 24), (24,), (300, 24))
    x64, w64, b64, dy64 = (a.astype(float) for a in (x, w, b, dy))
    near(f.linear(x, w, b), f.linear(x64, w64, b64), dtype)
    near(f.linear_backward_input(dy, w), f.linear_backward_input(dy64, w64), dtype)
    for found, expected in zip(f.gelu(x), f.gelu(x64), strict=True):
        near(found, expected, dtype)
    near(f.gelu_backward(x, x), x64 * x64, dtype)
    near(f.add(x.copy(), x[::-1]), x64 + x64[::-1], dtype)
    keep = RNG.random(x.shape) < 0.7
    near(f.dropout(x, keep, 0.3), f.dropout(x64, keep, 0.3), dtype)
    y, z, r = f.layer_norm(x, *draw(dtype, 40, 40))
    assert r.dtype == np.float32, "a statistic"
    near(z, f.layer_norm(x64, x64[0], x64[0])[1], dtype)
    gain = w[:, 0]
    near(f.layer_norm(x, gain, gain)[0], f.layer_norm(x64, gain.astype(float), gain.astype(float))[0], dtype)
    dx = f.layer_norm_backward_input(z.astype(float), r.astype(float), gain.astype(float), y.astype(float))
    near(f.layer_norm_backward_input(z, r, gain, y), dx, dtype)
    near(f.positions(x[None].copy(), x[:, :40])[0], x64 + x64, dtype)
    y, z, r = f.rms_norm(x, gain)
    assert r.dtype == np.float32, "a statistic"
    near(y, f.rms_norm(x64, gain.astype(float))[0], dtype)
    dx = f.rms_norm_backward_input(z.astype(float), r.astype(float), gain.astype(float), y.astype(float))
    near(f.rms_norm_backward_input(z, r, gain, y), dx, dtype)
    for found, expected in zip(f.swiglu(x), f.swiglu(x64), strict=True):
        near(found, expected, dtype)
    near(f.swiglu_backward(x, x[:, :20]), f.swiglu_backward(x64, x64[:, :20]), dtype)
    near(f.rotary(x[None, :, :36], 3, np.arange(300)), f.rotary(x64[None, :, :36], 3, np.arange(300)), dtype)


@every_dtype
def test_gradients_of_weights_are_added_to_and_rounded_once(dtype):
    x, dy, dw, db, table = draw(dtype, (300, 40), (300, 24), (40, 24), (24,), (7, 24))
    expected = [a.astype(float) for a in (dw, db, table)]
    x64, dy64, tokens = x.astype(float), dy.astype(float), RNG.integers(7, size=300)
    f.linear_backward_weight(x, dy, dw, db)
    f.linear_backward_weight(x64, dy64, *expected[:2])
    f.embedding_backward(tokens, dy, table)
    f.embedding_backward(tokens, dy64, expected[2])
    for found, exact in zip((dw, db, table), expected, strict=True):
        near(found, exact, dtype)
    gain, bias = draw(dtype, 24, 24)
    expected = [gain.astype(float), bias.astype(float)]
    of_rms, exact = gain.copy(), gain.astype(float)
    f.rms_norm_backward_weight(dy, dy, of_rms)
    f.rms_norm_backward_weight(dy64, dy64, exact)
    near(of_rms, exact, dtype)
    f.layer_norm_backward_weight(dy, dy, gain, bias)
    f.layer_norm_backward_weight(dy64, dy64, *expected)
    for found, exact in zip((gain, bias), expected, strict=True):
        near(found, exact, dtype)
    (places,) = draw(dtype, (300, 24))
    expected = places.astype(float) + dy64
    f.positions_backward(dy[None], places)
    near(places, expected, dtype)


@every_dtype
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_attention_rounds_its_probabilities_and_its_results(dtype, share):
    qkv, dy = draw(dtype, (2, 70, 3 * 2 * 8), (2, 70, 2 * 8))
    qkv64, keep = qkv.astype(float), RNG.random((2, 2, 70, 70)) >= share if share else None
    y, p = f.attention(qkv, 2, keep, share)
    exact, q = f.attention(qkv64, 2, keep, share)
    for found, expected in zip(p, q, strict=True):
        near(found, expected, dtype)
    near(y, exact, dtype, roundings=2, scale=1.0)
    found = f.attention_backward(qkv, y, p, dy, keep, share, groups=2)
    expected = f.attention_backward(qkv64, exact, q, dy.astype(float), keep, share, groups=2)
    near(found, expected, dtype, roundings=4, scale=float(np.abs(expected).max()))


@every_dtype
def test_the_loss_and_its_derivatives_are_no_worse_for_few_bits(dtype):
    (logits,) = draw(dtype, (50, 30))
    logits[:, 0] += np.float32(9).astype(dtype)  # probabilities that 16 bits would make 1
    targets = np.zeros(50, int)
    total, p = f.cross_entropy(logits, targets)
    expected, exact = f.cross_entropy(logits.astype(float), targets)
    assert total == pytest.approx(expected, rel=1e-5)
    assert p.dtype == np.float32
    scale = 2.0**12  # as of a loss scale: float16 does not reach far down
    d = f.cross_entropy_backward(p, targets, scale, dtype)
    assert d.dtype == dtype
    assert d[:, 0].astype(float).all()
    np.testing.assert_allclose(d.astype(float), f.cross_entropy_backward(exact, targets, scale), rtol=eps(dtype))


# -- whole models -------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("shape", RECOMPUTED, ids=lambda shape: shape.recompute)
def test_all_that_is_kept_and_handed_on_has_sixteen_bits(dtype, shape):
    model = bound(shape, dtype)
    _, (layers, (p, _, _, logits_dtype)) = model.forward(windows(3), noise(3))
    assert p.dtype == np.float32
    assert logits_dtype == dtype
    kept = [x for x in arrays(layers) if x.dtype.kind not in "biu"]
    assert {x.dtype for x in kept if x.shape[-1:] != (1,)} == {dtype}, "all but the statistics of rows"
    dy = np.ones((3, 5, 256), dtype)
    assert model.layers.backward(layers, dy).dtype == dtype


@every_dtype
def test_recomputation_gives_the_same_bits(dtype):
    found = [gradient_of(bound(shape, dtype), windows(4), noise(4)) for shape in RECOMPUTED]
    for total, gradient in found[1:]:
        assert total == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


@every_dtype
def test_the_halves_of_backward_make_the_whole(dtype):
    model, batch = bound(RECOMPUTED[0], dtype), windows(3)
    _, whole = gradient_of(model, batch, noise(3))
    model.parameters.gradient[...] = 0
    _, context = model.forward(batch, noise(3))
    model.backward_weight(context, model.backward_input(context, 0.5))
    np.testing.assert_array_equal(model.parameters.gradient, whole)


@every_dtype
def test_a_perceptron_too(dtype):
    found = []
    batch = RNG.integers(256, size=(40, 4), dtype=np.uint8)
    for t in (np.dtype(np.float64), dtype):
        model = mlp(context_bytes=3, embedding_width=8, hidden_width=32, hidden_layers=2)
        size = model.parameters.size
        model.parameters.bind(np.empty(size, t), np.zeros(size, t))
        model.parameters.initialize(0)
        if found:
            model.parameters.data[...] = found[0][0].astype(dtype)
        else:
            model.parameters.data[...] = model.parameters.data.astype(dtype)
        total, context = model.forward(batch)
        model.backward(context, 0.25)
        found.append((model.parameters.data, total, model.parameters.gradient.astype(float)))
    (_, exact, expected), (_, total, gradient) = found
    assert total == pytest.approx(exact, rel=eps(dtype))
    assert np.linalg.norm(gradient - expected) < 2 * eps(dtype) * np.linalg.norm(expected)


@every_dtype
def test_it_costs_half_the_bytes_with_numbers_and_without(dtype):
    found, shape = {}, RECOMPUTED[0]
    for kind in ("numpy", "phantom"):
        for t in (dtype, np.dtype(np.float32)):
            model, batch = gpt(shape), windows(3)
            size = model.parameters.size
            model.parameters.bind(*(np.zeros((2, size), t) if kind == "numpy" else [phantom(size, t)] * 2))
            text = batch if kind == "numpy" else phantom(batch.shape, np.uint8)
            with metered(meter := Meter()):
                _, context = model.forward(text, noise(3))
                kept = [(x.shape, x.dtype) for x in arrays(context)]
                model.backward(context, 1.0)
            found[kind, t.itemsize] = meter.flops, meter.bytes, kept
    for kind in ("numpy", "phantom"):
        assert found[kind, 2][0] == found[kind, 4][0]
        assert found[kind, 2][1] == pytest.approx(found[kind, 4][1] / 2, rel=0.15), "masks and p are as large"
    assert found["numpy", 2][2] == found["phantom", 2][2], "shapes and dtypes of all that is kept"
    assert found["numpy", 2][1] == pytest.approx(found["phantom", 2][1], rel=0.1)  # a phantom text uses every token


@pytest.mark.parametrize(("dtype", "scale"), [(SHORT[0], 2.0**30), (SHORT[1], 2.0**127)], ids=str)
@pytest.mark.filterwarnings("error")
def test_a_loss_scaled_too_far_makes_inf_and_nan_and_no_warning(dtype, scale):
    model, batch = bound(RECOMPUTED[0], dtype), windows(3)
    model.backward(model.forward(batch)[1], scale)
    assert not np.isfinite(model.parameters.gradient.astype(np.float32)).all()
    context = model.forward(batch)[1]
    model.backward_weight(context, model.backward_input(context, scale))


def from_same_weights(shape, dtype, batch):
    """The gradient of a model in 16 bits, that of one in float64 with the same weights, and those weights."""
    short, exact = bound(shape, dtype), bound(shape)
    short.parameters.data[...] = exact.parameters.data * 3  # away from where every probability is alike
    exact.parameters.data[...] = short.parameters.data
    totals = []
    for model in (short, exact):
        total, context = model.forward(batch)
        model.backward(context, 1 / 64)
        totals.append(total)
    return short.parameters, exact.parameters, totals


@every_dtype
@pytest.mark.parametrize("tied", [True, False])
def test_gradients_are_as_near_to_float64_as_pytorchs(dtype, tied):
    torch = pytest.importorskip("torch")
    shape = Shape(layers=2, width=24, heads=3, context=70, tied=tied)
    batch = windows(4, shape)
    short, exact, totals = from_same_weights(shape, dtype, batch)
    assert totals[0] == pytest.approx(totals[1], rel=eps(dtype))
    theirs = torch.bfloat16 if dtype == SHORT[1] else torch.float16
    weights = {p.name: torch.tensor(p.data.astype(np.float32)).to(theirs).requires_grad_(True) for p in short}
    (in_pytorch(torch, shape, weights, batch) / 64).backward()
    for p, q in zip(short, exact, strict=True):
        found, expected = p.gradient.astype(float), q.gradient
        norm = np.linalg.norm(expected)
        error = np.linalg.norm(found - expected) / norm
        other = np.linalg.norm(weights[p.name].grad.double().numpy() - expected) / norm
        assert error < 3 * eps(dtype), p.name
        assert error < 2 * other, p.name


def test_training_in_bfloat16_with_float32_masters_follows_float32():
    shape, losses = Shape(layers=2, width=32, heads=2, context=24), {}
    for dtype in (np.dtype(np.float32), SHORT[1]):
        model = bound(shape, dtype)
        masters = model.parameters.data.astype(np.float32)
        rule, losses[dtype] = AdamW(masters), []
        for step in range(20):
            model.parameters.data[...] = masters
            model.parameters.gradient[...] = 0
            total, context = model.forward(windows(4, shape, seed=step % 2))
            model.backward(context, 1 / 96)
            rule.step(masters, model.parameters.gradient, 0.01)
            losses[dtype].append(total / 96)
    single, short = losses.values()
    assert single[-1] < single[0] - 1.5
    np.testing.assert_allclose(short, single, rtol=2 * eps(SHORT[1]))
