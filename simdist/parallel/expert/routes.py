"""Routes: which experts the tokens went to, read from the record of a run."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from simdist.trace import Span

__all__ = ["ROUTE", "Routed", "routes"]

ROUTE = "route"
"""The prefix of the spans that record where tokens went; the layer's name follows."""


@dataclass
class Routed:
    """Which experts the tokens of all ranks went to in one layer, over all forward passes.

    With recomputation every token counts twice; ranks of tp with the same tokens each count them.

    Attributes:
        tokens: the number of tokens.
        asked: how often each expert was chosen.
        dropped: for each expert, how many of these choices had no slot.
        slots: the number of slots per expert.
        auxiliary: the auxiliary loss, in nats per token.
        holders: for each expert, the global ranks that have it.
    """

    tokens: int = 0
    asked: list[float] = field(default_factory=list)
    dropped: list[float] = field(default_factory=list)
    slots: int = 0
    auxiliary: float = 0.0
    holders: list[set[int]] = field(default_factory=list)


def routes(spans: Iterable[Span]) -> dict[str, Routed]:
    """The routes by the name of the layer, in the order of the record."""
    found: dict[str, Routed] = {}
    for span in spans:
        word, _, layer = span.name.partition(" ")
        if word != ROUTE or not span.detail:
            continue
        told, routed = json.loads(span.detail), found.setdefault(layer, Routed())
        if not routed.asked:
            count = len(told["asked"])
            routed.asked, routed.dropped, routed.holders = [0.0] * count, [0.0] * count, [set() for _ in range(count)]
        for all_ranks, own in ((routed.asked, told["asked"]), (routed.dropped, told["dropped"])):
            all_ranks[:] = [a + b for a, b in zip(all_ranks, own, strict=True)]
        for expert in range(*told["own"]):
            routed.holders[expert].add(span.rank)
        tokens = routed.tokens + told["tokens"]
        if told["tokens"]:
            routed.auxiliary += (told["auxiliary"] - routed.auxiliary) * told["tokens"] / tokens
        routed.tokens, routed.slots = tokens, routed.slots + told["slots"]
    return found
