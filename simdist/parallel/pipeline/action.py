"""Action: one operation of a pipeline rank on a micro-batch, and the values passed between them.

    F    Forward           activation in, activation out; what the backward needs of it is kept
    B    Backward          gradient in, gradient out, and the weights' gradients added up
    I    BackwardInput     the half of B that the stage before waits for: gradient in, gradient out
    W    BackwardWeight    the half that nobody waits for: the weights' gradients
    F&B  Overlapped        a Forward of one micro-batch and a Backward of another, at the same time

The stages of a model stand in line, 0 to S-1, and only this passes along it (S = 3):

             activation 1          activation 2
        F(0) -------------> F(1) -------------> F(2)
                                                  | gradient 2, which comes from the loss
        B(0) <------------- B(1) <------------- B(2)
              gradient 0            gradient 1
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

__all__ = [
    "Action",
    "Backward",
    "BackwardInput",
    "BackwardWeight",
    "Forward",
    "Overlapped",
    "Part",
    "Value",
]


class Value(NamedTuple):
    """What one action makes and another needs.

    Attributes:
        what: "activation", the output of the stage before; "gradient", of the loss by the stage's own output; or
            "pending", what BackwardInput leaves to BackwardWeight.
        stage: whose input it is.
        micro_batch: of which it is.
    """

    what: str
    stage: int
    micro_batch: int


class Action(ABC):
    """What a rank does at one place of its row."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> "tuple[Part, ...]":
        """What it consists of: itself, or the two that are done at once."""


@dataclass(frozen=True, slots=True)
class Part(Action):
    """An action on one micro-batch. It prints as its letter and the micro-batch, F0; a `Schedule`, which knows the
    stages, puts the stage before where ranks have several: 2F0.

    Args:
        micro_batch: from 0.
        chunk: which of the rank's stages, from 0, in the order in which the model has them.
    """

    micro_batch: int
    chunk: int = 0

    letter: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.letter}{self.micro_batch}"

    @property
    def parts(self) -> "tuple[Part, ...]":
        """Itself."""
        return (self,)

    @abstractmethod
    def needs(self, stage: int) -> Value | None:
        """What it needs before it can begin on this stage; None if nothing."""

    @abstractmethod
    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """What it produces on this stage, given the number of stages."""


class Forward(Part):
    """A stage's forward pass; on the last stage it ends with the loss, which gives the first gradient."""

    __slots__ = ()
    letter = "F"

    def needs(self, stage: int) -> Value | None:
        """The output of the stage before; the first has its micro-batch."""
        return Value("activation", stage, self.micro_batch) if stage else None

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The input of the stage after, or the gradient of the loss."""
        if stage == num_stages - 1:
            return (Value("gradient", stage, self.micro_batch),)
        return (Value("activation", stage + 1, self.micro_batch),)


class Backward(Part):
    """A stage's whole backward pass: gradients of its input and of its weights."""

    __slots__ = ()
    letter = "B"

    def needs(self, stage: int) -> Value | None:
        """The gradient of its output."""
        return Value("gradient", stage, self.micro_batch)

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The gradient of its input; the first stage's is nobody's."""
        return (Value("gradient", stage - 1, self.micro_batch),) if stage else ()


class BackwardInput(Part):
    """The gradient of a stage's input alone."""

    __slots__ = ()
    letter = "I"

    def needs(self, stage: int) -> Value | None:
        """The gradient of its output."""
        return Value("gradient", stage, self.micro_batch)

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """The gradient of its input, and what its other half needs."""
        pending = Value("pending", stage, self.micro_batch)
        return (Value("gradient", stage - 1, self.micro_batch), pending) if stage else (pending,)


class BackwardWeight(Part):
    """The gradients of a stage's weights, after BackwardInput."""

    __slots__ = ()
    letter = "W"

    def needs(self, stage: int) -> Value | None:
        """What BackwardInput left."""
        return Value("pending", stage, self.micro_batch)

    def gives(self, stage: int, num_stages: int) -> tuple[Value, ...]:
        """Nothing that anybody waits for."""
        return ()


@dataclass(frozen=True, slots=True)
class Overlapped(Action):
    """A forward and a backward at once, so that the messages of each overlap with the computation of the other.

    It begins when both can, and both end together.
    """

    forward: Forward
    backward: Backward | BackwardInput

    def __str__(self) -> str:
        return f"{self.forward}&{self.backward}"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The forward, then the backward."""
        return (self.forward, self.backward)
