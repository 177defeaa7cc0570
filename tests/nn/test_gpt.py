"""The whole GPT against finite differences, and, where PyTorch is installed, against its autograd."""

import numpy as np
import pytest
from small_gpt import LATENT, LLAMA, RECOMPUTED, SMALL, arrays, bound, gradient_of, in_pytorch, noise, windows

from simdist.arrays import Meter, metered, phantom
from simdist.errors import ArgumentError, ArrayError, UnknownNameError
from simdist.nn import Observer, Shape, gpt
from simdist.nn.shape import BLOCKS

DIFFERENT = [
    {"tied": True},
    {"tied": False},
    {"block": "llama"},
    {"block": "llama", "kv_latent_width": 3, "query_latent_width": 5, "rope_width": 2},
    {"kv_heads": 1},
    {"block": "llama", "experts": 3, "capacity_factor": 3.0, "alpha": 0.0},
]


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("more", DIFFERENT, ids=str)
@pytest.mark.parametrize("told", [(), (noise(3),)], ids=["whole", "dropout"])
def test_gradient_against_finite_differences(more, told):
    model = bound(Shape(2, 8, 2, 5, vocabulary=11, dropout=0.3, ffn_width=9, **more))
    batch = windows(3, Shape(1, 1, 1, 5, vocabulary=11))
    flat = model.parameters.data
    flat += np.random.default_rng(2).normal(size=flat.size) * 0.3  # away from where biases and gains are trivial
    _, gradient = gradient_of(model, batch, *told)
    for name, span in model.parameters.spans.items():
        for i in np.random.default_rng(1).integers(span.start, span.stop, size=8):
            kept, values = flat[i], []
            for flat[i] in (kept + 1e-5, kept - 1e-5):
                values.append(model.forward(batch, *told)[0] / 2)
            flat[i] = kept
            slope = (values[0] - values[1]) / 2e-5
            assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-7), name


def test_untrained_it_takes_all_bytes_for_about_as_likely():
    total, _ = bound(SMALL).forward(windows(50))
    assert total / 250 == pytest.approx(np.log(256), abs=0.05)


@pytest.mark.parametrize("shape", [SMALL, LLAMA, LATENT], ids=str)
def test_it_sees_no_future(shape):
    model, batch = bound(shape), windows(2)
    other = batch.copy()
    other[:, 3:] += 1
    logits, later = (model.layers.forward(x[:, :-1])[0] for x in (batch, other))
    np.testing.assert_array_equal(logits[:, :3], later[:, :3])
    assert not np.allclose(logits[:, 3:], later[:, 3:])


@pytest.mark.parametrize("wrong", [11, 300, -1])
def test_a_target_beyond_the_vocabulary_is_an_error_as_in_pytorch(wrong):
    """Its loss was that of no class, if it was a text's last token, which is none of the inputs."""
    torch = pytest.importorskip("torch")
    model, batch = bound(Shape(1, 8, 2, 5, vocabulary=11)), windows(2, Shape(1, 1, 1, 5, vocabulary=11)).astype(int)
    batch[1, -1] = wrong
    logits, _ = model.layers.forward(batch[:, :-1])
    with pytest.raises(IndexError, match="out of bounds"):
        torch.nn.functional.cross_entropy(torch.tensor(logits).reshape(-1, 11), torch.tensor(batch[:, 1:]).reshape(-1))
    with pytest.raises(ArrayError, match=f"^a target is {wrong}; needs at least 0 and less than 11, the number of"):
        model.forward(batch)


def test_a_text_needs_a_token():
    model = bound(SMALL)
    with pytest.raises(ArrayError, match="^windows of 1 token; this model needs at least 2, the last to predict$"):
        model.forward(windows(2)[:, :1])
    for wrong, told in (
        (windows(2)[:, :0], r"uint8 of shape \(2, 0\)"),
        (np.zeros((2, 3)), "float64 of shape"),
        ([], r"\[\]"),
    ):
        with pytest.raises(ArrayError, match=f"^tokens are {told}.*; needs uint8 of shape"):
            model.logits(wrong)
    assert model.logits(windows(0)[:, :3]).shape == (0, 256), "of no texts there are none"


def test_fewer_tokens_than_places_are_enough_and_more_are_too_many():
    model, batch = bound(SMALL), windows(2)
    whole, part = (model.layers.forward(x)[0] for x in (batch[:, :5], batch[:, :3]))
    np.testing.assert_allclose(whole[:, :3], part, rtol=1e-12)
    with pytest.raises(ArrayError, match="6 tokens; this model has 5 places"):
        model.layers.forward(batch)


@pytest.mark.parametrize("told", [(), (noise(4),)], ids=["whole", "dropout"])
def test_recomputation_gives_the_same_bits(told):
    found = [gradient_of(bound(shape), windows(4), *told) for shape in RECOMPUTED]
    for total, gradient in found[1:]:
        assert total == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])


@pytest.mark.parametrize("shape", RECOMPUTED, ids=lambda shape: shape.recompute)
def test_the_halves_of_backward_make_the_whole(shape):
    model, batches = bound(shape), (windows(3), windows(3, seed=6))
    whole = sum(gradient_of(model, batch, noise(3))[1] for batch in batches)
    model.parameters.gradient[...] = 0
    contexts = [model.forward(batch, noise(3))[1] for batch in batches]
    pending = [model.backward_input(context, 0.5) for context in contexts]
    assert not model.parameters.gradient.any(), "weight gradients are for the other half"
    for context, rest in zip(contexts, pending, strict=True):
        model.backward_weight(context, rest)
    np.testing.assert_allclose(model.parameters.gradient, whole, rtol=1e-11, atol=1e-14)


def test_parts_of_a_batch_add_up_to_the_whole_with_the_same_dropout():
    model, batch = bound(RECOMPUTED[0]), windows(5)
    total, whole = gradient_of(model, batch, noise(5))
    assert total != model.forward(batch)[0]
    parts = [slice(0, 2), slice(2, 2), slice(2, 5)]
    found = [gradient_of(model, batch[part], noise(5).part(part)) for part in parts]
    assert sum(part for part, _ in found) == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(sum(gradient for _, gradient in found), whole, rtol=1e-10, atol=1e-13)


def test_float32_stays_float32_from_end_to_end():
    class Types(Observer):
        def after_backward(self, layer):
            found.extend(p.gradient.dtype for p in layer.parameters)

    found = []
    model = bound(RECOMPUTED[0], np.float32)
    _, context = model.forward(windows(3), noise(3))
    assert {x.dtype for x in arrays(context) if x.dtype.kind == "f"} == {np.dtype(np.float32)}
    assert model.backward_input(context, 0.5, Types()) is not None
    assert set(found) == {np.dtype(np.float32)}


def test_full_recomputation_keeps_nothing_of_a_block_but_its_input():
    kept = {}
    for shape in RECOMPUTED:
        context = bound(shape).forward(windows(4), noise(4))[1]
        kept[shape.recompute] = sum({id(x): x.nbytes for x in arrays(context[0][1:-1])}.values())
    samples_and_input = 4 * 5 * 8 * 8
    assert kept["full"] == 2 * samples_and_input
    assert kept["none"] - kept["selective"] == 2 * (9 * 4 * 2 * 5 * 5)  # p in float64, and a byte of its mask


class Diary(Observer):
    def __init__(self, model):
        self.number = {id(layer): i for i, layer in enumerate(model.layers.layers)}
        self.lines = []

    def before_forward(self, layer):
        self.lines.append(f"f{self.number[id(layer)]}")

    def after_forward(self, layer):
        self.lines.append(f"F{self.number[id(layer)]}")

    def before_backward(self, layer):
        self.lines.append(f"b{self.number[id(layer)]}")

    def after_backward(self, layer):
        self.lines.append(f"B{self.number[id(layer)]}")

    def gradients_complete(self, parameters):
        self.lines.append([p.name for p in parameters])


@pytest.mark.parametrize("halves", [False, True])
def test_an_observer_hears_of_every_layer_and_of_every_gradient_once(halves):
    model = bound(SMALL)
    diary = Diary(model)
    _, context = model.forward(windows(1), None, diary)
    assert diary.lines == ["f0", "F0", "f1", "F1", "f2", "F2", "f3", "F3"]
    diary.lines.clear()
    if halves:
        model.backward_weight(context, model.backward_input(context, 1.0, diary), diary)
    else:
        model.backward(context, 1.0, diary)
    said = [line for line in diary.lines if isinstance(line, str)]
    assert said == ["b3", "B3", "b2", "B2", "b1", "B1", "b0", "B0"]
    told = [line for line in diary.lines if isinstance(line, list)]
    assert told[0] == ["norm.gain", "norm.bias"]
    assert told[-1] == ["embedding.tokens", "embedding.places"], "the tied table gets its last part here"
    assert [name for names in told[::-1] for name in names] == list(model.parameters.spans)
    assert diary.lines[-1] == told[-1]


def test_a_gradient_said_to_be_complete_does_not_change_any_more():
    class Snapshots(Observer):
        def gradients_complete(self, parameters):
            found.extend((p, p.gradient.copy()) for p in parameters)

    found = []
    model = bound(SMALL)
    model.backward(model.forward(windows(2))[1], 1.0, Snapshots())
    assert len(found) == len(model.parameters)
    for parameter, then in found:
        np.testing.assert_array_equal(parameter.gradient, then, err_msg=parameter.name)


def test_first_values_are_those_of_gpt_2():
    model = bound(Shape(layers=8, width=64, heads=2, context=32))
    spread = {p.name: float(p.data.std()) for p in model.parameters}
    assert spread["block3.qkv.w"] == pytest.approx(0.02, rel=0.05)
    assert spread["block7.thought.w"] == pytest.approx(0.02 / 4, rel=0.05)
    assert spread["block0.hidden.b"] == 0
    assert next(p for p in model.parameters if p.name == "norm.gain").data.tolist() == [1] * 64


@pytest.mark.parametrize("shape", [*RECOMPUTED, LLAMA, LATENT, Shape(1, 8, 2, 130, dropout=0.3)], ids=str)
def test_without_numbers_it_costs_the_same(shape):
    meters = []
    for kind in ("numpy", "phantom"):
        model, batch = gpt(shape), windows(3, shape)
        size = model.parameters.size
        model.parameters.bind(*(np.zeros((2, size), np.float32) if kind == "numpy" else [phantom(size)] * 2))
        meters.append(Meter())
        with metered(meters[-1]):
            total, context = model.forward(batch if kind == "numpy" else phantom(batch.shape, np.uint8), noise(3))
            model.backward(context, 1.0)
        assert np.isnan(total) == (kind == "phantom")
    assert meters[0].flops == meters[1].flops
    assert meters[0].bytes == pytest.approx(meters[1].bytes, rel=0.1)  # a phantom text uses every token


def test_a_shape_must_be_possible():
    with pytest.raises(ArgumentError, match="width is 10 and heads is 4"):
        Shape(1, 10, 4, 8)
    with pytest.raises(ArgumentError, match="context is 0; needs at least 1"):
        Shape(1, 8, 4, 0)
    with pytest.raises(ArgumentError, match="dropout is 1"):
        gpt(Shape(1, 8, 4, 8, dropout=1.0))
    with pytest.raises(ArgumentError, match="kv_heads is 3 and heads is 4; needs a divisor"):
        Shape(1, 8, 4, 8, kv_heads=3)
    with pytest.raises(ArgumentError, match="ffn_width is 0; needs at least 1"):
        Shape(1, 8, 4, 8, ffn_width=0)
    with pytest.raises(ArgumentError, match="width is 12 and heads is 4; .* needs an even number"):
        Shape(1, 12, 4, 8, block="llama")
    with pytest.raises(ArgumentError, match="head_width is 5; .* needs an even number"):
        Shape(1, 12, 4, 8, block="llama", head_width=5)
    with pytest.raises(ArgumentError, match="head_width is 0; needs at least 1"):
        Shape(1, 12, 4, 8, head_width=0)
    for wrong, message in (
        ({"rope_width": 2, "kv_latent_width": None}, "rope_width is 2, and there is no kv_latent_width; needs both"),
        ({"query_latent_width": 0}, "query_latent_width is 0; needs at least 1"),
        ({"rope_width": 3}, "rope_width is 3; blocks of llama rotate pairs of features, and here 3 of a head"),
        ({"head_width": 1}, "head_width is 1; blocks of llama rotate pairs of features, and here 0 of a head"),
        ({"kv_heads": 2}, "kv_heads is 2 and kv_latent_width is 6; takes one of them"),
        ({"qk_norm": True}, "qk_norm is True and kv_latent_width is 6; takes one of them"),
        ({"block": "gpt2"}, "block is gpt2 and kv_latent_width is 6; needs blocks of llama"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Shape(1, 16, 4, 8, **{"block": "llama", "kv_latent_width": 6} | wrong)
    assert Shape(1, 10, 4, 8, head_width=5).attention_width == 20  # and 10 is no multiple of 4
    with pytest.raises(UnknownNameError, match="did you mean 'llama'"):
        Shape(1, 8, 4, 8, block="lama")
    with pytest.raises(UnknownNameError, match="did you mean 'full'"):
        Shape(1, 8, 4, 8, recompute="ful")


# -- PyTorch ------------------------------------------------------------------------------------------


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("block", [*BLOCKS, "qwen2", "qwen3", "deepseek"])
@pytest.mark.parametrize(
    ("tied", "context", "kv_heads", "head_width"),
    [(True, 17, 6, None), (False, 17, 2, None), (True, 150, 3, None), (True, 17, 2, 6), (False, 150, 6, 2)],
)
def test_gradients_against_pytorch(tied, context, kv_heads, head_width, block):
    torch = pytest.importorskip("torch")
    sizes = {"kv_heads": kv_heads, "head_width": head_width, "ffn_width": 40}
    if block == "qwen2":
        block, sizes = "llama", sizes | {"qkv_bias": True}
    if block == "qwen3":
        block, sizes = "llama", sizes | {"qk_norm": True, "rope_base": 1e6}
    if block == "deepseek":  # some without a latent vector for queries, some with half a head for RoPE
        block, sizes = "llama", sizes | {"kv_heads": None, "kv_latent_width": 10, "head_width": 2 * (head_width or 4)}
        sizes |= {"query_latent_width": 14 if tied else None, "rope_width": 6 if context == 17 else None}
    shape = Shape(3, 24, 6, context, tied=tied, block=block, **sizes)
    model, batch = bound(shape), windows(6, shape)
    total, context = model.forward(batch)
    model.backward(context, 1.0)
    weights = {p.name: torch.tensor(p.data, requires_grad=True) for p in model.parameters}
    loss = in_pytorch(torch, shape, weights, batch)
    loss.backward()
    assert total == pytest.approx(loss.item(), rel=1e-12)
    for p in model.parameters:
        np.testing.assert_allclose(p.gradient, weights[p.name].grad.numpy(), rtol=1e-10, atol=1e-10, err_msg=p.name)


@pytest.mark.parametrize("block", BLOCKS)
def test_fifty_steps_of_training_against_pytorch(block):
    torch = pytest.importorskip("torch")
    shape = Shape(layers=2, width=16, heads=2, context=12, block=block, ffn_width=64)
    model = bound(shape)
    weights = {p.name: torch.tensor(p.data, requires_grad=True) for p in model.parameters}
    sgd = torch.optim.SGD(weights.values(), lr=0.5)
    first, last = 0.0, 0.0
    for step in range(50):
        batch = windows(4, shape, seed=step % 3)
        model.parameters.gradient[...] = 0
        total, context = model.forward(batch)
        model.backward(context, 1 / 48)
        model.parameters.data -= 0.5 * model.parameters.gradient
        sgd.zero_grad()
        loss = in_pytorch(torch, shape, weights, batch) / 48
        loss.backward()
        sgd.step()
        last = total / 48
        first = first or last
        assert last == pytest.approx(loss.item(), rel=1e-9), f"step {step}"
    assert last < first - 0.5
