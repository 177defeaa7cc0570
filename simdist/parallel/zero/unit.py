"""Unit: parameters that are gathered, reduced and cut as one; and a model cut into units."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from simdist.arrays import Array, partition
from simdist.nn import Model, Parameter, Parameters
from simdist.optim.matrices import Matrix, Whole
from simdist.parallel.holding import Holding

__all__ = ["Unit", "Units", "gatherer", "grouped", "least_items", "padded", "uses"]


@dataclass(frozen=True)
class Unit:
    """Neighbouring parameters of a model, and a rank's chunk of them.

    Attributes:
        parameters: laid out from 0 on.
        start: where they begin in the model's flat vector.
        room: items, with padding at the end: what is cut into chunks.
        chunk: the rank's, counted from the unit's start.
        first, last: the first and the last layer that use any of them, counting layers with parameters from 0.
    """

    parameters: Parameters
    start: int
    room: int
    chunk: slice
    first: int
    last: int

    @property
    def whole(self) -> slice:
        """The unit in the model's flat vector."""
        return slice(self.start, self.start + self.parameters.size)

    @property
    def stretch(self) -> slice:
        """The chunk in the model's flat vector, without padding."""
        size = self.parameters.size
        return slice(self.start + min(self.chunk.start, size), self.start + min(self.chunk.stop, size))


class Units(list[Unit]):
    """A model cut into units, and each unit into a chunk for every rank.

        model's vector    |---- unit 0 ----|------- unit 1 -------|- unit 2 -|
        4 ranks           | c0 | c1 | c2 |c3| c0  | c1  | c2  | c3 |c0|c1|c2|c3|
        rank 1 holds           |----|             |-----|             |--|        its chunk of every unit

    So every rank takes part in the reduction of every unit, as soon as its gradients are complete.

    Args:
        model: each layer's own parameters lie side by side in its flat vector.
        ranks, rank: how many chunks there are, and which is the rank's.
        least: the least items of a unit; the first may have fewer, since units are made from the end of the vector.
            Units end where layers end.
        alignment: chunks begin at multiples of this in their unit, which is padded so that they are equally long. At
            1 there is no padding, and lengths may differ by one.
        apart: the names of parameters that are a unit each.

    Attributes:
        of: parameter -> the number of its unit.
        used: for each layer with parameters, the numbers of its units.
        holding: the stretches of the model's vector that the rank holds.
    """

    def __init__(
        self, model: Model, ranks: int, rank: int, least: int = 1, alignment: int = 1, apart: Collection[str] = ()
    ) -> None:
        super().__init__()
        layers = [layer.parameters for layer in model.layers.layers if layer.parameters]
        self.of: dict[Parameter, int] = {}
        for group, first, last in grouped(layers, least, apart):
            self.of |= dict.fromkeys(group, len(self))
            parameters, start = Parameters(group), model.parameters.spans[group[0].name].start
            room = padded(parameters.size, ranks, alignment)
            self.append(Unit(parameters, start, room, partition(room, ranks)[rank], first, last))
        self.used = [sorted({self.of[p] for p in own}) for own in layers]
        self.holding = Holding([u.stretch for u in self], [u.chunk.stop - u.chunk.start for u in self])


def least_items(zero_stage: int, bucket_bytes: int, itemsize: int) -> int:
    """The least items of a unit: those that fill a bucket; in stage 3 a layer is enough."""
    return 1 if zero_stage == 3 else -(-bucket_bytes // itemsize)


def padded(items: int, ranks: int, alignment: int) -> int:
    """The items of a unit, with the padding after which all ranks have equal chunks that begin at multiples of
    `alignment`; none at 1.
    """
    multiple = 1 if alignment == 1 else alignment * ranks
    return -(-items // multiple) * multiple


def gatherer(wholes: Sequence[slice], holding: Holding, all_gather: Callable[[Array, int], Array]) -> Whole:
    """How ranks with a chunk of each unit get whole matrices: one after the other, those units that have any.

    Args:
        wholes: each unit's slice of the model's vector.
        holding: a rank's chunks of them.
        all_gather: the whole of a unit, given the chunk and the number of the unit.

    Cost per rank: for each of these units, of n bytes on p ranks, an all-gather: n(p-1)/p bytes sent.
    """

    def whole(own: Array, chosen: Sequence[Matrix]) -> Iterator[tuple[Matrix, Array, slice]]:
        for i, (unit, chunk, room) in enumerate(zip(wholes, holding.stretches, holding.rooms, strict=True)):
            if inside := [matrix for matrix in chosen if unit.start <= matrix.span.start < unit.stop]:
                items = all_gather(own[room], i)
                for matrix in (matrix for matrix in inside if matrix.own.start < matrix.own.stop):
                    begin, end = matrix.span.start, matrix.span.stop
                    held = slice(max(chunk.start - begin, 0), min(chunk.stop, end) - begin)
                    yield matrix, items[begin - unit.start : end - unit.start], held

    return whole


class _Sized(Protocol):
    """Anything with a name and a number of items."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...


_P = TypeVar("_P", bound=_Sized)
_H = TypeVar("_H")


def grouped(layers: Iterable[Sequence[_P]], least: int, apart: Collection[str] = ()) -> list[tuple[list[_P], int, int]]:
    """Parameters of neighbouring layers, grouped from the last layer to the first until a group has enough items; and
    the first and the last layer that use any of a group, counting layers with parameters.

    Args:
        layers: for each, the parameters that it uses; each counts with the first layer that does.
        least: the least items of a group; the first may have fewer, and those around what is apart.
        apart: the names of those that are a group each.
    """
    with_parameters = [own for own in layers if own]
    first, last = uses(with_parameters)
    groups: list[list[_P]] = []
    group: list[_P] = []  # the last parameter first
    for number, own in reversed(list(enumerate(with_parameters))):
        for parameter in reversed([p for p in own if first[p] == number]):
            group.append(parameter)
            if parameter.name in apart:
                groups += [group[:-1], group[-1:]]
                group = []
        if sum(p.size for p in group) >= least:
            groups.append(group)
            group = []
    found = [each[::-1] for each in reversed([*groups, group]) if each]
    return [(each, min(first[p] for p in each), max(last[p] for p in each)) for each in found]


def uses(layers: Iterable[Sequence[_H]]) -> tuple[dict[_H, int], dict[_H, int]]:
    """The first and the last layer that uses each parameter, counting layers with parameters.

    Args:
        layers: for each, the parameters that it uses.
    """
    first: dict[_H, int] = {}
    last: dict[_H, int] = {}
    for number, own in enumerate(own for own in layers if own):
        for parameter in own:
            first.setdefault(parameter, number)
            last[parameter] = number
    return first, last
