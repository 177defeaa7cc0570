"""Auxiliary: losses of layers inside a model, in addition to the one at its end.

    with collected() as losses:            whoever wants to know them
        layers.forward(x)                      a layer calls add(value)
    with scaled(scale):                    whoever goes backward says what all losses are multiplied by
        layers.backward(context, dy)           a layer calls scale(), for its own part of the derivatives

A model learns from both, but its reported loss is only the one at its end, which measures its predictions: so models
with and without such losses can be compared, and training with validation.

Like the meter it is ambient, separate for each rank and stream, so that no other layer has to pass it on. If they are
not collected they are dropped, and without a scale they have no derivative.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Losses", "add", "collected", "scale", "scaled"]


class Losses:
    """What the layers of one forward pass have added.

    Attributes:
        total: in nats, summed over the tokens as the loss itself is.
    """

    def __init__(self) -> None:
        self.total = 0.0


_losses: ContextVar[Losses | None] = ContextVar("simdist_losses", default=None)
_scale: ContextVar[float] = ContextVar("simdist_scale", default=0.0)


def add(value: float) -> None:
    """Add a loss to what is collected, if it is."""
    losses = _losses.get()
    if losses is not None:
        losses.total += value


@contextmanager
def collected() -> Iterator[Losses]:
    """Collect what is added inside this block."""
    losses = Losses()
    token = _losses.set(losses)
    try:
        yield losses
    finally:
        _losses.reset(token)


def scale() -> float:
    """The factor for losses in the current backward pass; 0 if none was set."""
    return _scale.get()


@contextmanager
def scaled(scale: float) -> Iterator[None]:
    """Inside this block, go backward from scale times the losses."""
    token = _scale.set(scale)
    try:
        yield
    finally:
        _scale.reset(token)
