"""Muon takes PyTorch's steps, and its matrices those of AdamW where they are not chosen."""

import numpy as np
import pytest

from simdist.arrays import Meter, metered, phantom
from simdist.errors import ArgumentError
from simdist.optim import AdamW, Matrices, Matrix, Muon, muon_overhead
from simdist.optim.matrices import whole_here
from simdist.optim.muon import orthogonalized

SHAPES = [(24, 40), (40, 24), (17, 17), (1, 9), (300, 1000)]


def at(start, shape, name="w"):
    span = slice(start, start + int(np.prod(shape)))
    return Matrix(name, shape, shape, span, span)


def muon(like, *matrices, chosen=None, **options):
    known = Matrices(matrices, whole_here)
    return Muon(like, known, known.known if chosen is None else chosen, **options)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-13), ("float32", 1e-5)])
def test_twenty_steps_of_pytorch(monkeypatch, shape, dtype, atol):
    """Which rounds to bfloat16 before it multiplies; here it does not."""
    torch = pytest.importorskip("torch", minversion="2.9")
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    rng = np.random.default_rng(1)
    first = rng.normal(size=shape).astype(dtype)
    theirs = torch.nn.Parameter(torch.tensor(first))
    reference = torch.optim.Muon([theirs], lr=0.02, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    ours = first.reshape(-1).copy()
    rule = muon(ours, at(0, shape), momentum=0.9, weight_decay=0.1)
    for _ in range(20):
        gradient = rng.normal(size=shape).astype(dtype)
        theirs.grad = torch.tensor(gradient)
        reference.step()
        rule.step(ours, 8 * gradient.reshape(-1), 0.02, 0.125)
        np.testing.assert_allclose(ours.reshape(shape), theirs.detach().numpy(), rtol=0, atol=atol)


def test_a_step_is_as_in_bfloat16_but_for_rounding():
    torch = pytest.importorskip("torch", minversion="2.9")
    first, gradient = np.random.default_rng(2).normal(size=(2, 24, 40))
    theirs = torch.nn.Parameter(torch.tensor(first))
    theirs.grad = torch.tensor(gradient)
    torch.optim.Muon([theirs], lr=1.0, weight_decay=0, adjust_lr_fn="match_rms_adamw").step()
    ours = first.reshape(-1).copy()
    muon(ours, at(0, (24, 40)), weight_decay=0).step(ours, gradient.reshape(-1), 1.0)
    apart = np.linalg.norm(ours.reshape(24, 40) - theirs.detach().numpy())
    assert 0 < apart < 0.02 * np.linalg.norm(theirs.detach().numpy() - first)


def test_singular_values_are_about_1_and_vectors_stay():
    x = np.random.default_rng(3).normal(size=(3, 20, 50))
    found = orthogonalized(x)
    assert 0.6 < np.linalg.svd(found, compute_uv=False).min() < np.linalg.svd(found, compute_uv=False).max() < 1.25
    u, _, v = np.linalg.svd(x, full_matrices=False)
    inside = u.swapaxes(-1, -2) @ found @ v.swapaxes(-1, -2)
    assert abs(inside - inside * np.eye(20)).max() < 1e-12


def test_no_gradient_is_no_step():
    weights = np.ones(12)
    muon(weights, at(0, (3, 4)), weight_decay=0).step(weights, np.zeros(12), 0.1)
    np.testing.assert_array_equal(weights, 1)


def test_all_other_weights_are_adamws():
    rng = np.random.default_rng(4)
    inside, table = at(100, (30, 20), "w"), at(700, (10, 5), "table")
    weights, gradients = rng.normal(size=800), rng.normal(size=(3, 800))
    ours, theirs = weights.copy(), weights.copy()
    options = {"betas": (0.8, 0.95), "epsilon": 1e-3, "weight_decay": 0.1}
    rule = muon(ours, inside, table, chosen=[inside], **options)
    other = AdamW(theirs, **options, decay=[inside.span, table.span])
    for gradient in gradients:
        rule.step(ours, gradient, 0.1)
        other.step(theirs, gradient, 0.1)
    rest = np.r_[0:100, 700:800]
    np.testing.assert_array_equal(ours[rest], theirs[rest])
    assert abs(ours[100:700] - theirs[100:700]).min() > 0


def test_experts_are_matrices_each_and_gates_are_not():
    rng = np.random.default_rng(5)
    first, gradient = rng.normal(size=(2, 3 * 4 * 10))
    together, apart, wide, flat = (first.copy() for _ in range(4))
    muon(together, at(0, (3, 4, 10), "block0.experts.hidden.w")).step(together, gradient, 0.1)
    muon(apart, *(at(40 * i, (4, 10), f"w{i}") for i in range(3))).step(apart, gradient, 0.1)
    np.testing.assert_allclose(together, apart, rtol=0, atol=1e-14)
    muon(wide, at(0, (4, 3, 10))).step(wide, gradient, 0.1)
    muon(flat, at(0, (4, 30))).step(flat, gradient, 0.1)
    np.testing.assert_array_equal(wide, flat)


def test_state_is_half_of_adams_in_matrices_and_goes_on():
    inside = at(50, (20, 30))
    weights, gradients = np.ones(700, np.float32), np.random.default_rng(6).normal(size=(4, 700)).astype(np.float32)
    rule = muon(weights, inside)
    assert sum(x.nbytes for x in rule.state.values()) == 4 * (700 + 100)
    for gradient in gradients[:2]:
        rule.step(weights, gradient, 0.1)
    kept, later = {name: x.copy() for name, x in rule.vectors().items()}, weights.copy()
    assert {x.shape for x in kept.values()} == {(700,)}
    again = muon(later, inside)
    again.restore(kept, 2)
    for gradient in gradients[2:]:
        rule.step(weights, gradient, 0.1)
        again.step(later, gradient, 0.1)
    np.testing.assert_array_equal(later, weights)


@pytest.mark.parametrize("decays", [False, True])
def test_phantoms_cost_what_numbers_cost_and_as_declared(decays):
    costs = []
    for weights in (np.ones(640), phantom(640, np.float64)):
        rule = muon(weights, at(0, (20, 30)), weight_decay=0.1 * decays)
        with metered(meter := Meter()):
            rule.step(weights, weights, 0.1)
        costs.append((meter.flops, meter.bytes))
    r, c = 20, 30
    newton_schulz = 5 * (4 * r * r * c + 2 * r**3 + 2 * r * c + 3 * r * r) + 3 * r * c
    assert costs[0] == costs[1]
    assert costs[0][0] == 13 * 40 + (7 + decays) * r * c + newton_schulz


def test_what_needs_whole_matrices():
    like = np.zeros(12)
    with pytest.raises(ArgumentError, match=r"w has shape \(3, 4\) of \(3, 8\); Muon needs whole matrices"):
        muon(like, at(0, (3, 4))._replace(of=(3, 8)))
    muon(like, at(0, (1, 3, 4), "experts.w")._replace(of=(5, 3, 4)))
    rule = muon(like, at(0, (3, 8))._replace(own=slice(0, 12)))
    with pytest.raises(ArgumentError, match="of w 12 of 24 items are here, and nothing gathers the rest"):
        rule.step(like, np.ones(12), 0.1)
    with pytest.raises(ArgumentError, match="momentum"):
        muon(like, momentum=1.0)


@pytest.mark.parametrize(("width", "tokens", "percent"), [(768, 524_288, 0.7), (16_384, 16e6, 0.5)])
def test_what_it_adds_to_training(width, tokens, percent):
    """Jordan et al. 2024, of a small GPT and of Llama 3 405B."""
    assert 100 * muon_overhead(width, tokens) == pytest.approx(percent, abs=0.05)
    with pytest.raises(ArgumentError, match="batch_tokens is 0; needs at least 1"):
        muon_overhead(width, 0)


@pytest.mark.parametrize("columns", [1024, 4096])
def test_no_matrix_of_this_width_takes_more(columns):
    meter, tokens = Meter(), 2**20
    with metered(meter):
        orthogonalized(phantom((1, 1024, columns)))
    share = meter.flops / (6 * 1024 * columns * tokens)
    assert share < muon_overhead(1024, tokens) * 1.01  # for what is no product of matrices
    assert columns > 1024 or share == pytest.approx(muon_overhead(1024, tokens), rel=0.01)
