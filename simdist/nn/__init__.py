"""Models in a single process: hand-written forward and backward, parameters in one flat vector.

`simdist.nn.formulas` counts parameters and operations, `simdist.nn.memory` activations, here and in papers.
"""

from simdist.nn.gpt import gpt
from simdist.nn.hugging_face import read_shape, shape_from_config
from simdist.nn.layers import Embedding, Gelu, Layer, Linear, Observer, Sequence
from simdist.nn.loss import CrossEntropy, Loss
from simdist.nn.mlp import mlp
from simdist.nn.model import Model
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter, Parameters, Place
from simdist.nn.parts import Parts
from simdist.nn.published import is_published, published, published_names
from simdist.nn.shape import Shape

__all__ = [
    "CrossEntropy",
    "Embedding",
    "Gelu",
    "Layer",
    "Linear",
    "Loss",
    "Model",
    "Noise",
    "Observer",
    "Parameter",
    "Parameters",
    "Parts",
    "Place",
    "Sequence",
    "Shape",
    "gpt",
    "is_published",
    "mlp",
    "published",
    "published_names",
    "read_shape",
    "shape_from_config",
]
