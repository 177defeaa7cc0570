"""Auxiliary: losses that layers inside a model have of their own, beside the one at its end.

    with collected() as losses:            whoever wants to know them
        layers.forward(x)                      a layer calls add(value)
    with scaled(scale):                    whoever goes backward says what all losses are multiplied by
        layers.backward(context, dy)           a layer calls scale(), for its own part of the derivatives

A model learns from both, but what it calls its loss is the one at its end alone, which says how well it guesses:
so models with such losses and without can be compared, and one's training with its validation.

Like the meter it is ambient, each rank and stream having its own, since no other layer should have to carry it.
Where nobody asks for them they are forgotten, and where nobody says a scale they have no derivative.
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
    """What losses are multiplied by in the backward pass at hand; 0 where nobody said."""
    return _scale.get()


@contextmanager
def scaled(scale: float) -> Iterator[None]:
    """Inside this block, go backward from scale times the losses."""
    token = _scale.set(scale)
    try:
        yield
    finally:
        _scale.reset(token)
