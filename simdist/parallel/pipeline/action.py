"""Action: one operation of a pipeline rank on a micro-batch, and the values passed between them.

    F    Forward           activation in, activation out; keeps what backward needs
    B    Backward          gradient in, gradient out; adds to the gradients of the weights
    I    BackwardInput     the half of B that the previous stage waits for: gradient in, gradient out
    W    BackwardWeight    the half that no stage waits for: the gradients of the weights
    F&B  Overlapped        a Forward of one micro-batch and a Backward of another, at the same time

The stages of a model form a line, 0 to S-1. Only these values pass along it (S = 3):

             activation 1          activation 2
        F(0) -------------> F(1) -------------> F(2)
                                                  | gradient 2, which comes from the loss
        B(0) <------------- B(1) <------------- B(2)
              gradient 0            gradient 1
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

__all__ = ["Action", "Backward", "BackwardInput", "BackwardWeight", "Forward", "Overlapped", "Part", "Value", "pair"]


class Value(NamedTuple):
    """A value that one action produces and another needs.

    Attributes:
        what: "activation", the output of the previous stage; "gradient", of the loss with respect to the output of
            the stage; or "pending", what BackwardInput leaves for BackwardWeight.
        stage: the stage that takes it as input.
        micro_batch: its micro-batch.
    """

    what: str
    stage: int
    micro_batch: int

    @property
    def like_input_of(self) -> int:
        """The stage whose input has its shape: a gradient has that of its stage's output, the next one's input."""
        return self.stage + 1 if self.what == "gradient" else self.stage


class Action(ABC):
    """What a rank does at one place in its row."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> "tuple[Part, ...]":
        """The action itself, or the two that run at once."""


@dataclass(frozen=True, slots=True)
class Part(Action):
    """An action on one micro-batch. It prints as its letter and micro-batch, F0. Where ranks have several stages, a
    `Schedule` adds the stage: 2F0.

    Args:
        micro_batch: from 0.
        chunk: index into the rank's stages, from 0, in the order of the model.
    """

    micro_batch: int
    chunk: int = 0

    letter: ClassVar[str]
    takes: ClassVar[str]  # what value
    follows: ClassVar[str]  # the letter of the action before it on the same stage and micro-batch

    def __str__(self) -> str:
        return f"{self.letter}{self.micro_batch}"

    @property
    def parts(self) -> "tuple[Part, ...]":
        """Itself."""
        return (self,)

    def needs(self, stage: int) -> Value | None:
        """The value it needs before it can begin on this stage; None where a forward reads the micro-batch itself."""
        return Value(self.takes, stage, self.micro_batch) if stage or self.takes != "activation" else None

    @abstractmethod
    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The values it produces on this stage."""


class Forward(Part):
    """A stage's forward pass. On the last stage it ends with the loss, which gives the first gradient."""

    __slots__ = ()
    letter, takes, follows = "F", "activation", ""

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The input of the next stage, or the gradient of the loss."""
        if stage == num_stages - 1:
            return (Value("gradient", stage, self.micro_batch),)
        return (Value("activation", stage + 1, self.micro_batch),)


class Backward(Part):
    """A stage's whole backward pass: the gradients of its input and of its weights."""

    __slots__ = ()
    letter, takes, follows = "B", "gradient", "F"

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The gradient of its input, except on the first stage."""
        return (Value("gradient", stage - 1, self.micro_batch),) if stage else ()


class BackwardInput(Part):
    """The gradient of a stage's input alone."""

    __slots__ = ()
    letter, takes, follows = "I", "gradient", "F"

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The gradient of its input, and what BackwardWeight needs."""
        pending = Value("pending", stage, self.micro_batch)
        return (Value("gradient", stage - 1, self.micro_batch), pending) if stage else (pending,)


class BackwardWeight(Part):
    """The gradients of a stage's weights, after BackwardInput."""

    __slots__ = ()
    letter, takes, follows = "W", "pending", "I"

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class Overlapped(Action):
    """A forward and a backward at once, so that the messages of each overlap with the computation of the other.

    They begin when both can, and end together.
    """

    forward: Forward
    backward: Backward | BackwardInput

    def __str__(self) -> str:
        return f"{self.forward}&{self.backward}"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The forward, then the backward."""
        return (self.forward, self.backward)


def pair(parts: Sequence[Part]) -> tuple[Action, ...]:
    """A forward and the backward after it as one action; any other parts as they are."""
    match parts:
        case [Forward() as forward, (Backward() | BackwardInput()) as backward]:
            return (Overlapped(forward, backward),)
    return tuple(parts)
