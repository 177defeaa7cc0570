"""Gates, balance and the ways to the slots and back: against the papers' algorithms, and finite differences."""

import numpy as np
import pytest
from finite_differences import near, slope

from simdist.arrays import Meter, metered
from simdist.errors import ArgumentError
from simdist.nn import functional as f

RNG = np.random.default_rng(11)


def algorithm_1(p, top_k, capacity):
    """GShard's gating of one group, line by line, of any number of choices: {(token, expert): place}."""
    tokens, experts = p.shape
    count, places = [0] * experts, {}
    for j in range(top_k):
        for s in range(tokens):
            e = np.argsort(-p[s], kind="stable")[j]
            if count[e] < capacity:
                places[s, e] = count[e]
            count[e] += 1
    return places


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_gate(top_k):
    z, weigh = RNG.normal(size=(6, 4)), RNG.normal(size=(6, top_k))
    p, chosen, w = f.gate(z, top_k)
    near(p, np.exp(z) / np.exp(z).sum(axis=1, keepdims=True))
    for row, best, weights in zip(p, chosen, w, strict=True):
        expected = np.sort(row)[::-1][:top_k]
        near(row[best], expected)
        near(weights, expected if top_k == 1 else expected / expected.sum())
    found = f.gate_backward(p, chosen, w, weigh)
    near(found, slope(lambda: float((f.gate(z, top_k)[2] * weigh).sum()), z))


def test_no_logit_is_too_large_and_of_equal_ones_the_first_wins():
    p, chosen, w = f.gate(np.array([[0, 2000, 1000], [-1e30, -1e30, -1e30], [5.0, 7, 7]], np.float32), 2)
    assert chosen.tolist() == [[1, 2], [0, 1], [1, 2]]
    near(w, [[1, 0], [0.5, 0.5], [0.5, 0.5]])
    assert p.dtype == np.float32


def test_z_loss():
    z = RNG.normal(size=(5, 4)) * 3
    total, dz = f.z_loss(z)
    assert total == pytest.approx((np.log(np.exp(z).sum(axis=1)) ** 2).sum())
    near(dz, slope(lambda: f.z_loss(z)[0], z))
    assert f.z_loss(np.zeros((3, 8)))[0] == pytest.approx(3 * np.log(8) ** 2)
    assert f.z_loss(np.full((1, 2), 1e3, np.float32))[0] == pytest.approx((1e3 + np.log(2)) ** 2)  # none is too large


@pytest.mark.parametrize("top_k", [1, 2])
def test_balance(top_k):
    """Equations 4 to 6 of the Switch Transformer, of each of two groups, one of which has fewer tokens."""
    z, group = RNG.normal(size=(10, 4)), np.array([0] * 6 + [1] * 4)
    p, chosen, w = f.gate(z, top_k)
    total, dp = f.balance(p, chosen, group, 2)
    expected = 0.0
    for g in range(2):
        own = p[group == g]
        share = np.bincount(own.argmax(axis=1), minlength=4) / len(own)
        expected += len(own) * 4 * (share * own.mean(axis=0)).sum()
    assert total == pytest.approx(expected)
    zero = np.zeros((10, top_k))
    found = f.gate_backward(p, chosen, w, zero, dp)
    near(found, slope(lambda: f.balance(*f.gate(z, top_k)[:2], group, 2)[0], z))


@pytest.mark.parametrize("experts", [1, 2, 8])
def test_balance_is_one_a_token_where_all_is_even_and_as_many_as_experts_where_one_takes_all(experts):
    tokens = 8 * experts
    group = np.zeros(tokens, int)
    even = np.full((tokens, experts), 1 / experts)
    assert f.balance(even, (np.arange(tokens) % experts)[:, None], group, 1)[0] == pytest.approx(tokens)
    one = np.zeros((tokens, experts))
    one[:, 0] = 1
    assert f.balance(one, np.zeros((tokens, 1), int), group, 1)[0] == pytest.approx(tokens * experts)


@pytest.mark.parametrize(
    ("tokens", "experts", "factor", "top_k", "slots"),
    [
        (64, 8, 1.0, 1, 8),
        (64, 8, 1.25, 1, 10),
        (64, 8, 1.0, 2, 16),  # GShard's 2N / (G E)
        (24, 5, 1.0, 1, 5),  # rounded up
        (10, 1, 1.1, 1, 11),  # and not by what floats are off
        (3, 8, 1.0, 1, 1),
        (3, 8, 0.01, 1, 1),
    ],
)
def test_capacity(tokens, experts, factor, top_k, slots):
    assert f.capacity(tokens, experts, factor, top_k) == slots


@pytest.mark.parametrize("capacity", [1, 2, 3, 9])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_places_are_those_of_algorithm_1(top_k, capacity):
    tokens, experts, groups, slots = 8, 3, 4, 50
    p = RNG.random((groups * tokens, experts))
    group = np.arange(groups * tokens) // tokens
    chosen = np.argsort(-p, axis=1, kind="stable")[:, :top_k]
    kept, asked, dropped = f.assign(chosen, experts, group, groups, capacity, slots)
    found = [(int(t), int(s)) for who, places in kept for t, s in zip(who, places, strict=True)]
    expected = []
    for g in range(groups):
        places = algorithm_1(p[group == g], top_k, capacity)
        expected += [(g * tokens + s, e * slots + g * capacity + at) for (s, e), at in places.items()]
    assert sorted(found) == sorted(expected)
    assert len({slot for _, slot in found}) == len(found), "nobody shares a slot"
    assert asked.tolist() == np.bincount(chosen.reshape(-1), minlength=experts).tolist()
    kept_by = np.bincount([slot // slots for _, slot in found], minlength=experts)
    assert (asked - dropped).tolist() == kept_by.tolist()


def test_the_picture():
    chosen = np.array([[1], [1], [0], [1], [2], [0], [2], [1]])
    kept, asked, dropped = f.assign(chosen, 3, np.arange(8) // 4, 2, 2, 4)
    ((tokens, slots),) = kept
    shown = dict(zip(slots.tolist(), tokens.tolist(), strict=True))
    assert shown == {0: 2, 2: 5, 4: 0, 5: 1, 6: 7, 10: 4, 11: 6}
    assert (asked.tolist(), dropped.tolist()) == ([2, 4, 2], [0, 1, 0])


def test_to_the_slots_and_back():
    tokens, experts, k, h = 9, 3, 2, 4
    _, chosen, w = f.gate(RNG.normal(size=(tokens, experts)), k)
    kept = f.assign(chosen, experts, np.zeros(tokens, int), 1, 4, 5).kept
    x, weigh = RNG.normal(size=(tokens, h)), RNG.normal(size=(15, h))
    filled = f.dispatch(x, kept, 15)
    whole = np.zeros((15, h))
    for who, places in kept:
        whole[places] = x[who]
    near(filled, whole)
    near(f.dispatch_backward(weigh, kept, tokens), slope(lambda: float((f.dispatch(x, kept, 15) * weigh).sum()), x))
    y, weigh = RNG.normal(size=(15, h)), RNG.normal(size=(tokens, h))

    def value():
        return float((f.combine(y, w, kept) * weigh).sum())

    dy, dw = f.combine_backward(y, w, kept, weigh)
    near(dy, slope(value, y))
    near(dw, slope(value, w))
    found = set().union(*(set(who.tolist()) for who, _ in kept))
    for token in range(tokens):
        assert f.combine(y, w, kept)[token].any() == (token in found), "who was dropped gets nothing"


def test_experts_linear():
    x, w, b = RNG.normal(size=(3, 5, 2)), RNG.normal(size=(3, 2, 4)), RNG.normal(size=(3, 4))
    weigh = RNG.normal(size=(3, 5, 4))
    near(f.experts_linear(x, w, b), np.einsum("emi,eio->emo", x, w) + b[:, None])

    def value():
        return float((f.experts_linear(x, w, b) * weigh).sum())

    dw, db = np.ones_like(w), np.ones_like(b)
    f.experts_linear_backward_weight(x, weigh, dw, db)
    near(f.experts_linear_backward_input(weigh, w), slope(value, x))
    near(dw, 1 + slope(value, w))
    near(db, 1 + slope(value, b))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_short_numbers_are_added_up_in_long_ones(dtype):
    """Against the same in float64, which sees the same rounded numbers."""
    x, w, b = (RNG.normal(size=s).astype(dtype) for s in ((2, 300, 40), (2, 40, 8), (2, 8)))
    y = f.experts_linear(x, w, b)
    assert y.dtype == dtype
    limit = 2e-3 if dtype == "float16" else 1e-5
    exact = f.experts_linear(*(a.astype(float) for a in (x, w, b)))
    np.testing.assert_allclose(y, exact, rtol=limit, atol=limit * 5)
    dw, db = np.zeros_like(w), np.zeros_like(b)
    f.experts_linear_backward_weight(x, y, dw, db)
    exact = np.einsum("emi,emo->eio", x.astype(float), y.astype(float))
    np.testing.assert_allclose(dw, exact, rtol=limit, atol=limit * np.abs(exact).max())


def test_nothing_to_do_is_done():
    nothing = np.empty((0, 3))
    p, chosen, w = f.gate(nothing, 2)
    group = np.empty(0, int)
    assert f.balance(p, chosen, group, 0)[0] == 0
    kept, asked, dropped = f.assign(chosen, 3, group, 0, 4, 4)
    assert asked.tolist() == dropped.tolist() == [0, 0, 0]
    assert not f.dispatch(nothing, kept, 12).any()
    assert f.combine(np.ones((12, 3)), w, kept).shape == (0, 3)
    assert f.gate_backward(p, chosen, w, w, p).shape == (0, 3)


def test_operations_are_charged():
    z = RNG.normal(size=(6, 4))
    p, chosen, w = f.gate(z, 2)
    group = np.zeros(6, int)
    kept = f.assign(chosen, 4, group, 1, 6, 6).kept
    y = np.ones((24, 5))
    x, out = np.ones((6, 5)), np.ones((6, 5))
    table = [
        (f.gate, (z, 2), 6 * 24),
        (f.gate_backward, (p, chosen, w, w), 6 * 24),
        (f.balance, (p, chosen, group, 1), 4 * 24),
        (f.dispatch, (x, kept, 24), 0),
        (f.dispatch_backward, (y, kept, 6), 60),
        (f.combine, (y, w, kept), 2 * 60),
        (f.combine_backward, (y, w, kept, out), 3 * 60),
        (f.experts_linear, (np.ones((2, 3, 4)), np.ones((2, 4, 5)), np.ones((2, 5))), 2 * 6 * 4 * 5 + 30),
    ]
    for operation, args, flops in table:
        meter = Meter()
        with metered(meter):
            operation(*args)
        assert meter.flops == flops, operation.__name__
        assert meter.bytes > 0


def test_no_experts_have_no_capacity():
    with pytest.raises(ArgumentError, match="experts is 0"):
        f.capacity(8, 0, 1.0)
