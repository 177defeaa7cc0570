"""Gradients: whole on every rank until the end of a step (stage 1), or reduced to the own part at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from simdist.arrays import Array, charge, clear, copied
from simdist.arrays.working import overflow
from simdist.collectives import reduce_scatter
from simdist.comm import Stream, Work
from simdist.nn import Layer, Observer, Parameter
from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.sharing import Sharing
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import Units

__all__ = ["Gradients", "Reduction", "ShardedGradients", "WholeGradients"]


class Reduction(Observer):
    """Reduce-scatters the gradients of each unit on a second stream as soon as backward has found them all.

        main             | backward of layer 3 | … of layer 2 | … of layer 1 | … of layer 0 | finish
        communication                          | r3           | r2           | r1           | r0   |

    Args:
        units: of the model.
        rooms: for each unit, the memory that its gradients are in; those of one slot are the same memory.
        slots: the number of each unit's slot.
        side: the second stream.
        sharing: its ranks; the holders of a model reduce.
        algorithm: of the reduce-scatters.
        then: then(i, chunk, last) is called on the second stream when this rank's chunk of unit i is there.

    Attributes:
        last: whether the micro-batch that is reduced is the batch's last.

    Cost of a pass per rank, n bytes of gradients: a reduce-scatter a unit, n(p-1)/p bytes together on p holders.
    """

    def __init__(
        self,
        units: Units,
        rooms: list[Array],
        slots: list[int],
        side: Stream,
        sharing: Sharing,
        algorithm: str,
        then: Callable[[int, Array, bool], None],
    ) -> None:
        self._units = units
        self._rooms = rooms
        self._slots = slots
        self._side = side
        self._sharing = sharing
        self._algorithm = algorithm
        self._then = then
        self.last = True
        self._works: dict[int, Work] = {}  # the last of each slot
        self._missing: dict[int, int] = {}  # how many gradients each unit that backward has begun still lacks

    def before_backward(self, layer: Layer) -> None:
        """Have room for the layer's gradients: wait until what was in it before is reduced."""
        for i in dict.fromkeys(self._units.of[p] for p in layer.parameters):
            if i not in self._missing:
                if self._slots[i] in self._works:
                    self._works.pop(self._slots[i]).wait()
                self._missing[i] = len(self._units[i].parameters)

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """Send off what is complete."""
        for i in [self._units.of[p] for p in parameters]:
            self._missing[i] -= 1
            if self._missing[i] == 0:
                self._send_off(i)

    def finish(self) -> None:
        """Send off what backward has begun and not told to be complete, and return when all is reduced."""
        for i in list(self._missing):
            self._send_off(i)
        while self._works:
            self._works.popitem()[1].wait()

    def _send_off(self, i: int) -> None:
        del self._missing[i]
        self._works[self._slots[i]] = self._side.start(self._reduce, i, self.last)

    def _reduce(self, i: int, last: bool) -> None:
        """On the second stream."""
        self._then(i, reduce_scatter(self._rooms[i], self._sharing.holders, algorithm=self._algorithm), last)


class Gradients(ABC):
    """What a rank has of a batch's gradient."""

    @abstractmethod
    def observer(self, last: bool) -> Observer:
        """Who must be told of the backward of a micro-batch, which may be the batch's last."""

    @abstractmethod
    def finish(self) -> None:
        """Return when the batch's gradients are reduced."""

    @abstractmethod
    def own(self) -> Array:
        """This rank's part of the sum over the ranks, a vector of its holding."""

    @abstractmethod
    def clear(self) -> None:
        """Forget them."""


class WholeGradients(Gradients):
    """Gradients of all weights add up on every rank, and are reduced in place with the last micro-batch.

    Args:
        units: of the model.
        slots: apart.
        flat: zeros, of the slots' size.
        side, sharing, algorithm: as of `Reduction`.
    """

    def __init__(self, units: Units, slots: Slots, flat: Array, side: Stream, sharing: Sharing, algorithm: str) -> None:
        self._units = units
        self._flat = flat

        def over_copies(i: int, chunk: Array, last: bool) -> None:
            sharing.add_up(chunk, algorithm)

        self._reduction = Reduction(units, slots.cut(flat), slots.of, side, sharing, algorithm, over_copies)

    def observer(self, last: bool) -> Observer:
        """The reduction, for the last."""
        return self._reduction if last else Observer()

    def finish(self) -> None:
        """See Gradients."""
        self._reduction.finish()

    def own(self) -> Array:
        """Moved together at the front of the memory of all, whose rest nobody needs any more.

        reduced    | .. ## .. .. | .. .. ## .. .. | .. ## .. |
        own        ##|##|##                                          none moves past another
        """
        start = 0
        for unit, place in zip(self._units, self._units.holding.rooms, strict=True):
            self._flat[place] = self._flat[start + unit.chunk.start : start + unit.chunk.stop]
            start += unit.room
        own: Array = self._flat[: self._units.holding.size]
        charge(0, 2 * own.nbytes)
        return own

    def clear(self) -> None:
        """See Gradients."""
        clear(self._flat)


class ShardedGradients(Gradients):
    """Gradients of a unit live until they are reduced; what stays, and adds up, is this rank's part.

    Args:
        units: of the model.
        slots: shared.
        flat: zeros, of the slots' size.
        side, sharing, algorithm: as of `Reduction`.
        own: zeros, a vector of this rank's holding.
        offload: where `own` lies.

    Cost: every micro-batch is reduced, k of them k times, where whole gradients are reduced once; but only their
    sum is added up over copies. And sums over ranks are added up, not sums over micro-batches: the same up to
    rounding.
    """

    def __init__(
        self,
        units: Units,
        slots: Slots,
        flat: Array,
        side: Stream,
        sharing: Sharing,
        algorithm: str,
        own: Array,
        offload: Offload,
    ) -> None:
        self._places = units.holding.rooms
        self._rooms = slots.cut(flat)
        self._comm = side.comm
        self._sharing = sharing
        self._algorithm = algorithm
        self._own = own
        self._offload = offload
        self._reduction = Reduction(units, self._rooms, slots.of, side, sharing, algorithm, self._add)

    def observer(self, last: bool) -> Observer:
        """The reduction, for every one."""
        self._reduction.last = last
        return self._reduction

    def finish(self) -> None:
        """See Gradients."""
        self._reduction.finish()

    def own(self) -> Array:
        """See Gradients."""
        return self._own

    def clear(self) -> None:
        """See Gradients."""
        clear(self._own)

    def _add(self, i: int, chunk: Array, last: bool) -> None:
        """Add what is reduced to the own part, and leave the room clean for the next unit."""
        mine, place = self._own[self._places[i]], self._offload.place("gradients")
        at = "device" if last and self._sharing.copies else place
        total = self._move(mine, place, at)
        with overflow(mine.dtype):
            np.add(total, self._move(chunk, "device", at), out=total)
        charge(mine.size, 3 * mine.nbytes)
        clear(self._rooms[i])
        if last:
            self._sharing.add_up(total, self._algorithm)
        back = self._move(total, at, place)
        if back is not mine:
            copied(mine, back)

    def _move(self, x: Array, start: str, end: str) -> Array:
        return self._offload.move("gradients", x, self._comm, start, end)
