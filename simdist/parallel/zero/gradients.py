"""Gradients: whole on every rank until the end of a step (stage 1), or reduced to a rank's part at once."""

from abc import ABC, abstractmethod

import numpy as np

from simdist.arrays import Array, charge, clear, copied
from simdist.arrays.working import overflow
from simdist.comm import Stream, Work
from simdist.nn import Layer, Observer, Parameter
from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.sharing import Sharing
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import Units

__all__ = ["Gradients", "ShardedGradients", "WholeGradients"]


class Gradients(Observer, ABC):
    """A rank's part of a batch's gradient. Each unit's is reduce-scattered on a second stream as soon as backward has
    computed it.

        main             | backward of layer 3 | … of layer 2 | … of layer 1 | … of layer 0 | finish
        communication                          | r3           | r2           | r1           | r0   |

    Args:
        units: of the model.
        slots: in which the units' gradients are; those of one slot take turns.
        flat: zeros, of the slots' size.
        side: the second stream.
        sharing: of the communicator on that stream; the holders of a model reduce.

    Attributes:
        rooms: for each unit, the memory of its gradients.

    Cost of a pass per rank, n bytes of gradients on p holders: a reduce-scatter per unit, n(p-1)/p bytes in total.
    """

    def __init__(self, units: Units, slots: Slots, flat: Array, side: Stream, sharing: Sharing) -> None:
        self.rooms = slots.cut(flat)
        self._units, self._slots, self._kept = units, slots, flat
        self._side, self._sharing = side, sharing
        self._last = True  # whether this micro-batch is the last of the batch
        self._reductions: dict[int, Work] = {}  # by slot, the last reduction
        self._num_incomplete: dict[int, int] = {}  # by unit begun in backward, the number of incomplete gradients

    @abstractmethod
    def observer(self, last: bool) -> Observer:
        """The observer of a micro-batch's backward; last: whether it is the last of the batch."""

    @abstractmethod
    def own(self) -> Array:
        """This rank's part of the sum over the ranks, a vector of its holding."""

    def clear(self) -> None:
        """Set what is kept from one micro-batch to the next to zero."""
        clear(self._kept)

    def discard(self) -> None:
        """After a step that failed: wait for the reductions under way, and set everything to zero."""
        self._num_incomplete.clear()
        self.finish()
        for room in self.rooms:
            clear(room)
        self.clear()

    @abstractmethod
    def settle(self) -> None:
        """Sum over all ranks what is left of micro-batches that were not known to be the last."""

    @abstractmethod
    def _take(self, i: int, chunk: Array, last: bool) -> None:
        """On the second stream: take this rank's chunk of unit i, which is reduced."""

    def before_gradients(self, layer: Layer) -> None:
        """Wait until the slots of the layer's units are free: their last gradients are reduced."""
        for i in dict.fromkeys(self._units.of[p] for p in layer.parameters):
            if i not in self._num_incomplete:
                if self._slots.of[i] in self._reductions:
                    self._reductions.pop(self._slots.of[i]).wait()
                self._num_incomplete[i] = len(self._units[i].parameters)

    def gradients_complete(self, parameters: tuple[Parameter, ...]) -> None:
        """Reduce the units that are now complete."""
        for i in [self._units.of[p] for p in parameters]:
            self._num_incomplete[i] -= 1
            if self._num_incomplete[i] == 0:
                self._start_reducing(i)

    def reduce_begun(self) -> None:
        """Reduce the units that backward began and left incomplete."""
        for i in list(self._num_incomplete):
            self._start_reducing(i)

    def finish(self) -> None:
        """Reduce the units that backward began and left incomplete, and wait for all reductions."""
        self.reduce_begun()
        while self._reductions:
            self._reductions.popitem()[1].wait()

    def _start_reducing(self, i: int) -> None:
        del self._num_incomplete[i]
        self._reductions[self._slots.of[i]] = self._side.start(self._reduce, i, self._last)

    def _reduce(self, i: int, last: bool) -> None:
        """On the second stream."""
        self._take(i, self._sharing.reduce_scatter(self.rooms[i]), last)


class WholeGradients(Gradients):
    """Gradients of all weights add up on every rank, each unit in its own slot, and are reduced in place with the last
    micro-batch.
    """

    def observer(self, last: bool) -> Observer:
        """This object, for the last micro-batch."""
        return self if last else Observer()

    def own(self) -> Array:
        """See Gradients. The chunks are moved to the front of the whole vector, whose other items are no longer needed.

        reduced    | .. ## .. .. | .. .. ## .. .. | .. ## .. |
        own        ##|##|##                                          none moves past another
        """
        start = 0
        for unit, place in zip(self._units, self._units.holding.rooms, strict=True):
            self._move_forward(place, start + unit.chunk.start - place.start)
            start += unit.room
        own: Array = self._kept[: self._units.holding.size]
        charge(0, 2 * own.nbytes)
        return own

    def _move_forward(self, place: slice, distance: int) -> None:
        """Move to a place what is kept this far after it, in pieces no longer than the distance: a piece must not
        overlap its new place, since a GPU copies in no order.
        """
        for start in range(place.start, place.stop, distance) if distance else ():
            stop = min(start + distance, place.stop)
            self._kept[start:stop] = self._kept[start + distance : stop + distance]

    def settle(self) -> None:
        """See Gradients. Reduces all units."""
        self._num_incomplete = dict.fromkeys(range(len(self._units)), 0)
        self.finish()

    def _take(self, i: int, chunk: Array, last: bool) -> None:
        self._sharing.add_up(chunk)


class ShardedGradients(Gradients):
    """Gradients of a unit are kept until they are reduced; only this rank's part stays, and accumulates.

    Args:
        units, slots, flat, side, sharing: as of `Gradients`.
        own: zeros, a vector of this rank's holding.
        offload: the place of `own`.

    Cost: gradients are reduced once per micro-batch, whole ones once per batch; the sum over copies is made once per
    batch, too. Sums over ranks are accumulated over micro-batches, not the other way round: equal up to rounding.
    """

    def __init__(
        self, units: Units, slots: Slots, flat: Array, side: Stream, sharing: Sharing, own: Array, offload: Offload
    ) -> None:
        super().__init__(units, slots, flat, side, sharing)
        self._kept = own
        self._offload = offload

    def observer(self, last: bool) -> Observer:
        """This object, for every micro-batch."""
        self._last = last
        return self

    def own(self) -> Array:
        """See Gradients."""
        return self._kept

    def settle(self) -> None:
        """See Gradients. Waits for the last reductions, and sums this rank's part over the copies."""
        self.finish()
        places = self._units.holding.rooms if self._sharing.copies else ()
        for work in [self._side.start(self._sharing.add_up, self._kept[place]) for place in places]:
            work.wait()

    def _take(self, i: int, chunk: Array, last: bool) -> None:
        """Add the chunk to this rank's part, and clear the room for the next unit."""
        mine = self._kept[self._units.holding.rooms[i]]
        place = self._offload.place("gradients")
        summed_at = "device" if last and self._sharing.copies else place
        total = self._move(mine, place, summed_at)
        with overflow(mine.dtype):
            np.add(total, self._move(chunk, "device", summed_at), out=total)
        charge(mine.size, 3 * mine.nbytes)
        clear(self.rooms[i])
        if last:
            self._sharing.add_up(total)
        back = self._move(total, summed_at, place)
        if back is not mine:
            copied(mine, back)

    def _move(self, x: Array, start: str, end: str) -> Array:
        return self._offload.move("gradients", x, self._side.comm, start, end)
