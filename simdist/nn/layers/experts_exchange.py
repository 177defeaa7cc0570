"""Exchange: how tokens come to their experts."""

from typing import NamedTuple

from simdist.arrays import Array

__all__ = ["Exchange", "Load"]


class Load(NamedTuple):
    """How the tokens at hand went to a layer's experts, once.

    Attributes:
        layer: its name.
        tokens: how many there were.
        asked: how often each expert was chosen, shape (E,).
        dropped: how many of these it had no slot for, shape (E,).
        slots: how many it had for them.
        auxiliary: the layer's auxiliary loss, in nats a token.
    """

    layer: str
    tokens: int
    asked: Array
    dropped: Array
    slots: int
    auxiliary: float


class Exchange:
    """Brings filled slots to where their experts are, and back; here that is where they are.

        forward     dispatch -> to_experts -> experts -> to_tokens -> combine
        backward    combine -> to_experts -> experts -> to_tokens -> dispatch

    It only moves slots, so what does it backward is the way back. Whoever has only some of the experts overrides it.
    """

    def own(self, experts: int) -> slice | None:
        """Which of so many experts are at hand; None for all, where nobody shares them."""
        return None

    def slots(self, count: int) -> int:
        """How many slots of each expert travel, if `count` are filled here: the same for all who share experts."""
        return count

    def to_experts(self, x: Array) -> Array:
        """From (E, m, h), the slots filled here, to those of the experts at hand, filled everywhere."""
        return x

    def to_tokens(self, y: Array) -> Array:
        """The way back."""
        return y

    def clock(self) -> float:
        """What time it is, in seconds."""
        return 0.0

    def tell(self, since_s: float, load: Load) -> None:
        """Record where tokens go; that was worked out since then."""
