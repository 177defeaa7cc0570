"""Copies: parameters that several ranks of a pipeline have, each of which finds a part of their gradient.

    tied table     the embedding's, on the first stage, is the logits' on the last
    two ways       under `bidirectional` every stage is on two ranks, each with half of the micro-batches

Copies begin alike and change alike, because each rank changes its own by the sum of what all have found.
"""

from collections.abc import Iterable, Sequence

from simdist.comm import Communicator
from simdist.nn import Parameter
from simdist.parallel.spread import add_up

__all__ = ["Copies", "holders"]


def holders(parameters: Sequence[Iterable[str]]) -> dict[str, tuple[int, ...]]:
    """The ranks that have each parameter, by its name.

    Args:
        parameters: for each rank the names of those it has.
    """
    found: dict[str, tuple[int, ...]] = {}
    for rank, names in enumerate(parameters):
        for name in names:
            found[name] = (*found.get(name, ()), rank)
    return found


class Copies:
    """This rank's part in them. Where nothing is on two ranks, nothing is ever sent.

    Args:
        parameters: for each rank the names of those it has.
        own: this rank's.
        comm: one rank for each; all must make it.

    Attributes:
        counted: the names of those that this rank, of all that have them, counts in a norm.

    Cost of a sum per rank: for each group of ranks with the same copies an all-reduce of these.
    """

    def __init__(self, parameters: Sequence[Sequence[str]], own: Sequence[Parameter], comm: Communicator) -> None:
        held = holders(parameters)
        self.counted = frozenset(name for name, ranks in held.items() if ranks[0] == comm.rank)
        mine = {p.name: p for p in own}
        self._groups: list[tuple[Communicator, list[Parameter]]] = []
        for ranks in sorted({ranks for ranks in held.values() if len(ranks) > 1}):
            name = f"ranks {ranks}"
            if name not in comm.attached:
                comm.attached[name] = comm.split(0 if comm.rank in ranks else None, comm.rank)
            group = comm.attached[name]
            if group is not None:
                # In one order on all of them: of a tied table one may have the first layer, another the last.
                self._groups.append((group, [mine[name] for name, found in held.items() if found == ranks]))

    def sum(self) -> None:
        """Add up the gradients of all copies, in place."""
        for group, shared in self._groups:
            add_up([p.gradient.reshape(-1) for p in shared], group)
