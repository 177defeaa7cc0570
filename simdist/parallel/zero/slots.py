"""Slots: memory in which units take turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from simdist.arrays import Array

__all__ = ["Slots"]


class _Used(Protocol):
    """A `Unit`, or an object like it: its items, and the first and the last layer that use it."""

    @property
    def room(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


@dataclass(frozen=True)
class Slots:
    """Which units use the same memory, one after another, and the size of that memory.

        layer     0       1       2       3       4
        slot 0    unit 0          unit 2          unit 4
        slot 1            unit 1          unit 3
        slot 2    a unit of layers 0 and 4: tied weights stay from their first use to their last

    A unit also needs its memory during the layer before its first (gathered ahead) or the next layer of backward
    (still being reduced), so two units share a slot only if there is a layer between their uses. Units of one layer
    each need two slots.

    Attributes:
        rooms: of each unit, in items.
        of: for each unit, the number of its slot.
        sizes: for each slot, the items of the largest unit in it.
    """

    rooms: list[int]
    of: list[int]
    sizes: list[int]

    @classmethod
    def apart(cls, units: Sequence[_Used]) -> "Slots":
        """One for each unit."""
        rooms = [unit.room for unit in units]
        return cls(rooms, list(range(len(units))), rooms)

    @classmethod
    def shared(cls, units: Sequence[_Used]) -> "Slots":
        """As few as possible; a unit takes the free slot of the nearest size."""
        of, sizes, ends = [0] * len(units), list[int](), list[int]()
        for i in sorted(range(len(units)), key=lambda i: (units[i].first, units[i].last)):
            unit = units[i]
            free = [slot for slot, end in enumerate(ends) if end + 1 < unit.first]
            if free:
                slot = min(free, key=lambda slot: abs(sizes[slot] - unit.room))
                sizes[slot], ends[slot] = max(sizes[slot], unit.room), unit.last
            else:
                slot = len(sizes)
                sizes.append(unit.room)
                ends.append(unit.last)
            of[i] = slot
        return cls([unit.room for unit in units], of, sizes)

    @property
    def size(self) -> int:
        """Items of all slots together."""
        return sum(self.sizes)

    def cut(self, flat: Array) -> list[Array]:
        """The room of each unit in a vector of `size` items; units of one slot get the same memory."""
        starts = [0, *accumulate(self.sizes)]
        return [flat[starts[slot] : starts[slot] + room] for slot, room in zip(self.of, self.rooms, strict=True)]
