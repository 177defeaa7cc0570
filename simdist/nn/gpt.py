"""The GPT: a transformer that guesses every token of a text from those before it."""

import math

from simdist.arrays import Array
from simdist.nn.layers import (
    Attention,
    Dropout,
    Gelu,
    Layer,
    LayerNorm,
    Linear,
    Recompute,
    Residual,
    Sequence,
    TextEmbedding,
    TiedLinear,
)
from simdist.nn.model import Model
from simdist.nn.shape import Shape

__all__ = ["gpt"]

_STD = 0.02


def gpt(shape: Shape) -> Model:
    r"""A language model with causal self-attention, normalized before each half of a block.

        tokens     t h e _ r a n …      context of them, and the place of each
                   | | | | | | |
        x          = = = = = = =        width numbers each
                   |
                   +--> norm -> q k v -> attention -> linear --+
                   |<------------------------------------------+      layers times
                   +--> norm -> linear -> gelu -> linear ------+
                   |<------------------------------------------+
                   |
        logits     norm -> linear       vocabulary numbers each: what comes next?

    Every weight starts normally distributed with standard deviation 0.02; those that add to x start smaller
    by √(2 layers), so that x does not grow with the number of layers.

    Source: Radford, Wu, Child, Luan, Amodei, Sutskever 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.3.
    """
    embedding = TextEmbedding("embedding", shape.vocabulary, shape.context, shape.width, _STD)
    layers: list[Layer] = [Sequence([embedding, Dropout("embedding.dropout", shape.dropout)])]
    layers += [_block(f"block{i}", shape) for i in range(shape.layers)]
    logits = (
        TiedLinear(embedding.tokens)
        if shape.tied
        else Linear("logits", shape.width, shape.vocabulary, std=_STD, bias=False)
    )
    layers.append(Sequence([LayerNorm("norm", shape.width), logits]))
    return Model(Sequence(layers), _next_tokens, targets_per_window=shape.context)


def _block(name: str, shape: Shape) -> Layer:
    """Attention and perceptron, each around a way past it."""
    h, residual_std = shape.width, _STD / math.sqrt(2 * shape.layers)
    attention: Layer = Attention(f"{name}.attention", shape.heads, shape.dropout)
    if shape.recompute == "selective":
        attention = Recompute(attention)
    look = [
        LayerNorm(f"{name}.norm1", h),
        Linear(f"{name}.qkv", h, 3 * h, std=_STD),
        attention,
        Linear(f"{name}.attended", h, h, std=residual_std),
        Dropout(f"{name}.dropout1", shape.dropout),
    ]
    think = [
        LayerNorm(f"{name}.norm2", h),
        Linear(f"{name}.hidden", h, 4 * h, std=_STD),
        Gelu(),
        Linear(f"{name}.thought", 4 * h, h, std=residual_std),
        Dropout(f"{name}.dropout2", shape.dropout),
    ]
    block = Sequence([Residual(Sequence(look)), Residual(Sequence(think))])
    return Recompute(block) if shape.recompute == "full" else block


def _next_tokens(windows: Array) -> tuple[Array, Array]:
    """Each token's target is the one after it."""
    return windows[:, :-1], windows[:, 1:]
