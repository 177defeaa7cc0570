"""The two halves of a whole model's backward, as the stages of a pipeline call them."""

from simdist.arrays.working import overflow
from simdist.nn import auxiliary


def backward_input(model, context, scale):
    """The half from the loss to the first layer; returns what is pending."""
    layers, of_loss = context
    with overflow(model.parameters.dtype), auxiliary.scaled(scale):
        return model.layers.backward_input(layers, model.loss.backward(of_loss, scale))[1]


def backward_weight(model, context, pending):
    """The other half."""
    with overflow(model.parameters.dtype):
        model.layers.backward_weight(context[0], pending)
