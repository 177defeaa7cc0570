"""Each kernel against what it stands for."""

from functools import reduce

import ml_dtypes
import numpy as np
import pytest
from device import stands_in

from simdist.arrays import Meter, copied, metered, moved, on_host
from simdist.arrays.qkv import split_groups
from simdist.arrays.working import working_dtype
from simdist.nn import functional as f
from simdist.nn.functional import heads
from simdist.nn.functional.matrix import add_column_sums
from simdist.optim import AdamW
from simdist.optim import norm as norms

KINDS = {"float32": 2e-6, "float64": 1e-13, "bfloat16": 2e-2, "float16": 3e-3}


@pytest.fixture(params=list(KINDS))
def made(request, device):
    """made(*shape): normal numbers of a dtype, as NumPy's array; and how far results may be apart."""
    dtype, noise = np.dtype(getattr(ml_dtypes, request.param, request.param)), np.random.default_rng(3)
    return lambda *shape: noise.standard_normal(shape).astype(dtype), KINDS[request.param]


def on(*arrays):
    return [moved(x, "cupy") for x in arrays]


def aside(*arrays):
    """On the device, each where no 16 bytes can be read at once."""
    return [moved(np.concatenate([x.ravel()[:1], x.ravel()]), "cupy")[-x.size :].reshape(x.shape) for x in arrays]


def same(wanted, found, tolerance):
    """Whether arrays, or tuples of them, are alike in shape, dtype and values."""
    if isinstance(wanted, tuple):
        return len(wanted) == len(found) and all(same(x, y, tolerance) for x, y in zip(wanted, found, strict=True))
    if isinstance(wanted, float):
        return abs(wanted - found) <= tolerance * max(1, abs(wanted))
    x, y = wanted.astype(np.float64), on_host(found).astype(np.float64)
    return (
        wanted.dtype == found.dtype
        and x.shape == y.shape
        and np.abs(x - y).max() <= tolerance * max(1, np.abs(x).max())
    )


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize("width", [1, 33, 304, 2344])
def test_layer_norm(made, width, place):
    make, tolerance = made
    x, gain, bias, dy = make(3, 5, width), make(width), make(width), make(3, 5, width)
    a, g, b, da = place(x, gain, bias, dy)
    y, z, r = f.layer_norm(x, gain, bias)
    assert same((y, z, r), f.layer_norm(a, g, b), tolerance * 5)
    zs, rs = place(z, r)
    assert same(f.layer_norm_backward_input(z, r, gain, dy), f.layer_norm_backward_input(zs, rs, g, da), tolerance * 5)
    f.layer_norm_backward_weight(z, dy, gain, bias)
    f.layer_norm_backward_weight(zs, da, g, b)
    assert same((gain, bias), (g, b), tolerance * 5)


def test_layer_norm_gives_the_same_bits_wherever_weights_lie(made):
    make, _ = made
    x, gain, bias = make(3, 304), make(304), make(304)
    (a,) = on(x)
    near, far = f.layer_norm(a, *on(gain, bias)), f.layer_norm(a, *aside(gain, bias))
    assert same(tuple(map(on_host, near)), far, 0)
    (y, z, r), (g,), (h,) = near, on(gain), aside(gain)
    assert same(on_host(f.layer_norm_backward_input(z, r, g, y)), f.layer_norm_backward_input(z, r, h, y), 0)


def test_gelu(made):
    make, tolerance = made
    x, dy = make(7, 13), make(7, 13)
    a, da = on(x, dy)
    assert same(f.gelu(x), f.gelu(a), tolerance)
    assert same(f.gelu(x[:, 1:]), f.gelu(a[:, 1:]), tolerance)  # begins where no 16 bytes could be read at once
    assert same(f.gelu_backward(x, dy), f.gelu_backward(a, da), tolerance)


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (500, 33), (2101, 16), (70, 600)])
def test_gradient_of_a_bias(made, rows, width, place):
    make, tolerance = made
    given = make(rows, 2), make(rows, width), make(2, width), make(width)
    far = place(*given)
    f.linear_backward_weight(*given)
    f.linear_backward_weight(*far)
    assert same(given[3], far[3], tolerance * 5)
    f.linear_backward_weight(far[0][:0], far[1][:0], *far[2:])
    assert same(given[3], far[3], tolerance * 5)


def test_sums_of_columns_that_are_part_of_a_matrix(made):
    make, tolerance = made
    rows, sums = make(300, 40), make(40)
    a, b = on(rows, sums)
    for part in (slice(0, 32), slice(3, 35), slice(39, 40)):
        add_column_sums(rows[:, part], sums[part])
        add_column_sums(a[:, part], b[part])
    assert same(sums, b, tolerance * 5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sums_of_columns_keep_what_is_not_finite(made, value):
    rows, sums = made[0](100, 24), made[0](24)
    rows[77, 5] = value
    a, b = on(rows, sums)
    add_column_sums(a, b)
    assert np.isfinite(on_host(b).astype(float)).tolist() == [i != 5 for i in range(24)]


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize("width", [1, 33, 304, 2344])
def test_rms_norm(made, width, place):
    make, tolerance = made
    x, gain, dy = make(3, 5, width), make(width), make(3, 5, width)
    a, g, da = place(x, gain, dy)
    y, z, r = f.rms_norm(x, gain)
    assert same((y, z, r), f.rms_norm(a, g), tolerance * 5)
    zs, rs = place(z, r)
    assert same(f.rms_norm_backward_input(z, r, gain, dy), f.rms_norm_backward_input(zs, rs, g, da), tolerance * 5)
    f.rms_norm_backward_weight(z, dy, gain)
    f.rms_norm_backward_weight(zs, da, g)
    assert same(gain, g, tolerance * 5)


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize("width", [1, 13, 16, 304])
def test_swiglu(made, width, place):
    make, tolerance = made
    x, dy = make(2, 7, 2 * width), make(2, 7, width)
    a, da = place(x, dy)
    y, slopes = f.swiglu(x)
    assert same((y, slopes), f.swiglu(a), tolerance)
    assert same(f.swiglu_backward(slopes, dy), f.swiglu_backward(*place(slopes), da), tolerance)


@pytest.mark.parametrize("groups", [1, 4])
def test_rotary(made, groups):
    make, tolerance = made
    x, places = make(2, 5, (4 + 2 * groups) * 6), np.array([0, 1, 7, 8, 300])
    for back in (False, True):
        assert same(f.rotary(x, 4, places, back, groups), f.rotary(*on(x), 4, places, back, groups), tolerance)


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize(("first", "classes"), [(0, 9), (4, 9), (4, 16), (0, 2088), (4, 2089)])
def test_cross_entropy(made, first, classes, place):
    make, tolerance = made
    logits, targets = make(6, classes), np.array([4, 5, 4, 12, 8, 6], np.uint8) - (0 if first else 4)
    logits[:, ::5] += 7  # a maximum that is met late
    a, b = place(logits, targets)
    (total, p), (found, q) = f.cross_entropy(logits, targets, first), f.cross_entropy(a, b, first)
    assert same((total, p), (found, q), tolerance)
    slope = f.cross_entropy_backward(p, targets, 0.25, logits.dtype, first)
    assert same(slope, f.cross_entropy_backward(*place(p), b, 0.25, logits.dtype, first), tolerance)


def test_cross_entropy_of_a_part_of_the_classes(made):
    """A rank's maximum and sums, and what it makes of those of all ranks."""
    make, tolerance = made
    logits, targets = make(5, 40), np.arange(17, 22)
    logits[:, 30:] -= 20
    logits[4, :20] = -np.inf  # its target is among the others
    total, p = f.cross_entropy(logits, targets)
    wide = logits.astype(p.dtype)
    exps = np.exp(wide - wide.max(axis=1)[:, None])
    of_all = {"max": wide.max(axis=1), "sum": np.stack([exps.sum(axis=1), wide[np.arange(5), targets]])}
    for part in (slice(0, 20), slice(20, 40)):
        own = {}

        def combine(values, op, own=own):
            own[op] = on_host(values).copy()
            values[...] = moved(of_all[op], values)

        found, q = f.cross_entropy(*on(logits[:, part].copy(), targets), part.start, combine)
        assert same((total, p[:, part]), (found, q), tolerance * 9)
        assert (own["max"] == wide[:, part].max(axis=1)).all()
        assert same(exps[:, part].sum(axis=1), moved(own["sum"][0], q), tolerance * 9)
        here = (part.start <= targets) & (targets < part.stop)
        assert (own["sum"][1] == np.where(here, of_all["sum"][1], 0)).all(), "the target's logit, on one rank alone"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("all_of_them", [False, True])
def test_cross_entropy_of_what_is_not_finite(made, value, all_of_them):
    make, tolerance = made
    logits, targets = make(3, 600), np.array([0, 1, 2])
    logits[1, : None if all_of_them else 300] = value
    with np.errstate(all="ignore"):
        wanted, p = f.cross_entropy(logits, targets)
    found, q = f.cross_entropy(*on(logits, targets))
    assert np.array_equal([wanted], [found], equal_nan=True)
    assert np.array_equal(np.isnan(p).any(axis=1), np.isnan(on_host(q)).any(axis=1))
    assert same(p[::2].copy(), q[::2], tolerance)


def apart(x):
    """A contiguous copy on the device that begins where no 16 bytes could be read at once."""
    (a,) = on(np.concatenate([x.reshape(-1)[:1], x.reshape(-1)]))
    return a[1:].reshape(x.shape)


@pytest.mark.parametrize("put", [lambda x: on(x)[0], apart])
@pytest.mark.parametrize(("keys", "queries"), [(1, 1), (7, 7), (33, 33), (64, 64), (100, 36), (100, 35)])
def test_softmax_of_the_keys_that_a_query_sees(made, put, keys, queries):
    from simdist.arrays.kernels.softmax import softmax, softmax_again, softmax_backward

    make, tolerance = made
    n, h, t, first, dtype = 2, 3, keys + 5, keys - queries, make(1).dtype
    s, dp = (make(n, h, keys, queries).astype(working_dtype(dtype)) for _ in range(2))
    s[0, 0] *= 50
    hidden = np.arange(keys)[:, None] > np.arange(first, keys)
    wide = np.where(hidden, -np.inf, s.astype(np.float64))
    exps = np.exp(wide - wide.max(axis=2, keepdims=True))
    p, (lse,) = (exps / exps.sum(axis=2, keepdims=True)).astype(dtype), on(np.zeros((n, h, t), s.dtype))
    s[:, :, hidden], dp[:, :, hidden] = np.nan, np.nan  # nobody reads what the mask hides
    scores = put(s)
    found = softmax(scores, dtype, lse)
    assert same(p, found, tolerance)
    assert (found is scores) == (dtype == s.dtype), "in place, where it fits"
    assert not on_host(found)[:, :, hidden].any()
    assert not on_host(lse)[..., :first].any()
    assert not on_host(lse)[..., keys:].any()
    want = np.log(exps.sum(axis=2)) + wide.max(axis=2)
    assert np.allclose(on_host(lse)[..., first:keys], want, rtol=3e-6, atol=3e-6)
    assert same(p, softmax_again(put(s), dtype, lse), max(tolerance, 1e-5))
    sums = np.zeros((n, h, t), s.dtype)
    sums[..., first:keys] = np.nansum(dp * p.astype(s.dtype), axis=2)
    slope = np.where(hidden, 0, (dp - sums[:, :, None, first:keys]) * p.astype(s.dtype) * s.dtype.type(0.3))
    found = softmax_backward(put(dp), put(p), *on(sums), 0.3)
    assert same(slope.astype(dtype), found, 1e-36)  # CuPy has kernels flush the subnormal numbers of float32


def test_softmax_of_scores_that_are_no_numbers(made):
    from simdist.arrays.kernels.softmax import softmax

    make, tolerance = made
    t, dtype = 40, make(1).dtype
    s = make(1, 1, t, t).astype(working_dtype(dtype))
    s[..., 3, 8], s[..., 30, 31], s[..., 5, 9] = np.nan, np.nan, np.inf
    s[..., :40, 20], s[..., 1:, 21], s[..., :32, 33] = -np.inf, -np.inf, -np.inf
    s[..., 2, 1] = np.nan  # hidden by the mask
    wide = np.where(np.arange(t)[:, None] > np.arange(t), -np.inf, s.astype(np.float64))
    with np.errstate(invalid="ignore"):
        exps = np.exp(wide - wide.max(axis=2, keepdims=True))
    want = np.where(np.arange(t)[:, None] > np.arange(t), 0, exps / exps.sum(axis=2, keepdims=True))
    found = on_host(softmax(*on(s), dtype, *on(np.zeros((1, 1, t), s.dtype)))).astype(np.float64)
    assert sorted(set(np.nonzero(np.isnan(want))[3].tolist())) == [8, 9, 20, 31]
    assert np.allclose(want, found, rtol=0, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("put", [lambda x: on(x)[0], apart])
@pytest.mark.parametrize(
    ("h", "groups", "e", "w"),
    [(4, 4, 5, 3), (6, 2, 8, 16), (4, 1, 16, 8), (2, 2, 12, 8), (3, 3, 1, 1), (4, 2, 300, 304)],
)
def test_heads_are_copied_bit_for_bit(made, put, h, groups, e, w):
    from simdist.arrays.kernels.heads import joined, joined_qkv, split, split_qkv

    def bits(*arrays):
        return [(x.shape, x.dtype, on_host(x).tobytes()) for x in arrays]

    make, _ = made
    n, t, dtype = 2, 3, make(1).dtype
    qkv = make(n, t, h * e + groups * (e + w))
    qkv[0, 0, 0] = -0.0
    parts = [x.reshape(n, groups, -1, t, x.shape[-1]) for x in split_groups(qkv, h, groups, w)]
    parts = [np.repeat(x, h // groups // x.shape[2], axis=2).reshape(n, h, t, -1) for x in parts]
    assert bits(*parts) == bits(*split_qkv(put(qkv), h, groups, w))
    across = put(qkv.swapaxes(0, 1).copy()).swapaxes(0, 1)
    assert bits(*parts) == bits(*split_qkv(across, h, groups, w))
    v, columns = parts[2], parts[2].swapaxes(1, 2).reshape(n, t, h * w)
    assert bits(v, columns) == bits(split(put(columns), h), joined(put(v)))
    for kind in {working_dtype(dtype), dtype if groups == h else working_dtype(dtype)}:
        given, want = [make(n, h, t, width).astype(kind) for width in (e, e, w)], np.empty_like(qkv)
        dq, dk, dv = (x.reshape(n, groups, -1, t, x.shape[-1]) for x in given)
        for to, x in zip(split_groups(want, h, groups, w), (dq, dk.sum(axis=2), dv.sum(axis=2)), strict=True):
            to[...] = x.astype(dtype)
        assert bits(want) == bits(joined_qkv(*map(put, given), *on(qkv), groups))


@pytest.mark.parametrize("put", [lambda x: on(x)[0], apart])
@pytest.mark.parametrize(("h", "d"), [(1, 1), (3, 5), (5, 64), (130, 8)])
def test_product_of_each_head(made, put, h, d):
    from simdist.arrays.kernels.heads import dots

    make, _ = made
    y, dy = make(2, 3, h * d), make(2, 3, h * d)
    wide = y.astype(working_dtype(y.dtype)) * dy.astype(working_dtype(y.dtype))
    assert same(wide.reshape(2, 3, h, d).sum(axis=3).swapaxes(1, 2), dots(put(y), put(dy), h), 2e-6)


@pytest.mark.parametrize("put", [lambda x: on(x)[0], apart])
@pytest.mark.parametrize("size", [1, 5, 64, 67])
def test_dropout_of_probabilities_gives_the_same_numbers(made, put, size):
    from simdist.arrays.kernels.attention import _dropped

    def equal(wanted, found):
        return np.array_equal(wanted.astype(float), on_host(found).astype(float), equal_nan=True)

    make, _ = made
    p, keep = make(2, 3, size, size), np.random.default_rng(4).random((2, 3, size, size + 1)) > 0.3
    p[0, 0, 0, 0] = np.nan
    w = p.astype(working_dtype(p.dtype)) * keep[..., 1:]
    w *= 1 / (1 - 0.3)
    a, (mask,) = put(p), on(keep)
    assert equal(w.astype(p.dtype), _dropped(a, mask[..., 1:], 0.3))
    assert equal(p, a)
    _dropped(a, put(keep[..., 1:]), 0.3, out=a)
    assert equal(w.astype(p.dtype), a)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("w", [5, 3, 8])
def test_attention(made, long, drop, groups, w, monkeypatch):
    from simdist.arrays.kernels import attention

    if long:
        monkeypatch.setattr(attention, "_LONGEST", 4)
        monkeypatch.setattr(attention, "_TILE", 4)
    make, tolerance = made
    n, t, h, e = 2, 9, 4, 5
    qkv, dy = make(n, t, h * e + groups * (e + w)), make(n, t, h * w)
    keep = np.random.default_rng(4).random((n, h, t, t)) > 0.3 if drop else None
    y, p = heads.attention(qkv, h, keep, 0.3, groups, w)
    dqkv = heads.attention_backward(qkv, y, p, dy, keep, 0.3, groups=groups)
    a, da = on(qkv, dy)
    kept = None if keep is None else moved(keep, a)
    z, q = f.attention(a, h, kept, 0.3, groups, w)
    assert q[0].ndim == (3 if long else 4)
    assert same(y, z, tolerance)
    assert same(dqkv, f.attention_backward(a, z, q, da, kept, 0.3, groups=groups), 2 * tolerance)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("tile", [4, 16])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("w", [None, 3])
def test_flash_attention(made, tile, drop, groups, w, monkeypatch):
    from simdist.arrays.kernels import attention

    monkeypatch.setattr(attention, "_TILE", tile)
    make, tolerance = made
    n, t, h, e = 2, 9, 4, 5
    qkv, dy = make(n, t, h * e + groups * (e + (w or e))), make(n, t, h * (w or e))
    mask = np.random.default_rng(4).random((n, h, t, t)) > 0.3
    keep = (lambda samples, keys, queries: mask[samples, :, keys, queries]) if drop else None
    y, lse = f.flash_attention(qkv, h, keep, 0.3, groups, w)
    dqkv = f.flash_attention_backward(qkv, y, lse, dy, keep, 0.3, groups=groups)
    a, da = on(qkv, dy)
    kept = (lambda *tile: moved(keep(*tile), a)) if drop else None
    z, found = f.flash_attention(a, h, kept, 0.3, groups, w)
    assert same((y, lse), (z, found), tolerance)
    assert same(dqkv, f.flash_attention_backward(a, z, found, da, kept, 0.3, groups=groups), 2 * tolerance)


def far_from_true(qkv, dy, h, groups):
    """By name: how far NumPy is from NumPy in float64, and how far one kernel is, from the same short numbers."""
    from simdist.arrays.kernels import flash

    given = on(qkv, dy)
    assert flash.takes(given[0], h, groups, None)

    def passes(qkv, dy):
        y, lse = f.flash_attention(qkv, h, groups=groups)
        return y, lse, f.flash_attention_backward(qkv, y, lse, dy, groups=groups)

    true = passes(qkv.astype(np.float64), dy.astype(np.float64))
    return {
        name: [np.linalg.norm(np.float64(on_host(x)) - want) / np.linalg.norm(want) for x in (numpys, ours)]
        for name, want, numpys, ours in zip(("y", "lse", "dqkv"), true, passes(qkv, dy), passes(*given), strict=True)
    }


@pytest.mark.slow(but=6)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("e", "t"), [(16, 1), (64, 128), (32, 200), (80, 100)])
@pytest.mark.parametrize(("h", "groups"), [(2, 2), (4, 2), (3, 1)])
def test_attention_in_one_kernel(device, dtype, e, t, h, groups):
    """As near to the truth as NumPy in this dtype, or nearly."""
    draw = np.random.default_rng(t).standard_normal
    qkv, dy = draw((2, t, (h + 2 * groups) * e)).astype(dtype), draw((2, t, h * e)).astype(dtype)
    for name, far in far_from_true(qkv, dy, h, groups).items():
        assert far[1] <= 3 * far[0] + 1e-6, (name, far)


@pytest.mark.parametrize("e", [16, 80])
def test_attention_in_one_kernel_of_scores_too_large_for_an_exponential(device, e):
    draw = np.random.default_rng(e).standard_normal
    qkv, dy = draw((1, 70, 3 * e)).astype(np.float16), draw((1, 70, e)).astype(np.float16)
    qkv[..., : 2 * e] *= 8
    for name, far in far_from_true(qkv, dy, 1, 1).items():
        assert far[1] <= 3 * far[0] + 1e-6, (name, far)


@pytest.mark.parametrize("e", [16, 80])
def test_attention_in_one_kernel_takes_gradients_wherever_they_lie(device, e):
    qkv, dy = (np.random.default_rng(e).standard_normal((2, 20, n * e)).astype(np.float16) for n in (6, 2))
    (a,) = on(qkv)
    y, lse = f.flash_attention(a, 2)
    near, far = (f.flash_attention_backward(a, y, lse, *put(dy), groups=2) for put in (on, aside))
    assert same(on_host(near), far, 0)
    (across,) = on(dy.swapaxes(0, 1).copy())
    assert same(on_host(near), f.flash_attention_backward(a, y, lse, across.swapaxes(0, 1), groups=2), 0)


def test_attention_in_one_kernel_is_for_some_only(device, monkeypatch):
    from simdist.arrays.kernels import flash

    taken = {
        (dtype, e, w): flash.takes(on(np.ones((1, 3, 4 * e + 2 * (e + w)), dtype))[0], 4, 2, w)
        for dtype in (np.float16, np.float32)
        for e, w in ((16, 16), (128, 128), (24, 24), (144, 144), (16, 32))
    }
    assert [key for key, found in taken.items() if found] == [(np.float16, 16, 16), (np.float16, 128, 128)]
    (qkv,), (unaligned,) = (put(np.ones((2, 4, 96), np.float16)) for put in (on, aside))
    taken = [flash.takes(x, 2, 2, None) for x in (qkv, qkv[:1], qkv[:0], qkv[:, ::2], unaligned)]
    assert taken == [True, True, False, False, False]
    for name, least, limit in (("_LONGEST", 4, 3), ("LEAST_CAPABILITY", device.capability(), device.capability() + 1)):
        with monkeypatch.context() as patch:
            patch.setattr(flash, name, least)  # tokens, or ten times the capability
            assert flash.takes(qkv, 2, 2, None)
            patch.setattr(flash, name, limit)
            assert not flash.takes(qkv, 2, 2, None)


def test_attention_in_one_kernel_is_charged_by_the_pairs_that_its_blocks_multiply(device):
    n, t, h, groups, e = 2, 70, 2, 1, 32
    qkv, dy = on(np.ones((n, t, (h + 2 * groups) * e), np.float16), np.ones((n, t, h * e), np.float16))
    with metered(forward := Meter()):
        y, lse = f.flash_attention(qkv, h, groups=groups)
    with metered(backward := Meter()):
        f.flash_attention_backward(qkv, y, lse, dy, groups=groups)
    by_128_queries, by_64_keys = n * h * t * t, n * h * (64 * 64 + 6 * t)
    assert forward.flops == by_128_queries * (2 * 2 * e + 7)
    assert forward.bytes == qkv.nbytes + y.nbytes + lse.nbytes
    assert backward.flops == by_64_keys * (4 * 2 * e + 5) + by_128_queries * (3 * 2 * e + 5)
    assert backward.bytes == 2 * (qkv.nbytes + y.nbytes) + 3 * lse.nbytes


@pytest.mark.parametrize("w", [5, 3])
def test_attention_is_charged_as_by_numpy(device, w):
    """But for y · dy, which no product of matrices is."""
    n, t, h, e = 2, 9, 4, 5
    qkv, dy = np.ones((n, t, h * (2 * e + w))), np.ones((n, t, h * w))

    def flops(qkv, dy):
        with metered(forward := Meter()):
            y, p = f.attention(qkv, h, value_width=w)
        with metered(backward := Meter()):
            f.attention_backward(qkv, y, p, dy, groups=h)
        return forward.flops, backward.flops

    forward, backward = flops(qkv, dy)
    assert flops(*on(qkv, dy)) == (forward, backward - 2 * dy.size)


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize("length", [16, 17, 3000])
def test_sums_round_once_and_give_numpys_bits(made, length, place):
    make, _ = made
    y = make(5, 3, length)
    shapes = [(5, 3, length), (3, length), (length,), (1, length), (3, 1), (1,), ()]
    for x in [make(*shape).astype(dtype) for shape in shapes for dtype in (y.dtype, np.float32)]:
        sums = y.copy()
        b, *far = place(y, x)
        f.add(sums, x)
        assert f.add(b, *far) is b
        assert same(sums, b, 0)
    a, b = place(y, make(5, 2 * length))
    want = y[:, 0] + on_host(b)[:, ::2]
    assert same(want, f.add(a[:, 0], b[:, ::2]), 0)  # neither is contiguous


def test_sums_of_more_numbers_than_threads_read_at_once(made, monkeypatch):
    from simdist.arrays.kernels import source

    monkeypatch.setattr(source, "_MOST_BLOCKS", 1)
    y, row = made[0](103, 40), made[0](40)
    for x in (y, row):
        a, b = on(y, x)
        with metered(here := Meter()):
            sums = f.add(y.copy(), x)
        with metered(there := Meter()):
            assert same(sums, f.add(a, b), 0)
        assert (here.flops, here.bytes) == (there.flops, there.bytes) == (y.size, 2 * y.nbytes + x.nbytes)


def test_kernels_add_and_round_what_lies_in_order_and_cupy_the_rest(device):
    if not stands_in():
        pytest.skip("the stand-in alone keeps what is launched")
    from cupy.host_kernel import launches

    def launched(call, y, x):
        before = len(launches)
        call(y, x)
        return launches[before:]

    y, row = on(np.ones((4, 6), np.float16), np.ones(6, np.float32))
    assert launched(f.add, y, y) == ["add_same"]
    assert launched(f.add, y, row) == ["add_repeated"]
    for x in (row[:1], y[:, :1], *on(np.ones(6, np.int8))):
        assert launched(f.add, y, x) == []
    assert launched(f.add, y[:, ::2], y[:, 1::2]) == launched(f.add, y[:0], y[:0]) == []
    wide, widest = on(np.ones((4, 6), np.float32), np.ones((4, 6)))
    assert launched(copied, y, wide) == launched(copied, wide, y) == ["cast"]
    for to, x in ((y, y), (wide, widest), (y, widest), (y[::2], wide[::2]), (wide, row)):
        assert launched(copied, to, x) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sums_keep_what_is_not_finite(made, value):
    y, x = made[0](4, 24), made[0](24)
    x[5] = value
    a, b = on(y, x)
    assert np.array_equal(on_host(f.add(a, b)).astype(float), f.add(y, x).astype(float), equal_nan=True)
    assert f.add(a[:0], b).shape == (0, 24)


@pytest.mark.parametrize("width", [16, 33])
def test_linear_adds_a_row(made, width):
    make, tolerance = made
    x, w, b = make(6, 3), make(3, width), make(width)
    assert same(f.linear(x, w, b), f.linear(*on(x, w, b)), 2 * tolerance)
    x, w, b = make(2, 6, 3), make(2, 3, width), make(2, width)
    assert same(f.experts_linear(x, w, b), f.experts_linear(*on(x, w, b)), 2 * tolerance)


def test_vectors_of_positions(made):
    make, _ = made
    x, table = make(3, 5, 16), make(8, 16)
    a, b = on(x, table)
    assert f.positions(a, b) is a
    assert same(f.positions(x, table), a, 0)


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize(("tokens", "width"), [(10, 6), (1, 16), (90, 304), (5, 2344)])
def test_gradient_of_a_table(made, tokens, width, place):
    make, tolerance = made
    indices = np.random.default_rng(5).integers(0, 7, (3, tokens)).astype(np.uint8)
    dy, table = make(3, tokens, width), make(9, width)
    a, b, c = place(indices, dy, table)
    f.embedding_backward(indices, dy, table)
    f.embedding_backward(a, b, c)
    assert same(table, c, tolerance)
    f.embedding_backward(a[:0], b[:0], c)
    assert same(table, c, tolerance)


def test_gradient_of_a_table_is_added_in_the_order_of_its_rows(device):
    dy, table = np.array([[1e8], [1], [-1e8], [3], [1]], np.float32), np.zeros((3, 1), np.float32)
    (far,) = on(table)
    f.embedding_backward(*on(np.array([2, 2, 2, 0, 2]), dy), far)
    assert far.tolist() == [[3], [0], [1]]


def test_the_largest_value_and_the_sum_of_squares(made):
    make, _ = made
    x = make(1001)
    (a,) = on(x)
    assert norms.largest(x) == norms.largest(a) > 0
    assert norms.norm([x, x[:7]]) == norms.norm([a, a[:7]])  # the same bits
    a[500] = np.inf
    assert norms.largest(a) == np.inf
    a[700] = np.nan
    assert np.isnan(norms.largest(a))


@pytest.mark.parametrize("place", [on, aside])
@pytest.mark.parametrize("other", list(KINDS))
@pytest.mark.parametrize("size", [1, 1000, 1003])
def test_numbers_are_rounded_as_by_numpy(made, other, size, place):
    x = made[0](size) * 100
    x[-1:] = np.inf
    if (x.dtype.name, other) == ("bfloat16", "float16"):
        pytest.skip("NumPy does not round these to those")
    y = np.zeros(size, getattr(ml_dtypes, other, other))
    a, b = place(x, y)
    copied(y, x)
    copied(b, a)
    assert np.array_equal(on_host(b).view(np.uint8), y.view(np.uint8))
    copied(b[:0], a[:0])
    a[:1] = np.nan
    copied(b[::2], a[::2])  # not contiguous
    copied(b[1::2], a[:1])  # broadcast
    assert np.isnan(on_host(b)[:2].astype(float)).all()


@pytest.mark.parametrize("size", [1000, 1003, 5003])
def test_adamw_gives_the_same_bits(device, size, monkeypatch):
    from simdist.arrays.kernels import source

    monkeypatch.setattr(source, "_MOST_BLOCKS", 1)  # so each thread meets several edges
    noise = np.random.default_rng(6)
    w, g = (noise.standard_normal(size).astype(np.float32) for _ in range(2))
    decay = [slice(3, 100), slice(500, 501), slice(900, size)]
    a, b = on(w, g)
    host, far = AdamW(w, decay=decay), AdamW(a, decay=decay)
    for gradient in ((g, b), (g.astype(np.float16), moved(g.astype(np.float16), b))):
        host.step(w, gradient[0], 0.01, 0.3)
        far.step(a, gradient[1], 0.01, 0.3)
    assert (on_host(a) == w).all()
    assert all((on_host(far.state[name]) == host.state[name]).all() for name in ("m", "v"))


@pytest.mark.parametrize(("op", "by"), [("sum", np.add), ("max", np.maximum), ("lor", np.logical_or)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_many_arrays_folded_at_once(device, op, by, dtype):
    from simdist.arrays.kernels.fold import fold_to

    for ranks, size in ((2, 37), (5, 64), (34, 9)):
        xs = [np.random.default_rng(r).integers(-3, 4, size).astype(dtype) for r in range(ranks)]
        arrays = on(*xs)
        fold_to(op, arrays, arrays[1:3])
        want = reduce(by, xs).astype(dtype).tolist()
        assert [x.tolist() for x in arrays[1:3]] == [want] * len(arrays[1:3])
        assert all(arrays[i].tolist() == xs[i].tolist() for i in range(ranks) if i not in (1, 2))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_an_array_is_copied_to_many_bit_for_bit(device, count):
    from simdist.arrays.kernels.fold import copy_to

    bits = np.arange(1 << 16, dtype=np.uint16)  # every NaN among them
    (x,), outs = on(bits[1:].view(np.float16)), on(*[np.zeros(bits.size - 1, np.float16)] * count)
    copy_to(x, outs)
    assert all((on_host(y).view(np.uint16) == bits[1:]).all() for y in outs)
    copy_to(x, [])


def test_a_maximum_keeps_a_nan(device):
    from simdist.arrays.kernels.fold import fold_to

    for order in (0, 1):
        arrays = on(*[np.array([np.nan], np.float32), np.ones(1, np.float32)][:: 1 - 2 * order])
        fold_to("max", arrays, arrays[:1])
        assert np.isnan(float(arrays[0][0]))
