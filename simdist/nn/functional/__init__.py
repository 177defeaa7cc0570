"""The operations of a model, forward and backward, as plain functions: all computation of a model is here.

    x, y    inputs and outputs, the last axis the features    dx, dy    the loss's derivatives by them
    w, b    weights (in_features, out_features), bias         dw, db    the same; a backward function adds to them

The caller owns what a function returns. A function changes only the arguments that it adds to: dw, db, and the
first argument of `add` and `positions`.

Arrays of 16 bits give arrays of 16 bits; arithmetic is in their working dtype, and rounded once (see
`simdist.arrays.working`). Statistics of rows and the loss's probabilities stay in that dtype.

Each function charges the meter: a multiplication, an addition and a transcendental function are one operation each.
Each operand counts as read or written once; for a fused kernel, only its inputs and outputs count.
"""

from simdist.nn.functional.activation import gelu, gelu_backward, swiglu, swiglu_backward
from simdist.nn.functional.dispatch import (
    Route,
    assign,
    capacity,
    combine,
    combine_backward,
    dispatch,
    dispatch_backward,
)
from simdist.nn.functional.experts import experts_linear, experts_linear_backward_input, experts_linear_backward_weight
from simdist.nn.functional.flash import flash_attention, flash_attention_backward
from simdist.nn.functional.gate import balance, gate, gate_backward, z_loss
from simdist.nn.functional.heads import attention, attention_backward
from simdist.nn.functional.lookup import embedding, embedding_backward, positions, positions_backward, within
from simdist.nn.functional.loss import cross_entropy, cross_entropy_backward
from simdist.nn.functional.mask import dropout, kept
from simdist.nn.functional.matrix import add, linear, linear_backward_input, linear_backward_weight, product
from simdist.nn.functional.norm import (
    layer_norm,
    layer_norm_backward_input,
    layer_norm_backward_weight,
    rms_norm,
    rms_norm_backward_input,
    rms_norm_backward_weight,
)
from simdist.nn.functional.rotary import ROPE_BASE, rotary

__all__ = [
    "ROPE_BASE",
    "Route",
    "add",
    "assign",
    "attention",
    "attention_backward",
    "balance",
    "capacity",
    "combine",
    "combine_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "dispatch",
    "dispatch_backward",
    "dropout",
    "embedding",
    "embedding_backward",
    "experts_linear",
    "experts_linear_backward_input",
    "experts_linear_backward_weight",
    "flash_attention",
    "flash_attention_backward",
    "gate",
    "gate_backward",
    "gelu",
    "gelu_backward",
    "kept",
    "layer_norm",
    "layer_norm_backward_input",
    "layer_norm_backward_weight",
    "linear",
    "linear_backward_input",
    "linear_backward_weight",
    "positions",
    "positions_backward",
    "product",
    "rms_norm",
    "rms_norm_backward_input",
    "rms_norm_backward_weight",
    "rotary",
    "swiglu",
    "swiglu_backward",
    "within",
    "z_loss",
]
