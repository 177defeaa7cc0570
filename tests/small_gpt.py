"""What the tests of the GPT have in common: small ones, their batches, and the same model in PyTorch."""

import numpy as np

from simdist.nn import Noise, Shape, gpt

SMALL = Shape(layers=2, width=8, heads=2, context=5)
LLAMA = Shape(layers=2, width=12, heads=3, context=5, block="llama", kv_heads=1, ffn_width=10)
LATENT = Shape(2, 12, 3, 5, block="llama", head_width=6, kv_latent_width=5, query_latent_width=7, rope_width=4)
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
    if shape.is_llama:
        return llama_in_pytorch(torch, shape, weights, batch)
    functional = torch.nn.functional
    tokens = torch.tensor(batch.astype(np.int64))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    n, t, h = len(inputs), shape.context, shape.width
    x = weights["embedding.tokens"][inputs] + weights["embedding.places"]
    for i in range(shape.layers):
        w = {name.removeprefix(f"block{i}."): value for name, value in weights.items()}
        y = functional.layer_norm(x, (h,), w["norm1.gain"], w["norm1.bias"])
        qkv = of_each_head(torch, shape, y @ w["qkv.w"] + w["qkv.b"])
        y = functional.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, t, -1) @ w["attended.w"] + w["attended.b"]
        y = functional.layer_norm(x, (h,), w["norm2.gain"], w["norm2.bias"])
        y = functional.gelu(y @ w["hidden.w"] + w["hidden.b"], approximate="tanh")
        x = x + y @ w["thought.w"] + w["thought.b"]
    x = functional.layer_norm(x, (h,), weights["norm.gain"], weights["norm.bias"])
    logits = x @ (weights["embedding.tokens"].T if shape.tied else weights["logits.w"])
    return functional.cross_entropy(logits.reshape(n * t, -1), targets.reshape(-1), reduction="sum")


def of_each_head(torch, shape, qkv):
    """Queries, keys and values, (n, h, t, d), of which heads of a group share the last two."""
    n, t, _ = qkv.shape
    split = qkv.reshape(n, t, shape.num_kv_heads, -1, shape.head_features)
    q, k, v = split[:, :, :, :-2].flatten(2, 3), split[:, :, :, -2], split[:, :, :, -1]
    shared = (x.repeat_interleave(shape.heads // shape.num_kv_heads, dim=2) for x in (k, v))
    return [x.transpose(1, 2) for x in (q, *shared)]


def llama_in_pytorch(torch, shape, weights, batch):
    """With blocks of Llama's; pairs of features are turned as complex numbers."""
    functional = torch.nn.functional
    tokens = torch.tensor(batch.astype(np.int64))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    n, t, h, d = len(inputs), shape.context, shape.width, shape.rotary_features
    angles = torch.outer(torch.arange(t).double(), shape.rope_base ** (-2 * torch.arange(d // 2).double() / d))
    turns = torch.polar(torch.ones_like(angles), angles)

    def turned(x):
        y = torch.complex(x[..., : d // 2], x[..., d // 2 :]) * turns
        return torch.cat([y.real, y.imag], dim=-1)

    x = weights["embedding.tokens"][inputs]
    for i in range(shape.layers):
        w = {name.removeprefix(f"block{i}."): value for name, value in weights.items()}
        y = functional.rms_norm(x, (h,), w["norm1.gain"], 1e-5)
        if shape.kv_latent_width is not None:
            q, k, v = of_latents(torch, shape, w, y, turned)
        else:
            q, k, v = of_each_head(torch, shape, y @ w["qkv.w"] + (w["qkv.b"] if shape.qkv_bias else 0))
            if shape.qk_norm:
                q = functional.rms_norm(q, (d,), w["qk_norm.query_gain"], 1e-5)
                k = functional.rms_norm(k, (d,), w["qk_norm.key_gain"], 1e-5)
            q, k = turned(q), turned(k)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, t, -1) @ w["attended.w"]
        y = functional.rms_norm(x, (h,), w["norm2.gain"], 1e-5)
        gate, beside = w["hidden.w"].unbind(1)
        x = x + (functional.silu(y @ gate) * (y @ beside)) @ w["thought.w"]
    x = functional.rms_norm(x, (h,), weights["norm.gain"], 1e-5)
    logits = x @ (weights["embedding.tokens"].T if shape.tied else weights["logits.w"])
    return functional.cross_entropy(logits.reshape(n * t, -1), targets.reshape(-1), reduction="sum")


def of_latents(torch, shape, w, x, turned):
    """Queries, keys and values of multi-head latent attention, equations 9 to 17 of DeepSeek-V2's paper."""
    (n, t, _), a, d, r = x.shape, shape.heads, shape.value_features, shape.rotary_features

    def latent(name):
        y = x @ w[f"{name}.down.w"]
        return torch.nn.functional.rms_norm(y, y.shape[-1:], w[f"{name}.norm.gain"], 1e-5)

    c_q = x if shape.query_latent_width is None else latent("q")
    q_content, q_rotary = (c_q @ w["q.up.w"]).reshape(n, t, a, d + r).transpose(1, 2).split([d, r], dim=-1)
    k_content, v = (latent("kv") @ w["kv.up.w"]).reshape(n, t, a, 2 * d).transpose(1, 2).split(d, dim=-1)
    k_rotary = turned(x @ w["rotary_key.w"])[:, None].expand(n, a, t, r)
    return torch.cat([q_content, turned(q_rotary)], dim=-1), torch.cat([k_content, k_rotary], dim=-1), v
