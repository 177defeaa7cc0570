"""The mixture of experts, in one process: against PyTorch, finite differences, and what it promises."""

from dataclasses import replace

import numpy as np
import pytest
from small_gpt import bound, gradient_of, noise, windows

from simdist.arrays import Ledger, Meter, metered, phantom, recorded
from simdist.errors import ArgumentError
from simdist.nn import Shape, auxiliary, gpt
from simdist.nn.formulas import num_parameters
from simdist.nn.layers import Experts, Recompute

RNG = np.random.default_rng(2)
SWITCH = Shape(2, 8, 2, 6, vocabulary=11, experts=4, top_k=1, capacity_factor=0.8, alpha=0.3)
GSHARD = replace(SWITCH, top_k=2)
SHARED = replace(GSHARD, shared_experts=2, block="llama", ffn_width=10)
kinds = pytest.mark.parametrize("shape", [SWITCH, GSHARD, SHARED], ids=["switch", "gshard", "shared"])


def experts(top_k=1, factor=1.0, group=6, alpha=0.25, dtype=np.float64, count=4):
    layer = Experts("x", 5, 7, count, group=group, top_k=top_k, capacity_factor=factor, alpha=alpha)
    rng = np.random.default_rng(5)
    for p in layer.parameters:
        p.data = (rng.normal(size=p.shape) * 0.7).astype(dtype)
        p.gradient = np.zeros(p.shape, dtype)
    return layer


def in_pytorch(torch, layer, weights, x):
    """A token and an expert at a time; returns y and the auxiliary loss, summed over the tokens."""
    router, w1, b1, w2, b2 = weights
    n, t, _ = x.shape
    count, y, extra = layer.experts, torch.zeros_like(x), 0.0
    probabilities = torch.softmax(x @ router, dim=-1)
    for i in range(n):
        for start in range(0, t, layer.group):
            p = probabilities[i, start : start + layer.group]
            best = torch.topk(p, layer.top_k, dim=-1).indices
            weigh = torch.gather(p, 1, best)
            if layer.top_k > 1:
                weigh = weigh / weigh.sum(dim=1, keepdim=True)
            full = [0] * count
            for j in range(layer.top_k):
                for s in range(len(p)):
                    e = int(best[s, j])
                    if full[e] < layer.capacity:
                        hidden = torch.nn.functional.gelu(x[i, start + s] @ w1[e] + b1[e], approximate="tanh")
                        y[i, start + s] = y[i, start + s] + weigh[s, j] * (hidden @ w2[e] + b2[e])
                    full[e] += 1
            share = torch.bincount(best[:, 0], minlength=count).to(p.dtype) / len(p)
            extra = extra + len(p) * layer.alpha * count * (share * p.mean(dim=0)).sum()
    return y, extra


@pytest.mark.slow(but=4)
@pytest.mark.parametrize(("top_k", "factor"), [(1, 4.0), (1, 1.0), (1, 0.5), (2, 2.0), (2, 1.0), (2, 0.4), (3, 0.7)])
@pytest.mark.parametrize(("t", "group"), [(6, 6), (12, 4), (7, 4)], ids=["a text", "runs", "a short run"])
def test_against_pytorch(top_k, factor, t, group):
    torch = pytest.importorskip("torch")
    layer = experts(top_k, factor, group)
    x, dy, scale = RNG.normal(size=(3, t, 5)), RNG.normal(size=(3, t, 5)), 0.5
    weights = [torch.tensor(p.data, requires_grad=True) for p in layer.parameters]
    for i in (2, 4):
        weights[i] = torch.tensor(layer.parameters[i].data.reshape(4, -1), requires_grad=True)
    there = torch.tensor(x, requires_grad=True)
    expected, extra = in_pytorch(torch, layer, weights, there)
    ((expected * torch.tensor(dy)).sum() + scale * extra).backward()
    with auxiliary.collected() as losses:
        y, context = layer.forward(x)
    with auxiliary.scaled(scale):
        dx = layer.backward(context, dy)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert losses.total == pytest.approx(float(extra.detach()), rel=1e-12)
    np.testing.assert_allclose(dx, there.grad.numpy(), rtol=1e-9, atol=1e-11)
    for p, w in zip(layer.parameters, weights, strict=True):
        np.testing.assert_allclose(p.gradient, w.grad.numpy().reshape(p.shape), rtol=1e-9, atol=1e-11, err_msg=p.name)


def losses(model, batch):
    """That at the model's end, and that of its layers."""
    with auxiliary.collected() as of_layers:
        return model.forward(batch)[0], of_layers.total


@pytest.mark.slow(but=1)
@kinds
def test_every_gradient_of_a_gpt_with_that_of_the_auxiliary_loss(shape):
    """Against central differences, with weights large enough to make the router's choices clear."""
    model, batch = bound(shape), windows(3, shape)
    for p in model.parameters:
        p.data[...] *= 1 if "norm" in p.name else 10
    _, found = gradient_of(model, batch)
    weights, step = model.parameters.data, 1e-6
    for i in RNG.permutation(len(weights))[:400]:
        kept = weights[i]
        weights[i] = kept + step
        above = sum(losses(model, batch))
        weights[i] = kept - step
        below = sum(losses(model, batch))
        weights[i] = kept
        assert found[i] == pytest.approx(0.5 * (above - below) / (2 * step), rel=1e-5, abs=1e-6)


@kinds
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_auxiliary_loss_is_told_apart_and_is_alpha_a_token_at_least(shape, recompute):
    """Counted once, though what is recomputed goes forward twice."""
    batch, model = windows(3, shape), bound(replace(shape, recompute=recompute))
    with auxiliary.collected() as of_layers:
        total, context = model.forward(batch)
        model.backward(context, 1.0)
    assert total == bound(replace(shape, alpha=0.0)).forward(batch)[0]
    a_token = of_layers.total / (3 * shape.context) / shape.layers
    assert a_token == pytest.approx(0.3, rel=0.3), "at first all is about even"
    assert a_token > 0.3


def test_it_makes_loads_even():
    """From a router that sends nearly all to one expert."""

    def uneven(alpha):
        model = bound(replace(SWITCH, layers=1, experts=4, capacity_factor=4.0, alpha=alpha))
        router = next(p for p in model.parameters if p.name == "block0.experts.router.w")
        bias = next(p for p in model.parameters if p.name == "block0.norm2.bias")
        bias.data[0], router.data[0, 0] = 1.0, 1.0
        for step in range(120):
            model.parameters.gradient[...] = 0
            _, context = model.forward(windows(4, SWITCH, step))
            model.backward(context, 1 / 24)
            model.parameters.data -= 0.3 * model.parameters.gradient
        other = gpt(replace(SWITCH, layers=1, experts=4, capacity_factor=4.0, alpha=1.0))
        other.parameters.bind(model.parameters.data, model.parameters.gradient)
        return losses(other, windows(16, SWITCH, 999))[1] / (16 * SWITCH.context)

    assert uneven(0.5) < 1.3 < 1.5 < uneven(0.0)


@kinds
def test_a_text_is_routed_alike_in_any_batch(shape):
    """So a batch may be cut into micro-batches and over ranks."""
    model, batch = bound(shape), windows(5, shape)
    apart = sum(model.forward(batch[i : i + 1])[0] for i in range(5))
    assert model.forward(batch)[0] == pytest.approx(apart, rel=1e-13)


def test_what_comes_later_takes_nothing_from_a_first_choice():
    layer, x = experts(top_k=1, factor=0.6, group=12), RNG.normal(size=(2, 12, 5))
    whole, _ = layer.forward(x)
    for t in (1, 5, 11):
        np.testing.assert_allclose(layer.forward(x[:, :t])[0], whole[:, :t], rtol=1e-12)


def test_a_dropped_token_passes_by():
    layer = experts(factor=0.25, group=8)
    x = np.ones((1, 8, 5))
    y, _ = layer.forward(x)
    assert layer.capacity == 1
    assert y[0, 0].any() and not y[0, 1:].any(), "all want the same expert, the first has its only slot"


@kinds
@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation_gives_the_same_bits(shape, recompute):
    shape = replace(shape, dropout=0.3)
    kept, again = (
        gradient_of(bound(replace(shape, recompute=how)), windows(3, shape), noise(3)) for how in ("none", recompute)
    )
    assert kept[0] == again[0]
    np.testing.assert_array_equal(kept[1], again[1])


@kinds
@pytest.mark.parametrize("wrap", [lambda layer: layer, Recompute], ids=["kept", "recomputed"])
def test_the_halves_of_backward(shape, wrap):
    layer = experts(shape.top_k, 0.8)
    x, dy = RNG.normal(size=(3, 6, 5)), RNG.normal(size=(3, 6, 5))
    wrapped = wrap(layer)
    with auxiliary.scaled(0.5):
        whole = wrapped.backward(wrapped.forward(x)[1], dy)
    expected = [p.gradient.copy() for p in layer.parameters]
    for p in layer.parameters:
        p.gradient[...] = 0
    context = wrapped.forward(x)[1]
    with auxiliary.scaled(0.5):
        dx, pending = wrapped.backward_input(context, dy)
    assert not any(p.gradient.any() for p in layer.parameters)
    wrapped.backward_weight(context, pending)
    np.testing.assert_array_equal(dx, whole)
    for p, gradient in zip(layer.parameters, expected, strict=True):
        np.testing.assert_array_equal(p.gradient, gradient, err_msg=p.name)


def test_nothing_changes_what_it_is_given():
    layer, x, dy = experts(2), RNG.normal(size=(3, 6, 5)), RNG.normal(size=(3, 6, 5))
    given = [x, dy, *(p.data for p in layer.parameters)]
    before = [a.copy() for a in given]
    y, context = layer.forward(x)
    layer.backward(context, dy)
    for a, b in zip(given, before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.shares_memory(y, x)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_routers_reckon_in_float32(dtype):
    """With weights of 16 bits the choices are those of the same weights in float64."""
    layer, exact = experts(2, dtype=dtype), experts(2)
    for p, q in zip(layer.parameters, exact.parameters, strict=True):
        q.data = p.data.astype(float)
    x = RNG.normal(size=(3, 6, 5)).astype(dtype)
    (y, context), (expected, right) = layer.forward(x), exact.forward(x.astype(float))
    assert y.dtype == dtype
    assert context.p.dtype == np.float32
    np.testing.assert_array_equal(context.chosen, right.chosen)
    np.testing.assert_allclose(y, expected, atol=5e-3 if dtype == "float16" else 1e-5)
    dx = layer.backward(context, np.ones_like(x))
    assert dx.dtype == dtype
    np.testing.assert_allclose(dx, exact.backward(right, np.ones(x.shape)), atol=2e-2 if dtype == "float16" else 1e-5)


@kinds
def test_without_numbers_it_costs_the_same(shape):
    """As far as nothing is dropped: phantoms take it that nothing is."""
    shape = replace(shape, capacity_factor=4.0)
    meters, peaks = [], []
    for kind in ("numpy", "phantom"):
        model, batch, ledger = gpt(shape), windows(3, shape), Ledger()
        size = model.parameters.size
        model.parameters.bind(*(np.zeros((2, size), np.float32) if kind == "numpy" else [phantom(size)] * 2))
        if kind == "numpy":
            model.parameters.initialize(0)
        meters.append(Meter())
        with metered(meters[-1]), recorded(ledger):
            total, context = model.forward(batch if kind == "numpy" else phantom(batch.shape, np.uint8), noise(3))
            model.backward(context, 1.0)
        assert np.isnan(total) == (kind == "phantom")
        peaks.append(ledger.peaks["activations"])
    assert meters[0].flops == meters[1].flops
    assert meters[0].bytes == pytest.approx(meters[1].bytes, rel=0.1)
    assert peaks[0] == peaks[1]


def test_one_expert_that_takes_all_is_a_perceptron():
    dense, one = Shape(2, 8, 2, 6), Shape(2, 8, 2, 6, experts=1, alpha=0.0)
    a, b = bound(dense), bound(one)
    of = {p.name: p for p in a.parameters}
    for p in b.parameters:
        same = of.get(p.name.replace(".experts", ""))
        if same is not None:
            p.data[...] = same.data.reshape(p.shape)
    batch = windows(3, dense)
    assert a.forward(batch)[0] == pytest.approx(b.forward(batch)[0], rel=1e-13)


@pytest.mark.parametrize(
    "wrong", [{"top_k": 5}, {"top_k": 0}, {"factor": 0.0}, {"factor": float("nan")}, {"alpha": -1.0}, {"group": 0}]
)
def test_numbers_out_of_their_limits(wrong):
    with pytest.raises(ArgumentError, match="4 experts|(capacity_factor|alpha) is .*; needs at least 0"):
        experts(**wrong)


def test_shared_experts_are_an_mlp_beside_the_others():
    """Which has their width times their number, and the tokens that all of them drop, too."""
    model, apart = bound(SHARED), bound(replace(SHARED, shared_experts=0))
    of = {p.name: p for p in model.parameters}
    for p in apart.parameters:
        p.data[...] = of.pop(p.name).data
    sizes = {"hidden.w": (8, 2, 20), "thought.w": (20, 8)}
    assert {name: p.shape for name, p in of.items()} == {
        f"block{i}.shared.{name}": size for i in range(2) for name, size in sizes.items()
    }
    batch = windows(3, SHARED)
    assert model.forward(batch)[0] != apart.forward(batch)[0]
    for name, p in of.items():
        if "thought" in name:
            p.data[...] = 0
    assert model.forward(batch)[0] == apart.forward(batch)[0]


def test_dense_blocks_are_those_of_a_model_without_experts():
    """They come first; with the logits' place they give the same, whatever the blocks after them are."""
    shape = replace(SHARED, layers=3, dense_layers=2, dense_ffn_width=14)
    assert [(kind.experts, kind.ffn_features, count) for kind, count in shape.kinds()] == [(0, 14, 2), (4, 10, 1)]
    model = bound(shape)
    plain = bound(replace(shape, experts=0, shared_experts=0, dense_layers=0, dense_ffn_width=None, ffn_width=14))
    names = {name for name in (p.name for p in model.parameters) if name.startswith(("block0", "block1"))}
    assert names == {name for name in (p.name for p in plain.parameters) if name.startswith(("block0", "block1"))}
    assert any(p.name.startswith("block2.experts") for p in model.parameters)
    x, y = (next(iter(m.layers.layers)).forward(windows(3, shape)[:, :-1])[0] for m in (model, plain))
    for i in (1, 2):
        x, y = (m.layers.layers[i].forward(z)[0] for m, z in ((model, x), (plain, y)))
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ({"expert_every": 2}, [0, 4, 0, 4, 0, 4]),
        ({"expert_every": 3, "dense_layers": 1}, [0, 0, 0, 4, 0, 0]),
        ({"expert_every": 1, "dense_layers": 4}, [0, 0, 0, 0, 4, 4]),
        ({"expert_every": 6}, [0, 0, 0, 0, 0, 4]),
    ],
)
def test_each_so_many_th_block_has_experts(sizes, runs):
    shape = replace(SHARED, layers=6, **sizes)
    assert [kind.experts for kind, count in shape.kinds() for _ in range(count)] == runs
    assert all(kind.shared_experts == (1 if kind.experts else 0) * SHARED.shared_experts for kind, _ in shape.kinds())
    model = bound(shape)
    found = {p.name.split(".")[0] for p in model.parameters if ".experts" in p.name}
    assert found == {f"block{i}" for i, experts in enumerate(runs) if experts}
    assert model.parameters.size == num_parameters(shape)


def test_shapes_that_are_impossible():
    with pytest.raises(ArgumentError, match="top_k is 3 and experts is 2"):
        Shape(1, 8, 2, 6, experts=2, top_k=3)
    with pytest.raises(ArgumentError, match="group is 4 and context is 6"):
        Shape(1, 8, 2, 6, experts=2, group=4)
    with pytest.raises(ArgumentError, match="shared_experts is -1; needs at least 0"):
        Shape(1, 8, 2, 6, experts=2, shared_experts=-1)
    with pytest.raises(ArgumentError, match="shared_experts is 1 and experts is 0; needs 0 without"):
        Shape(1, 8, 2, 6, shared_experts=1)
    for wrong in ({"dense_layers": 2}, {"dense_layers": 1, "experts": 0}):
        with pytest.raises(ArgumentError, match="dense_layers is .*needs at most the layers, and 0 without experts"):
            Shape(1, 8, 2, 6, **{"experts": 2} | wrong)
    with pytest.raises(ArgumentError, match="dense_ffn_width is 5, dense_layers 0 and expert_every 1; needs blocks"):
        Shape(1, 8, 2, 6, experts=2, dense_ffn_width=5)
    with pytest.raises(ArgumentError, match="expert_every is 2 and experts is 0; needs 1 without experts"):
        Shape(1, 8, 2, 6, expert_every=2)
    for name, least in (
        ("dense_layers", 0),
        ("dense_ffn_width", 1),
        ("expert_every", 1),
        ("group", 1),
        ("kv_heads", 1),
    ):
        with pytest.raises(ArgumentError, match=f"{name} is {least - 1}; needs at least {least}"):
            Shape(1, 8, 2, 6, experts=2, **{name: least - 1})
    for few, least in (({"expert_every": 9}, 9), ({"expert_every": 2, "dense_layers": 1}, 3), ({"dense_layers": 2}, 3)):
        with pytest.raises(
            ArgumentError, match=f"layers 2, dense_.*: no block has experts; needs at least {least} layers"
        ):
            Shape(2, 8, 2, 6, experts=2, **few)
    with pytest.raises(ArgumentError, match="experts is -1"):
        Shape(1, 8, 2, 6, experts=-1)


@pytest.mark.parametrize(
    "name", ["experts", "top_k", "expert_every", "shared_experts", "dense_layers", "group", "kv_heads"]
)
def test_numbers_that_are_not_whole(name):
    """One and a half choices, or every 1.5th block, were a model nevertheless."""
    for wrong in (1.5, "2"):
        with pytest.raises(ArgumentError, match=f"^{name} is {wrong!r}; needs a whole number of at least"):
            Shape(4, 8, 2, 6, **{"experts": 4} | {name: wrong})
