"""Layers: forward and backward of one step of a model, with its parameters, and a context for each batch."""

from simdist.nn.layers.activation import Dropout, Gelu, SwiGLU
from simdist.nn.layers.attention import Attention
from simdist.nn.layers.embedding import Embedding, TextEmbedding
from simdist.nn.layers.experts import Experts
from simdist.nn.layers.experts_exchange import Exchange, Load
from simdist.nn.layers.experts_linear import ExpertsLinear
from simdist.nn.layers.latent_heads import LatentHeads
from simdist.nn.layers.layer import Layer, Weightless
from simdist.nn.layers.linear import Linear, TiedLinear
from simdist.nn.layers.norm import LayerNorm, RMSNorm
from simdist.nn.layers.observer import Observer
from simdist.nn.layers.qk_norm import QKNorm
from simdist.nn.layers.rotary import Rotary
from simdist.nn.layers.sequence import Sequence
from simdist.nn.layers.side_by_side import Fork, Sum
from simdist.nn.layers.wrapper import Recompute, Residual

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
