"""Every operation's backward against finite differences in float64; values against independent formulas."""

import math
import tracemalloc
from functools import partial

import numpy as np
import pytest
from finite_differences import near, slope

from simdist.arrays import Meter, metered, phantom
from simdist.errors import ArrayError
from simdist.nn import functional as f

RNG = np.random.default_rng(7)


def test_linear():
    x, w, b = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=4)
    weigh = RNG.normal(size=(5, 4))
    near(f.linear(x, w, b), np.einsum("ni,io->no", x, w) + b)

    def value():
        return float((f.linear(x, w, b) * weigh).sum())

    dw, db = np.zeros_like(w), np.zeros_like(b)
    f.linear_backward_weight(x, weigh, dw, db)
    near(f.linear_backward_input(weigh, w), slope(value, x))
    near(dw, slope(value, w))
    near(db, slope(value, b))


def test_weight_gradients_are_added():
    x, dy = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 4))
    dw, db = np.ones((3, 4)), np.ones(4)
    f.linear_backward_weight(x, dy, dw, db)
    near(dw, 1 + x.T @ dy)
    near(db, 1 + dy.sum(axis=0))
    table = np.ones((6, 4))
    f.embedding_backward(np.array([2, 2, 0, 5, 2], np.uint8), dy, table)
    expected = np.ones((6, 4))
    np.add.at(expected, [2, 2, 0, 5, 2], dy)
    near(table, expected)


def test_embedding():
    table, indices = RNG.normal(size=(256, 3)), np.array([[0, 255], [255, 7]], np.uint8)
    weigh = RNG.normal(size=(2, 2, 3))
    near(f.embedding(indices, table)[1, 0], table[255])
    dtable = np.zeros_like(table)
    f.embedding_backward(indices, weigh, dtable)
    near(dtable, slope(lambda: float((f.embedding(indices, table) * weigh).sum()), table))


def test_phantom_tokens_use_no_more_entries_than_there_are_tokens():
    with metered(meter := Meter()):
        f.embedding_backward(phantom((2, 3), np.uint8), phantom((2, 3, 4)), phantom((1000, 4)))
    with metered(of_numbers := Meter()):
        f.embedding_backward(np.arange(6).reshape(2, 3), np.ones((2, 3, 4), np.float32), np.ones((1000, 4), np.float32))
    assert (meter.flops, meter.bytes) == (of_numbers.flops, of_numbers.bytes)


def test_gelu():
    x, weigh = RNG.normal(size=(4, 6)) * 3, RNG.normal(size=(4, 6))
    y, derivative = f.gelu(x)
    near(y, [[v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in row] for row in x])
    near(f.gelu_backward(derivative, weigh), slope(lambda: float((f.gelu(x)[0] * weigh).sum()), x))


def test_swiglu():
    x, weigh = RNG.normal(size=(4, 6)) * 3, RNG.normal(size=(4, 3))
    y, slopes = f.swiglu(x)
    near(y, [[g / (1 + math.exp(-g)) * u for g, u in zip(row[:3], row[3:], strict=True)] for row in x])
    near(f.swiglu_backward(slopes, weigh), slope(lambda: float((f.swiglu(x)[0] * weigh).sum()), x))
    with np.errstate(all="raise"):
        near(f.swiglu(np.array([[-1e3, 1e3, 2.0, 2.0]]))[0], [[0, 2e3]])


def test_backward_of_swiglu_takes_slopes_in_any_order():
    slopes, dy = RNG.normal(size=(3, 5, 8)), RNG.normal(size=(3, 5, 4))
    for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
        turned = np.ascontiguousarray(slopes.transpose(order)).transpose(np.argsort(order))
        np.testing.assert_array_equal(f.swiglu_backward(turned, dy), f.swiglu_backward(slopes, dy))


def test_cross_entropy():
    logits, targets = RNG.normal(size=(6, 5)), np.array([0, 4, 2, 2, 1, 3], np.uint8)
    total, p = f.cross_entropy(logits, targets)
    near(p.sum(axis=1), np.ones(6))
    near(total, sum(math.log(sum(math.exp(v) for v in row)) - row[t] for row, t in zip(logits, targets, strict=True)))
    near(f.cross_entropy_backward(p, targets, 0.25), slope(lambda: f.cross_entropy(logits, targets)[0] / 4, logits))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_is_stable_row_by_row(dtype):
    logits = np.array([[0, 0], [1e30, 1e30], [-1e30, 0], [2000, 1000]], dtype)
    total, p = f.cross_entropy(logits, np.array([0, 1, 1, 0]))
    assert total == pytest.approx(2 * math.log(2))
    np.testing.assert_array_equal(p, np.array([[0.5, 0.5], [0.5, 0.5], [0, 1], [1, 0]], dtype))
    assert p.dtype == dtype


def test_a_class_that_is_ruled_out_adds_nothing_to_a_target_of_another_rank():
    told = {}
    f.cross_entropy(
        np.array([[-np.inf, 0.5, 0.0]]), np.array([2]), 3, lambda values, op: told.update({op: values.tolist()})
    )
    assert told["sum"] == [[pytest.approx(1 + math.exp(-0.5))], [0.0]]


def test_losses_are_added_up_in_float64():
    total, _ = f.cross_entropy(np.zeros((99_999, 2), np.float32), np.zeros(99_999, np.uint8))
    assert total == pytest.approx(99_999 * float(np.log(np.float32(2))), rel=1e-13)


def test_nothing_to_do_is_done():
    nothing = np.empty((0, 3))
    dw, db, dtable = np.zeros((3, 2)), np.zeros(2), np.zeros((4, 3))
    assert f.linear(nothing, dw, db).shape == (0, 2)
    f.linear_backward_weight(nothing, np.empty((0, 2)), dw, db)
    f.embedding_backward(np.empty((0, 1), np.uint8), nothing, dtable)
    assert not dw.any()
    assert not dtable.any()
    total, p = f.cross_entropy(nothing, np.empty(0, np.uint8))
    assert (total, p.shape) == (0.0, (0, 3))


def test_a_matrix_product_is_charged():
    x, w, b = np.ones((5, 3), np.float32), np.ones((3, 4), np.float32), np.ones(4, np.float32)
    meter = Meter()
    with metered(meter):
        f.linear(x, w, b)
    assert meter.flops == 2 * 5 * 3 * 4 + 5 * 4
    assert meter.bytes == 4 * ((15 + 12 + 20) + (20 + 20 + 4))


@pytest.mark.parametrize(("dtype", "bytes_each"), [(np.float64, 8 + 8), (np.float16, 2 + 4)])
def test_a_loss_is_charged(dtype, bytes_each):
    """Forward a maximum, a difference, an exponential, a sum and a quotient; backward one product.

    Of 16-bit logits the probabilities have 32 bits.
    """
    logits, targets = np.ones((5, 8), dtype), np.zeros(5, np.uint8)
    with metered(forward := Meter()):
        _, p = f.cross_entropy(logits, targets)
    with metered(backward := Meter()):
        f.cross_entropy_backward(p, targets, 0.5, dtype)
    assert (forward.flops, forward.bytes) == (5 * 40, 40 * bytes_each)
    assert (backward.flops, backward.bytes) == (40, 40 * bytes_each)


def test_rms_norm():
    x, gain = RNG.normal(size=(2, 3, 5)) * 4 + 2, RNG.normal(size=5)
    weigh = RNG.normal(size=x.shape)
    y, z, r = f.rms_norm(x, gain)
    near(y, x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * gain)

    def value():
        return float((f.rms_norm(x, gain)[0] * weigh).sum())

    dgain = np.ones(5)
    f.rms_norm_backward_weight(z, weigh, dgain)
    near(f.rms_norm_backward_input(z, r, gain, weigh), slope(value, x))
    near(dgain, 1 + slope(value, gain))


def test_rotary():
    """Against complex numbers; and what queries and keys have in common hangs on how far apart they are alone."""
    qkv, weigh, places = RNG.normal(size=(2, 4, 2 * 3 * 6)), RNG.normal(size=(2, 4, 36)), np.array([3, 4, 90, 1000])
    turned = f.rotary(qkv, 2, places).reshape(2, 4, 2, 3, 6)
    split = qkv.reshape(2, 4, 2, 3, 6)
    by = np.exp(1j * places[:, None, None, None] * 10_000.0 ** (-np.arange(3) / 3))
    expected = (split[..., :2, :3] + 1j * split[..., :2, 3:]) * by
    near(turned[..., :2, :], np.concatenate([expected.real, expected.imag], axis=-1))
    np.testing.assert_array_equal(turned[..., 2, :], split[..., 2, :])
    dx = slope(lambda: float((f.rotary(qkv, 2, places) * weigh).sum()), qkv)
    near(f.rotary(weigh, 2, places, back=True), dx)
    near(f.rotary(turned.reshape(2, 4, 36), 2, places, back=True), qkv)
    same = np.broadcast_to(qkv[:, :1], qkv.shape)
    q, k, _ = np.moveaxis(f.rotary(same, 2, np.array([5, 9, 105, 109])).reshape(2, 4, 2, 3, 6), 3, 0)
    near((q[:, 0] * k[:, 1]).sum(-1), (q[:, 2] * k[:, 3]).sum(-1))


@pytest.mark.parametrize("made", [np.zeros, phantom])
def test_of_no_samples(made):
    """As of a rank that has no windows."""
    x, gain, qkv = made((0, 5, 8)), made(8), made((0, 5, 4 * 6))
    for y in (
        f.swiglu(x)[0],
        *f.rms_norm(x, gain)[:2],
        f.rotary(qkv, 2, np.arange(5), groups=1),
        f.attention(qkv, 2)[0],
    ):
        assert y.size == 0
    y, p = f.attention(qkv, 4, groups=1)
    assert y.shape == (0, 5, 16)
    assert f.attention_backward(qkv, y, p, y, groups=1).shape == qkv.shape


def test_rotary_takes_a_place_for_each_token():
    qkv = RNG.normal(size=(1, 4, 12))
    near(f.rotary(qkv, 2, np.arange(4, dtype=np.int32)), f.rotary(qkv, 2, np.arange(4)))
    with pytest.raises(ArrayError, match="1 places for 4 tokens"):
        f.rotary(qkv, 2, np.arange(1))


def test_shared_keys_and_values_are_charged_as_those_of_each_head():
    """But for the additions of what heads of a group found."""

    def flops_and_bytes(groups):
        qkv = np.ones((2, 6, (4 + 2 * groups) * 4), np.float16)
        with metered(meter := Meter()):
            y, p = f.attention(qkv, 4, groups=groups)
            f.attention_backward(qkv, y, p, y, groups=groups)
        return meter.flops, meter.bytes

    (alone, num_bytes), shared = flops_and_bytes(4), flops_and_bytes(2)
    assert shared == (alone + 2 * 2 * 4 * 6 * 4, num_bytes)


def test_layer_norm():
    x, gain, bias = RNG.normal(size=(2, 3, 5)) * 4 + 2, RNG.normal(size=5), RNG.normal(size=5)
    weigh = RNG.normal(size=x.shape)
    y, z, r = f.layer_norm(x, gain, bias)
    variance = x.var(axis=-1, keepdims=True)
    near(y, (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(variance + 1e-5) * gain + bias)

    def value():
        return float((f.layer_norm(x, gain, bias)[0] * weigh).sum())

    dgain, dbias = np.ones(5), np.ones(5)
    f.layer_norm_backward_weight(z, weigh, dgain, dbias)
    near(f.layer_norm_backward_input(z, r, gain, weigh), slope(value, x))
    near(dgain, 1 + slope(value, gain))
    near(dbias, 1 + slope(value, bias))


def plain_attention(qkv, heads, keep, share, e, w):
    """As the paper writes it, a head and a query at a time."""
    n, t, _ = qkv.shape
    split, y = qkv.reshape(n, t, heads, 2 * e + w), np.zeros((n, t, heads, w))
    q, k, v = split[..., :e], split[..., e : 2 * e], split[..., 2 * e :]
    for i, h, query in np.ndindex(n, heads, t):
        scores = np.array([q[i, query, h] @ k[i, key, h] for key in range(query + 1)]) / math.sqrt(e)
        p = np.exp(scores) / np.exp(scores).sum()
        if keep is not None:
            p = p * keep[i, h, : query + 1, query] / (1 - share)
        y[i, query, h] = p @ v[i, : query + 1, h]
    return y.reshape(n, t, heads * w)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(("n", "t", "heads"), [(2, 4, 3), (1, 130, 1)], ids=["one tile", "three tiles"])
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("w", [None, 1, 3])
def test_attention(w, share, n, t, heads):
    e, wide = 2, w or 2
    qkv, weigh = RNG.normal(size=(n, t, (2 * e + wide) * heads)), RNG.normal(size=(n, t, wide * heads))
    keep = RNG.random((n, heads, t, t)) >= share if share else None
    y, p = f.attention(qkv, heads, keep, share, value_width=w)
    near(y, plain_attention(qkv, heads, keep, share, e, wide))
    near(np.concatenate([tile.sum(axis=2) for tile in p], axis=-1), np.ones((n, heads, t)))
    dqkv = f.attention_backward(qkv, y, p, weigh, keep, share, groups=heads)

    def value():
        return float((f.attention(qkv, heads, keep, share, value_width=w)[0] * weigh).sum())

    near(dqkv, slope(value, qkv))


def test_dropout_and_its_backward():
    x, keep = RNG.normal(size=(3, 4)), RNG.random((3, 4)) < 0.75
    near(f.dropout(x, keep, 0.25), np.where(keep, x / 0.75, 0))
    near(f.dropout(np.ones((3, 4)), keep, 0.25), slope(lambda: float(f.dropout(x, keep, 0.25).sum()), x))


def test_positions():
    x, table, weigh = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(6, 4)), RNG.normal(size=(2, 3, 4))
    near(f.positions(x.copy(), table), x + table[:3])
    dtable = np.zeros_like(table)
    f.positions_backward(weigh, dtable)
    near(dtable, slope(lambda: float((f.positions(x.copy(), table) * weigh).sum()), table))


def test_blocks_make_no_difference():
    """Arrays of several blocks each, against the same rows one at a time."""
    x, gain = RNG.normal(size=(700, 256)), RNG.normal(size=256)
    whole, alone = f.layer_norm(x, gain, gain), [f.layer_norm(row[None], gain, gain) for row in x]
    for i in range(3):
        np.testing.assert_allclose(whole[i], np.concatenate([parts[i] for parts in alone]), rtol=1e-13)
    for i in range(2):
        np.testing.assert_allclose(f.gelu(x)[i], np.concatenate([f.gelu(row)[i][None] for row in x]), rtol=1e-13)
        np.testing.assert_allclose(f.swiglu(x)[i], np.concatenate([f.swiglu(row[None])[i] for row in x]), rtol=1e-13)
    whole, alone = f.rms_norm(x, gain), [f.rms_norm(row[None], gain) for row in x]
    for i in range(3):
        np.testing.assert_allclose(whole[i], np.concatenate([parts[i] for parts in alone]), rtol=1e-13)


@pytest.mark.parametrize(
    ("columns", "options"),
    [(50, {}), (48, {"groups": 3}), (48, {"value_width": 5}), (48, {"value_width": 13}), (48, {"value_width": 0})],
    ids=str,
)
def test_columns_that_no_heads_have(columns, options):
    for attend in (f.attention, f.flash_attention):
        with pytest.raises(ArrayError, match=f"{columns} columns for 4 heads in .* groups, with values of"):
            attend(np.zeros((2, 7, columns)), 4, **options)


def test_nothing_changes_what_it_is_given():
    qkv, x, gain = RNG.normal(size=(2, 3, 12)), RNG.normal(size=(2, 3, 4)), RNG.normal(size=4)
    given = [qkv, x, gain]
    before = [a.copy() for a in given]
    y, p = f.attention(qkv, 2)
    f.attention_backward(qkv, y, p, x, groups=2)
    f.layer_norm(x, gain, gain)
    f.gelu(x)
    f.swiglu(x)
    f.rms_norm(x, gain)
    f.rotary(qkv, 2, np.arange(3))
    f.linear(x, RNG.normal(size=(4, 2)))
    f.cross_entropy(gain[None], np.array([1]))
    for a, b in zip(given, before, strict=True):
        np.testing.assert_array_equal(a, b)


X, W, B, KEEP = np.ones((2, 3, 4)), np.ones((4, 5)), np.ones(4), np.ones((2, 3, 4), bool)
QKV, Y, P = np.ones((2, 3, 12)), np.ones((2, 3, 4)), np.ones((2, 2, 3, 3))
TOKENS, ROWS = np.zeros((2, 3), np.uint8), np.arange(2)


@pytest.mark.parametrize(
    ("operation", "args", "flops"),
    [
        (f.swiglu, (X,), 10 * 12),
        (f.swiglu_backward, (X, np.ones((2, 3, 2))), 24),
        (f.rms_norm, (X, B), 4 * 24),
        (f.rms_norm_backward_input, (X, np.ones((6, 1)), B, X), 6 * 24),
        (f.rms_norm_backward_weight, (X, X, B.copy()), 2 * 24),
        (f.rotary, (QKV, 2, np.arange(3)), 6 * 2 * 3 * 2 * 2),
        (f.rotary, (QKV, 4, np.arange(3), False, 1), 6 * 2 * 3 * 5),
        (f.add, (X.copy(), X), 24),
        (f.product, (X, W), 2 * 6 * 4 * 5),
        (f.linear, (X, W, np.ones(5)), 2 * 6 * 4 * 5 + 6 * 5),
        (f.linear_backward_input, (np.ones((2, 3, 5)), W), 2 * 6 * 4 * 5),
        (f.linear_backward_weight, (X, np.ones((2, 3, 5)), W.copy(), np.ones(5)), 2 * 6 * 4 * 5 + 20 + 30 + 5),
        (f.embedding, (TOKENS, W), 0),
        (f.embedding_backward, (TOKENS, X, np.ones((9, 4))), 24),
        (f.positions, (X.copy(), np.ones((3, 4))), 24),
        (f.positions_backward, (X, np.ones((3, 4))), 24 + 12),
        (f.gelu, (X,), 15 * 24),
        (f.gelu_backward, (X, X), 24),
        (f.layer_norm, (X, B, B), 7 * 24),
        (f.layer_norm_backward_input, (X, np.ones((6, 1)), B, X), 8 * 24),
        (f.layer_norm_backward_weight, (X, X, B.copy(), B.copy()), 3 * 24),
        (f.dropout, (X, KEEP, 0.5), 2 * 24),
        (f.kept, (X.shape, X, 1, (ROWS, np.arange(3)), 0, 0.5), 9 * 24),
        (f.attention, (QKV, 2), 2 * (2 * 2 * 2 * 9 * 2) + 7 * 36),
        (f.attention, (QKV, 2, None, 0.0, 1, 6), 2 * 2 * 2 * 9 * (2 + 6) + 7 * 36),
        (partial(f.attention_backward, groups=2), (QKV, Y, (P,), Y), 4 * (2 * 2 * 2 * 9 * 2) + 3 * 36 + 2 * 24),
        (
            partial(f.attention_backward, groups=1),
            (QKV, np.ones((2, 3, 12)), (P,), np.ones((2, 3, 12))),
            2 * (2 * 2 * 2 * 9 * (2 + 6)) + 3 * 36 + 2 * 72 + 24 + 72,
        ),
        (f.cross_entropy, (np.ones((6, 5)), np.zeros(6, int)), 5 * 30),
        (f.cross_entropy_backward, (np.ones((6, 5)), np.zeros(6, int), 1.0), 30),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_operation_is_charged(operation, args, flops):
    meter = Meter()
    with metered(meter):
        results = operation(*args)
    assert meter.flops == flops
    if operation is f.kept:  # of x it reads the shape alone
        assert meter.bytes == KEEP.nbytes
        return
    once = num_bytes([args, results])  # vectors are not charged; some results are read again
    assert 0.8 * once <= meter.bytes <= 2.5 * once


def num_bytes(found):
    """Of all arrays in nested tuples and lists."""
    if isinstance(found, (tuple, list)):
        return sum(map(num_bytes, found))
    return found.nbytes if isinstance(found, np.ndarray) else 0


@pytest.mark.parametrize("operation", [lambda x: f.attention(x, 2), lambda x: f.rotary(x, 2, np.arange(x.shape[1]))])
def test_long_phantom_texts_take_little_memory(operation):
    tracemalloc.start()
    try:
        operation(phantom((1, 1 << 15, 3 * 2 * 64)))
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 1 << 20
