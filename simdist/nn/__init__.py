"""Models of one process: forward and backward by hand, parameters in one flat vector."""

from simdist.nn.layers import Embedding, Gelu, Layer, Linear, Sequence
from simdist.nn.mlp import mlp
from simdist.nn.model import Model
from simdist.nn.parameters import Parameter, Parameters

__all__ = ["Embedding", "Gelu", "Layer", "Linear", "Model", "Parameter", "Parameters", "Sequence", "mlp"]
