"""The oracles are the paper's equations, with the nearest code found by comparing all, and AdamW itself."""

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.optim import AdamW, AdamW8bit, Schedule
from simdist.optim.dynamic_code import dynamic_code

BLOCK = 32


def quantized(x, signed):
    """Each block by its largest, each number by the nearest of the map, all in plain steps."""
    out = np.empty_like(x)
    values = dynamic_code(signed).values
    for start in range(0, len(x), BLOCK):
        block = x[start : start + BLOCK]
        scale = np.abs(block).max() or np.float32(1)
        nearest = np.abs(values[None] - (block / scale)[:, None]).argmin(axis=1)
        out[start : start + BLOCK] = values[nearest] * scale
    return out


def test_it_follows_the_paper():
    rng = np.random.default_rng(0)
    w = rng.normal(size=1000).astype(np.float32)
    options = {"betas": (0.8, 0.95), "epsilon": 1e-3, "weight_decay": 0.1, "decay": [slice(0, 500)]}
    ours, rule = w.copy(), AdamW8bit(w, **options, block=BLOCK)
    decay = np.where(np.arange(1000) < 500, np.float32(0.1), np.float32(0))
    for t in range(1, 4):
        g = rng.normal(size=1000).astype(np.float32)
        stored = rule.vectors()
        m = np.float32(0.8) * stored["m"] + np.float32(0.2) * g
        v = np.float32(0.95) * stored["v"] + np.float32(0.05) * g**2
        expected = ours - 0.01 * ((m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-3) + decay * ours)
        rule.step(ours, g, 0.01)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)
        for name, x, signed in (("m", m, True), ("v", v, False)):
            best = np.abs(quantized(x, signed) - x)
            assert (np.abs(rule.vectors()[name] - x) <= best + np.abs(x) / 2000).all()
    assert rule.state["m"].dtype == np.uint8


def test_the_largest_of_a_block_is_exact():
    x = np.zeros(4 * BLOCK, np.float32)
    x[[3, BLOCK + 1, 2 * BLOCK + 7]] = 0.3, -12.0, 1e-30
    rule = AdamW8bit(x, block=BLOCK)
    rule.restore({"m": x, "v": np.abs(x)}, 1)
    np.testing.assert_array_equal(rule.vectors()["m"], x)
    np.testing.assert_array_equal(rule.vectors()["v"][x != 0], np.abs(x[x != 0]))


@pytest.mark.parametrize(("start", "size"), [(0, 5000), (7, 5000), (31, 1), (64, 64), (5, 20), (30, 5), (40, 300)])
def test_coding_again_changes_nothing(start, size):
    rng = np.random.default_rng(size)
    rule = AdamW8bit(np.zeros(size, np.float32), block=BLOCK, start=start)
    rule.restore({"m": rng.normal(size=size).astype(np.float32), "v": rng.random(size, np.float32)}, 1)
    first = rule.vectors()
    rule.restore(first, 1)
    for name, x in rule.vectors().items():
        np.testing.assert_array_equal(x, first[name])
    assert len(rule.state["m_scale"]) == len({(start + i) // BLOCK for i in range(size)})


def test_blocks_are_those_of_the_whole_vector():
    x = np.random.default_rng(3).normal(size=10 * BLOCK).astype(np.float32)
    rule, shard = AdamW8bit(x, block=BLOCK), AdamW8bit(x[7:], block=BLOCK, start=7)
    rule.restore({"m": x, "v": np.abs(x)}, 1)
    shard.restore({"m": x[7:], "v": np.abs(x[7:])}, 1)
    np.testing.assert_array_equal(shard.vectors()["m"][BLOCK - 7 :], rule.vectors()["m"][BLOCK:])


def test_an_outlier_blurs_its_own_block_alone():
    rng = np.random.default_rng(1)
    m = rng.normal(size=4 * BLOCK).astype(np.float32)
    rule = AdamW8bit(m, block=BLOCK)
    rule.restore({"m": m, "v": np.abs(m)}, 1)
    before = rule.vectors()["m"]
    m[BLOCK] = 1e7
    rule.restore({"m": m, "v": np.abs(m)}, 1)
    after = rule.vectors()["m"]
    changed = (before != after).reshape(4, BLOCK)
    np.testing.assert_array_equal(changed.any(axis=1), [False, True, False, False])


def test_it_finds_the_minimum_as_adamw_does():
    """A least-squares fit."""
    rng = np.random.default_rng(2)
    features = rng.normal(size=(400, 300)).astype(np.float32)
    target = features @ rng.normal(size=300).astype(np.float32)
    losses, schedule = [], Schedule(0.1, 400)
    for rule_of in (AdamW, AdamW8bit):
        w = np.zeros(300, np.float32)
        rule = rule_of(w, weight_decay=0.0)
        for _ in range(400):
            error = features @ w - target
            rule.step(w, features.T @ error / 400, schedule(rule.num_steps))
        losses.append(float(np.mean(error**2)))
    assert max(losses) < 1e-3 * np.mean(target**2), losses


def test_small_gradients_beside_large_ones_take_no_longer_steps_than_adamws():
    """Their squares are lost in the block's, and in the steps in which they vanish nothing brings them back."""
    sizes = np.geomspace(1, 1e-8, BLOCK).astype(np.float32)
    moved = []
    for rule_of in (AdamW, lambda w, **options: AdamW8bit(w, block=BLOCK, **options)):
        w = np.zeros(BLOCK, np.float32)
        rule, farthest = rule_of(w, weight_decay=0.0), np.zeros(BLOCK, np.float32)
        for step in range(60):
            before = w.copy()
            rule.step(w, sizes if step % 3 == 0 else sizes * (sizes == 1), 0.01)
            np.maximum(farthest, np.abs(w - before), out=farthest)
        moved.append(farthest)
    assert (moved[1] < 3 * moved[0]).all()


def test_blocks_have_limits():
    with pytest.raises(ArgumentError, match="block is 0"):
        AdamW8bit(np.zeros(3), block=0)
