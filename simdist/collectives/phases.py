"""Phases: formulas of what crosses different links, inside nodes and between them."""

from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf
from typing import TypeVar

from simdist.collectives.cost import Case, Cost, Formula, Links

__all__ = ["OverNodes", "Phase", "in_turn", "longest", "over_nodes", "phase"]


class Phase(Formula):
    """A Formula of messages whose way is known: inside nodes, or from several ranks of a node at once to others."""

    _senders: int
    _places: int

    @property
    def senders(self) -> int:
        """See Formula."""
        return self._senders

    def over_links(self, links: Links) -> float:
        """See Formula. Two places share a card if they are a multiple of the number of cards apart."""
        if self._senders:
            most = min(ceil(self._senders / min(1, links.cards)), ceil(self._places / links.cards))
            links = links._replace(link=links.link.among(most, 1), cards=inf)
        return super().over_links(links)


def phase(counts: Formula, senders: int, places: int = 0) -> Phase:
    """These counts as a phase in which ranks of a node send to other nodes at once.

    Args:
        senders: how many do, at most; 0 if all messages stay inside nodes.
        places: how many places of the node they are spread over; by default they sit side by side.
    """
    found = Phase(*counts)
    found._senders, found._places = senders, places or senders
    return found


class OverNodes(Formula):
    """The Formula of several phases, one after the other or all at once, each over its own link. Its counts are those
    of all together. `over_nodes`, `in_turn` and `longest` make it.
    """

    _phases: Sequence[Formula]
    _together: Callable[[Iterable[float]], float]

    @property
    def senders(self) -> int:
        """See Formula."""
        return max(each.senders for each in self._phases)

    def over_links(self, links: Links) -> float:
        """See Formula."""
        return self._together(each.over_links(links) for each in self._phases)


def longest(counts: Formula, *phases: Formula) -> Formula:
    """The Formula of phases that run at once: it has these counts, and takes as long as the longest of the phases."""
    found = OverNodes(*counts)
    found._phases, found._together = phases, max
    return found


Counts = TypeVar("Counts", Cost, Formula)


def in_turn(*parts: Counts) -> Counts:
    """The cost, or the formula, of several collectives one after the other; of a formula each keeps its own links."""
    counts = [sum(counts) for counts in zip(*parts, strict=True)]
    if isinstance(parts[0], Cost):
        return Cost(*counts)
    if all(type(part) is Formula for part in parts):
        return Formula(*counts)
    found = OverNodes(*counts)
    found._phases, found._together = parts, sum
    return found


def over_nodes(case: Case, inside: Formula, between: Formula, senders: int | None = None) -> Formula:
    """The Formula of phases inside nodes and of phases between them, in turn; on a single node, just their sum.

    Args:
        senders: how many ranks of a node take part in the phases between nodes; by default all.
    """
    if case.on_one_node:
        return in_turn(inside, between)
    return in_turn(phase(inside, 0), phase(between, case.per_node if senders is None else senders))
