"""The embedding cut by its vocabulary: what is done to vectors of tokens that are not here costs time too."""

import numpy as np

from simdist.arrays import Meter, metered
from simdist.parallel.tensor import Replicated, VocabularyParallelEmbedding


def test_vectors_are_masked_and_given_their_places(spmd):
    """Forward an operation an item each; backward masked, added up by token and by place, and these to the places'."""

    def program(comm):
        layer = VocabularyParallelEmbedding("it", 8, 5, 6, 1.0, Replicated(comm))
        for parameter in layer.parameters:
            parameter.data, parameter.gradient = parameter.draw(0), np.zeros(parameter.shape)
        with metered(forward := Meter()):
            y, context = layer.forward(np.arange(10, dtype=np.uint8).reshape(2, 5) % 8)
        _, pending = layer.backward_input(context, np.ones_like(y))
        with metered(backward := Meter()):
            layer.backward_weight(context, pending)
        return y.size, forward.flops, backward.flops

    assert spmd(program, 1) == [(60, 2 * 60, 3 * 60 + 5 * 6)]
