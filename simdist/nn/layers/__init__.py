"""Layers: forward and backward of one step of a model, with its parameters, and a context for each batch."""

from simdist.nn.layers.activation import Dropout, Gelu, SwiGLU
from simdist.nn.layers.attention import Attention, LatentHeads, QKNorm, Rotary
from simdist.nn.layers.composite import Fork, Recompute, Residual, Sequence, Sum
from simdist.nn.layers.embedding import Embedding, TextEmbedding
from simdist.nn.layers.experts import Exchange, Experts, Load
from simdist.nn.layers.experts_linear import ExpertsLinear
from simdist.nn.layers.layer import Layer, Observer, Weightless
from simdist.nn.layers.linear import Linear, TiedLinear
from simdist.nn.layers.norm import LayerNorm, RMSNorm

__all__ = [
    "Attention",
    "Dropout",
    "Embedding",
    "Exchange",
    "Experts",
    "ExpertsLinear",
    "Fork",
    "Gelu",
    "LatentHeads",
    "Layer",
    "LayerNorm",
    "Linear",
    "Load",
    "Observer",
    "QKNorm",
    "RMSNorm",
    "Recompute",
    "Residual",
    "Rotary",
    "Sequence",
    "Sum",
    "SwiGLU",
    "TextEmbedding",
    "TiedLinear",
    "Weightless",
]
