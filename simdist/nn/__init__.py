"""Models of one process: forward and backward by hand, parameters in one flat vector."""

from simdist.nn.gpt import gpt
from simdist.nn.layers import Embedding, Gelu, Layer, Linear, Observer, Sequence
from simdist.nn.mlp import mlp
from simdist.nn.model import Model
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter, Parameters
from simdist.nn.shape import Shape

__all__ = [
    "Embedding",
    "Gelu",
    "Layer",
    "Linear",
    "Model",
    "Noise",
    "Observer",
    "Parameter",
    "Parameters",
    "Sequence",
    "Shape",
    "gpt",
    "mlp",
]
