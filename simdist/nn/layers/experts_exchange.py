"""Exchange: moves tokens to their experts and back."""

from collections.abc import Callable
from typing import NamedTuple

from simdist.arrays import Array

__all__ = ["Exchange", "Load"]


class Load(NamedTuple):
    """The load of a layer's experts from this rank's tokens, in one forward.

    Attributes:
        layer: its name.
        tokens: the number of tokens.
        asked: how often each expert was chosen, shape (E,).
        dropped: how many of these choices found no slot, shape (E,).
        slots: the slots that each expert had for them.
        auxiliary: the layer's auxiliary loss, in nats per token.
    """

    layer: str
    tokens: int
    asked: Array
    dropped: Array
    slots: int
    auxiliary: float


class Exchange:
    """Moves filled slots to their experts, and back; in one process there is nothing to move.

        forward     dispatch -> to_experts -> experts -> to_tokens -> combine
        backward    combine -> to_experts -> experts -> to_tokens -> dispatch

    It only moves slots, so the backward of one direction is the other. A rank with only some of the experts overrides
    it.
    """

    def own(self, experts: int) -> slice | None:
        """Which of the experts this rank has; None for all, if they are not shared."""
        return None

    def slots(self, count: int) -> int:
        """The slots sent per expert if this rank fills `count`: the same on all ranks that share experts."""
        return count

    def to_experts(self, x: Array) -> Array:
        """From (E, m, h), this rank's slots of all experts, to all ranks' slots of this rank's experts."""
        return x

    def to_tokens(self, y: Array) -> Array:
        """The way back."""
        return y

    def through(self, x: Array, work: Callable[[Array], Array]) -> Array:
        """There, through the work of this rank's experts, and back.

        Args:
            x: as of `to_experts`.
            work: from what `to_experts` returns to the same shape; it may be called with a part of the slots at a time.
        """
        x = self.to_experts(x)
        return self.to_tokens(work(x))

    def clock(self) -> float:
        """The time in seconds."""
        return 0.0

    def tell(self, since_s: float, load: Load) -> None:
        """Record a load, whose routing began at `since_s`."""
