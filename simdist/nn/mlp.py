"""The multi-layer perceptron that predicts the next byte from the bytes before it."""

import math
from functools import partial

from simdist.arrays import Array
from simdist.errors import ArrayError, require_whole
from simdist.nn.layers import Embedding, Gelu, Layer, Linear, Sequence
from simdist.nn.model import Model

__all__ = ["mlp"]

_BYTES = 256


def mlp(context_bytes: int, embedding_width: int, hidden_width: int, hidden_layers: int) -> Model:
    r"""A neural language model: the window's bytes, embedded and concatenated, through hidden layers to 256 logits.

        bytes    t h e _ r a n        context_bytes of them
                 | | | | | | |        one table for all places
        vectors  = = = = = = =        context_bytes * embedding_width numbers
                  \ \ \|/ / /
        hidden     =======            hidden_width numbers, hidden_layers times
                      |
        logits     256: what comes next?

    Raises:
        ArgumentError: a width or the context is not a whole number of at least 1, or hidden_layers less than 0.

    Source: Bengio, Ducharme, Vincent, Jauvin 2003, J. Mach. Learn. Res. 3, 1137-1155: this architecture,
    with tanh for the hidden layer where here it is GELU.
    """
    require_whole("context_bytes", context_bytes, 1)
    require_whole("embedding_width", embedding_width, 1)
    require_whole("hidden_width", hidden_width, 1)
    require_whole("hidden_layers", hidden_layers, 0)
    layers: list[Layer] = [Embedding("embedding", _BYTES, embedding_width)]
    width = context_bytes * embedding_width
    for i in range(hidden_layers):
        layers += [Linear(f"hidden{i}", width, hidden_width, std=math.sqrt(2 / width)), Gelu()]
        width = hidden_width
    # The weights are small, so that all bytes are about equally likely at first.
    layers.append(Linear("logits", width, _BYTES, std=0.1 / math.sqrt(width)))
    return Model(Sequence(layers), partial(_next_byte, context_bytes))


def _next_byte(context_bytes: int, windows: Array) -> tuple[Array, Array]:
    """A window's last byte is the target, the bytes before it are the inputs."""
    if windows.shape[1] != context_bytes + 1:
        raise ArrayError(
            f"windows of {windows.shape[1]} bytes; this model needs {context_bytes + 1}, the last to predict"
        )
    return windows[:, :-1], windows[:, -1]
