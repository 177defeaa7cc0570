"""Copies: parameters that several ranks of a pipeline hold, each with a part of their gradient.

    tied table     the embedding on the first stage and the logits on the last share it
    two ways       under `bidirectional` every stage is on two ranks, each with half of the micro-batches

Copies start equal and stay equal, because each rank updates its own with the sum of all gradients, to the last bit. But
the order in which ranks of dp add up an item depends on its place in the vector that they reduce, and a tied table has
another place in each stage's: see `Pipeline.reduce`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from simdist.arrays import Array
from simdist.comm import Communicator
from simdist.nn import Parameter
from simdist.parallel.spread import add_up

__all__ = ["Copies", "displaced", "holders", "shared"]


def holders(parameters: Sequence[Iterable[str]]) -> dict[str, tuple[int, ...]]:
    """For each parameter's name, the ranks that hold it.

    Args:
        parameters: for each rank, the names of its parameters.
    """
    found: dict[str, tuple[int, ...]] = {}
    for rank, names in enumerate(parameters):
        for name in names:
            found[name] = (*found.get(name, ()), rank)
    return found


def shared(held: Mapping[str, tuple[int, ...]]) -> list[tuple[tuple[int, ...], list[str]]]:
    """The groups of ranks with copies, and the names of theirs, by `holders`: in the same order on all ranks, whatever
    the order of layers on each.
    """
    groups = sorted({ranks for ranks in held.values() if len(ranks) > 1})
    return [(ranks, [name for name, found in held.items() if found == ranks]) for ranks in groups]


def displaced(parameters: Sequence[Iterable[str]]) -> frozenset[str]:
    """The copies that have another place in the vector of another rank, given each rank's parameters in order."""
    orders = [list(names) for names in parameters]
    found = [names for ranks, names in shared(holders(orders)) if any(orders[r] != orders[ranks[0]] for r in ranks)]
    return frozenset(chain.from_iterable(found))


class Copies:
    """The copies that this rank holds. Where no parameter is on two ranks, nothing is sent.

    Args:
        parameters: for each rank, the names of its parameters.
        own: the parameters of this rank.
        comm: the ranks, in the same order; all must create this object.

    Attributes:
        counted: the names of the parameters that this rank counts in a norm; each is counted on one rank.
        displaced: those that have another place on another rank.

    Cost of a sum per rank: an all-reduce for each group of ranks that share copies.
    """

    def __init__(self, parameters: Sequence[Sequence[str]], own: Sequence[Parameter], comm: Communicator) -> None:
        held = holders(parameters)
        self.displaced = displaced(parameters)
        self.counted = frozenset(name for name, ranks in held.items() if ranks[0] == comm.rank)
        mine = {p.name: p for p in own}
        self._groups: list[tuple[Communicator, list[Parameter]]] = []
        for ranks, names in shared(held):
            name = f"ranks {ranks}"
            if name not in comm.attached:
                comm.attached[name] = comm.split(0 if comm.rank in ranks else None, comm.rank)
            group = comm.attached[name]
            if group is not None:
                self._groups.append((group, [mine[name] for name in names]))

    def sum(self, own: Callable[[Parameter], Array] = lambda p: p.gradient.reshape(-1)) -> None:
        """Add up the gradients of all copies, in place.

        Args:
            own: a copy's gradient, or this rank's part of it, flat: the same part on all ranks of the pipeline.
        """
        for group, parameters in self._groups:
            add_up([own(p) for p in parameters], group)
