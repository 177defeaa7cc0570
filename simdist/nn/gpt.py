"""The GPT: a decoder-only transformer that predicts every token of a text from those before it."""

import math
from collections.abc import Callable

from simdist.arrays import Array
from simdist.errors import ArrayError, require_kind
from simdist.nn.layers import Layer, Recompute, Residual, Sequence
from simdist.nn.model import Model
from simdist.nn.parts import Parts
from simdist.nn.shape import Shape

__all__ = ["gpt"]

_STD = 0.02


def gpt(shape: Shape, parts: Parts | None = None) -> Model:
    r"""A language model of pre-norm blocks: causal self-attention, then an MLP, each with a residual connection.

        tokens     t h e _ r a n …      context of them, and the position of each
                   | | | | | | |
        x          = = = = = = =        width numbers each
                   |
                   +--> norm -> q k v -> attention -> linear --+          Llama: RoPE before attention
                   |<------------------------------------------+      layers times
                   +--> norm -> linear -> gelu -> linear ------+          Llama: swiglu
                   |<------------------------------------------+
                   |
        logits     norm -> linear       vocabulary numbers each: what comes next?

    Initial weights are normally distributed with standard deviation 0.02; in the maps that add to x it is divided by
    √(2 layers), so that x does not grow with the number of layers.

    Args:
        parts: makes the pieces; if not given, those of one process with the whole model.

    Raises:
        ArgumentError: these parts cannot make this shape.

    Source: Radford, Wu, Child, Luan, Amodei, Sutskever 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.3; Llama blocks, Touvron et al. 2023, arXiv 2302.13971, section 2.2.
    """
    require_kind("shape", shape, Shape, "published('gpt2')")
    parts = parts or Parts()
    parts.check(shape)
    h, vocabulary = shape.width, shape.vocabulary
    embedding = parts.embedding("embedding", vocabulary, 0 if shape.is_llama else shape.context, h, _STD)
    layers: list[Layer] = [Sequence([embedding, parts.dropout("embedding.dropout", shape.dropout)])]
    blocks = [kind for kind, count in shape.kinds() for _ in range(count)]
    layers += [_block(f"block{i}", kind, parts) for i, kind in enumerate(blocks)]
    norm = _norm(parts, shape)("norm", h)
    table = embedding.parameters[0]
    logits = parts.tied_logits(table) if shape.tied else parts.logits("logits", h, vocabulary, _STD)
    layers.append(Sequence([norm, logits]))
    return Model(Sequence(layers), _next_tokens, shape.context, parts.loss(), lambda x: parts.padded(x, shape))


def _block(name: str, shape: Shape, parts: Parts) -> Layer:
    """Attention and MLP, each with a residual connection around it."""
    h, residual_std = shape.width, _STD / math.sqrt(2 * shape.layers)
    biases, norm = not shape.is_llama, _norm(parts, shape)
    attention = [
        norm(f"{name}.norm1", h),
        parts.heads(name, shape, _STD),
        *([parts.qk_norm(f"{name}.qk_norm", shape)] if shape.qk_norm else []),
        *([parts.rotary(shape)] if shape.is_llama else []),
        parts.attention(f"{name}.attention", shape),
        parts.row(f"{name}.attended", shape.attention_width, h, residual_std, biases),
        parts.dropout(f"{name}.dropout1", shape.dropout),
    ]
    mlp = [
        norm(f"{name}.norm2", h),
        parts.perceptron(name, shape, _STD, residual_std),
        parts.dropout(f"{name}.dropout2", shape.dropout),
    ]
    block = Sequence([Residual(Sequence(attention)), Residual(Sequence(mlp))])
    return Recompute(block) if shape.recompute == "full" else block


def _norm(parts: Parts, shape: Shape) -> Callable[[str, int], Layer]:
    """The method that makes its norms."""
    return parts.rms_norm if shape.is_llama else parts.norm


def _next_tokens(windows: Array) -> tuple[Array, Array]:
    """Each token's target is the one after it."""
    if windows.shape[1] < 2:
        raise ArrayError("windows of 1 token; this model needs at least 2, the last to predict")
    return windows[:, :-1], windows[:, 1:]
