"""Spread: how a model is split over the axes of a mesh, and which gradients must be summed over them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from simdist.arrays import Array
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.nn import Parameters
from simdist.parallel.holding import Holding

__all__ = ["Spread", "add_up"]


@dataclass(frozen=True)
class Spread:
    """What an update must know about a model that is split over ranks, beyond data parallelism.

        tp 0   | w: its columns | norm.scale |       w is cut: each rank counts its own part in a norm
        tp 1   | w: its columns | norm.scale |       the scale is the same on both: one rank counts it. If each sees
                                                     another part of the sequence, they sum its gradient

    Args:
        comm: all ranks that step together.
        model: those of them that hold different parts of one model and work on the same data; None if each rank has
            the whole model.
        sums: groups of ranks, each with the names of parameters whose gradients the group must sum. All ranks of a
            group give the same names, and hold the same stretch of each parameter.
        counted: whether this rank counts a parameter, by its name, in the norm of the whole model; of the ranks of
            `model` that hold the same values, one does.
        known: the names of all parameters that `sums` were made for; None for any.
    """

    comm: Communicator
    model: Communicator | None = None
    sums: tuple[tuple[Communicator, frozenset[str]], ...] = ()
    counted: Callable[[str], bool] = field(default=lambda name: True)
    known: frozenset[str] | None = None

    def check(self, parameters: Parameters) -> None:
        """Raise ArgumentError if a gradient may have to be summed over groups that do not know of it."""
        strange = [p.name for p in parameters if self.sums and self.known is not None and p.name not in self.known]
        if strange:
            raise ArgumentError(f"{strange[0]} is in none of the parts; layers of your own need MeshParts.on_stream")

    def complete(self, gradient: Array, parameters: Parameters, holding: Holding) -> None:
        """Sum gradients over the groups of `sums`, in place.

        Args:
            gradient: shape (holding.size,), already summed over the data axis.

        Cost per rank: for each group an all-reduce of this rank's items of the group's parameters.
        """
        for group, names in self.sums:
            spans = _joined(holding.own(parameters.spans[p.name]) for p in parameters if p.name in names)
            add_up([gradient[span] for span in spans if span.stop > span.start], group)

    def own_parts(self, gradient: Array, parameters: Parameters, holding: Holding) -> list[Array]:
        """The parts of this rank's vector that it counts in the norm of the whole model's."""
        spans = _joined(holding.own(parameters.spans[p.name]) for p in parameters if self.counted(p.name))
        return [gradient[span] for span in spans]


def add_up(parts: Sequence[Array], comm: Communicator) -> None:
    """Replace flat arrays by their sums over the ranks, in one all-reduce instead of many small ones."""
    if len(parts) < 2:
        for part in parts:
            all_reduce(part, comm)
        return
    together = np.concatenate(parts)
    all_reduce(together, comm)
    start = 0
    for part in parts:
        part[...] = together[start : start + len(part)]
        start += len(part)


def _joined(spans: Iterable[slice]) -> list[slice]:
    """The spans, with adjacent ones merged."""
    joined: list[slice] = []
    for span in spans:
        if joined and joined[-1].stop == span.start:
            joined[-1] = slice(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return joined
