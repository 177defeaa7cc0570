"""Infinity: how much memory outside the devices a GPT needs, and how fast the links to it must be.

l  layers     h  width     a  heads     s  tokens of a sequence     b  sequences     c  layers between checkpoints

    what                   bytes                    operations for each byte that moves
    parameters, gradients  4 of the 20 a weight     s b
    optimizer's state      16 of them               s b / 4
    checkpoints            2 b s h l / c            24 h c

A step has 8 operations per weight and token, recomputation included. In it weights are read three times and gradients
written once, of 2 bytes each; the optimizer's 16 bytes and the checkpoints are read once and written once.

Source: Rajbhandari et al. 2021, ZeRO-Infinity, arXiv 2104.07857, sections 3 and 4.
"""

from typing import NamedTuple

from simdist.errors import as_declared, require_known, require_more, require_share

__all__ = ["Needs", "bandwidth", "efficiency", "infinity_bytes", "intensity"]

_MOVES = ("parameters", "optimizer", "checkpoints")


class Needs(NamedTuple):
    """Bytes of training with as much as possible outside the device.

    Attributes:
        states: weights, gradients and the optimizer's state of all layers, 20 bytes a weight: 240 l h².
        checkpoints: activations from which backward recomputes, 2 b s h l / c.
        working_states: weights and gradients of the widest linear map, on the device: 16 h².
        working_activations: recomputed on the device between two checkpoints: b s c (16 h + 2 a s).
        activations: of all layers, where nothing is recomputed: 2 b s l (16 h + 2 a s), in which the paper counts twice
            the bytes of the working ones.
    """

    states: float
    checkpoints: float
    working_states: float
    working_activations: float
    activations: float


@as_declared
def infinity_bytes(
    layers: float, width: float, heads: float, context: float, sequences: float, checkpoint_every: float = 1
) -> Needs:
    """The bytes in the paper's figure 2a. The working ones are of a device, with b its sequences.

    Raises:
        ArgumentError: checkpoint_every, c, is not above 0.
    """
    require_more("checkpoint_every", checkpoint_every, 0)
    h, tokens = width, sequences * context
    a_layer = tokens * (16 * h + 2 * heads * context)
    return Needs(
        states=240 * layers * h**2,
        checkpoints=2 * tokens * h * layers / checkpoint_every,
        working_states=16 * h**2,
        working_activations=checkpoint_every * a_layer,
        activations=2 * layers * a_layer,
    )


@as_declared
def intensity(what: str, *, context: float, sequences: float, width: float, checkpoint_every: float = 1) -> float:
    """The operations of a step for each byte that moves.

    Args:
        what: "parameters", with their gradients, "optimizer" or "checkpoints".
        sequences: b, of one device.

    Raises:
        UnknownNameError: there is no such traffic.
    """
    require_known("thing that moves", what, _MOVES)
    tokens = context * sequences
    return {"parameters": tokens, "optimizer": tokens / 4, "checkpoints": 24 * width * checkpoint_every}[what]


@as_declared
def efficiency(intensity: float, bytes_per_s: float, flops_per_s: float) -> float:
    """The share of a step in which a device computes, if transfers do not overlap with computation.

    Args:
        intensity: operations for each byte that moves: see the function `intensity`.
        bytes_per_s: the rate of transfers, per device.
        flops_per_s: the rate of the device while it computes.

    Raises:
        ArgumentError: flops_per_s is not above 0.
    """
    require_more("flops_per_s", flops_per_s, 0)
    return intensity * bytes_per_s / (intensity * bytes_per_s + flops_per_s)


@as_declared
def bandwidth(intensity: float, efficiency: float, flops_per_s: float) -> float:
    """The bytes per second and device at which `efficiency` is this much.

    Raises:
        ArgumentError: the efficiency is not between 0 and 1, or nothing is computed for a byte.
    """
    require_share("efficiency", efficiency)
    require_more("intensity", intensity, 0)
    return efficiency / (1 - efficiency) * flops_per_s / intensity
