"""What the tests of the GPT have in common: small ones, their batches, and the same model in PyTorch."""

import numpy as np

from simdist.nn import Noise, Shape, gpt

SMALL = Shape(layers=2, width=8, heads=2, context=5)
RECOMPUTED = [Shape(2, 8, 2, 5, dropout=0.3, recompute=how) for how in ("none", "selective", "full")]


def bound(shape, dtype=np.float64, seed=0):
    model = gpt(shape)
    size = model.parameters.size
    model.parameters.bind(np.empty(size, dtype), np.zeros(size, dtype))
    model.parameters.initialize(seed)
    return model


def windows(n, shape=SMALL, seed=5):
    return np.random.default_rng(seed).integers(shape.vocabulary, size=(n, shape.context + 1), dtype=np.uint8)


def noise(n, **more):
    return Noise(seed=3, step=4, samples=np.arange(n) + 7, **more)


def gradient_of(model, batch, *told):
    model.parameters.gradient[...] = 0
    total, context = model.forward(batch, *told)
    model.backward(context, 0.5)
    return total, model.parameters.gradient.copy()


def arrays(context):
    """Every array that a context holds."""
    if isinstance(context, tuple | list):
        return [x for item in context for x in arrays(item)]
    return [context] if hasattr(context, "dtype") else []


def in_pytorch(torch, shape, weights, batch):
    """The same model written with PyTorch's own layers' functions; returns the summed loss."""
    functional = torch.nn.functional
    tokens = torch.tensor(batch.astype(np.int64))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    n, t, h = len(inputs), shape.context, shape.width
    x = weights["embedding.tokens"][inputs] + weights["embedding.places"]
    for i in range(shape.layers):
        w = {name.removeprefix(f"block{i}."): value for name, value in weights.items()}
        y = functional.layer_norm(x, (h,), w["norm1.gain"], w["norm1.bias"])
        qkv = (y @ w["qkv.w"] + w["qkv.b"]).reshape(n, t, shape.heads, 3, h // shape.heads).permute(3, 0, 2, 1, 4)
        y = functional.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, t, h) @ w["attended.w"] + w["attended.b"]
        y = functional.layer_norm(x, (h,), w["norm2.gain"], w["norm2.bias"])
        y = functional.gelu(y @ w["hidden.w"] + w["hidden.b"], approximate="tanh")
        x = x + y @ w["thought.w"] + w["thought.b"]
    x = functional.layer_norm(x, (h,), weights["norm.gain"], weights["norm.bias"])
    logits = x @ (weights["embedding.tokens"].T if shape.tied else weights["logits.w"])
    return functional.cross_entropy(logits.reshape(n * t, -1), targets.reshape(-1), reduction="sum")
