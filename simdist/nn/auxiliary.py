"""Auxiliary: losses of layers inside a model, in addition to the one at its end.

    with collected() as losses:            to learn their sum
        layers.forward(x)                      a layer calls add(value)
    with scaled(scale):                    the factor of all losses in backward
        layers.backward(context, dy)           a layer calls scale(), for its own part of the derivatives

A model is trained on both, but its reported loss is only the one at its end, which measures its predictions: so models
with and without such losses can be compared, and training with validation.

Like the meter, they are ambient, separate for each rank and stream, so that no other layer has to pass them on.
Losses that are not collected are dropped, and without a scale they have no derivative.
"""

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from simdist.arrays.ambient import ambient

__all__ = ["Losses", "add", "collected", "scale", "scaled"]


@dataclass
class Losses:
    """The sum of the auxiliary losses of one forward pass: in nats, over all tokens, like the loss itself."""

    total: float = 0.0


_losses: ContextVar[Losses | None] = ContextVar("simdist_losses", default=None)
_scale: ContextVar[float] = ContextVar("simdist_scale", default=0.0)


def add(value: float) -> None:
    """Add a loss to those collected, if any are."""
    losses = _losses.get()
    if losses is not None:
        losses.total += value


def collected() -> AbstractContextManager[Losses]:
    """Collect the losses that are added inside this block."""
    return ambient(_losses, Losses())


def scale() -> float:
    """The factor for losses in the current backward pass; 0 if none was set."""
    return _scale.get()


def scaled(scale: float) -> AbstractContextManager[float]:
    """Multiply auxiliary losses by `scale` in the backward passes inside this block."""
    return ambient(_scale, scale)
