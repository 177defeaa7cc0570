"""Weights: whole on every rank (stages 1 and 2), or whole only while a layer needs them (stage 3)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from simdist.arrays import Array, charge, copied
from simdist.comm import Stream, Work
from simdist.nn import Layer, Observer
from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.sharing import Sharing
from simdist.parallel.zero.unit import Units, uses

__all__ = ["GatheredWeights", "Weights", "WholeWeights"]


@dataclass(eq=False, repr=False)
class Weights(ABC):
    """A rank's copy or part of a model's weights.

    Args:
        units: of the model; their parameters are views of `rooms`.
        rooms: for each unit, the memory of its whole weights.
        own: the weights that this rank updates, a vector of its holding.
        sharing: the ranks that update a part each.
    """

    units: Units
    rooms: list[Array]
    own: Array
    sharing: Sharing

    @abstractmethod
    def observer(self, backward_follows: bool) -> Observer:
        """The observer of a pass: a forward, with or without a backward after it."""

    @abstractmethod
    def of_stage(self, layers: slice, backward: bool) -> Observer:
        """The observer of a pass through some of the layers with parameters alone: forward, or backward."""

    @abstractmethod
    def publish(self) -> None:
        """Give all ranks the weights that each has updated."""


class WholeWeights(Weights):
    """Every rank has all weights, and `own` is a copy of its part in the master dtype, which it updates.

        rank 1    | .. |w1| .. |   own |m1|  --step-->  |m1'|  --rounded-->  | .. |w1'| .. |  --all-gather--> all

    When a step ends, every rank has all weights. The gathers could overlap with the next forward, each until a layer
    needs its unit. But then a step's messages would be recorded in the next step, and code that reads weights between
    steps, such as a pipeline on this data axis, would have to wait for them first.

    Cost of `publish` per rank, n bytes of weights on p holders: an all-gather per unit, n(p-1)/p bytes in total.
    """

    def observer(self, backward_follows: bool) -> Observer:
        """One that does nothing."""
        return Observer()

    def of_stage(self, layers: slice, backward: bool) -> Observer:
        """One that does nothing."""
        return Observer()

    def publish(self) -> None:
        """Round to the dtype of computation and all-gather, a unit at a time."""
        with self.sharing.holders.span("publish weights", sum(room.nbytes for room in self.rooms)):
            for unit, room, place in zip(self.units, self.rooms, self.units.holding.rooms, strict=True):
                mine, masters = room[unit.chunk], self.own[place]
                copied(mine, masters)
                charge(0, mine.nbytes + masters.nbytes)
                self.sharing.all_gather(mine, room)


class GatheredWeights(Weights, Observer):
    """Every rank has its own part, and gathers each layer's units just before the layer.

        main             | wait | layer 0 | layer 1 | layer 2 | layer 3 …      backward the same, from the last
        communication    | g0   | g1      | g2      | g3      |

    The next layer's units are gathered while one computes. A unit used by several layers, such as one with tied
    weights, stays from the first of them to the last; then other units use its memory. The last layer's units, too,
    are dropped after forward and gathered again for backward, as the papers count.

    Args:
        units, rooms, own, sharing: as of `Weights`; own has the dtype of the rooms, which are `Slots.shared`; sharing
            is of the stream's communicator.
        side: the stream on which to gather.
        offload: the place of `own`.
        prefetch: whether to gather ahead; without it each layer waits for its own gather.

    Cost of a pass per rank, n bytes of weights on p holders: an all-gather per unit, n(p-1)/p bytes in total.
    """

    def __init__(
        self,
        units: Units,
        rooms: list[Array],
        own: Array,
        sharing: Sharing,
        side: Stream,
        offload: Offload,
        prefetch: bool = True,
    ) -> None:
        super().__init__(units, rooms, own, sharing)
        self._side = side
        self._offload = offload
        self._prefetch = prefetch
        self._gathers: dict[int, Work] = {}  # of the units that are gathered or being gathered
        self._first_used: list[list[int]] = []  # by layer of the pass: the units of which it is the first there
        self._last_used: list[list[int]] = []
        self._layer = 0  # how many layers with parameters forward has passed and backward has not
        self._backward_follows = False

    def observer(self, backward_follows: bool) -> Observer:
        """This object."""
        self._begin(slice(None))
        self._layer, self._backward_follows = 0, backward_follows
        return self

    def of_stage(self, layers: slice, backward: bool) -> Observer:
        """This object. Nothing is gathered before the pass begins, and nothing stays after it."""
        self._begin(layers)
        self._layer, self._backward_follows = len(self._first_used) if backward else 0, False
        return self

    def _begin(self, layers: slice) -> None:
        """A pass through these layers."""
        for gather in self._gathers.values():  # left by a pass that failed
            gather.wait()
        self._gathers.clear()
        used = self.units.used[layers]
        first, last = uses(used)
        self._first_used = [[i for i in own if first[i] == k] for k, own in enumerate(used)]
        self._last_used = [[i for i in own if last[i] == k] for k, own in enumerate(used)]

    def publish(self) -> None:
        """Does nothing: each pass gathers the weights."""

    # -- a pass -----------------------------------------------------------------------------------------

    def before_forward(self, layer: Layer) -> None:
        """Wait for the units first used by this layer, and start to gather those first used by the next."""
        if layer.parameters:
            self._wait_for(self._first_used[self._layer])
            if self._layer + 1 < len(self._first_used):
                self._gather_ahead(self._first_used[self._layer + 1])

    def after_forward(self, layer: Layer) -> None:
        """Release the units last used by this layer."""
        if layer.parameters:
            self._release(self._last_used[self._layer])
            self._layer += 1
            if self._backward_follows and self._layer == len(self._last_used):
                self._gather_ahead(self._last_used[-1])

    def before_backward(self, layer: Layer) -> None:
        """Wait for the units last used by this layer, and start to gather those of the layer before."""
        if layer.parameters:
            self._layer -= 1
            self._wait_for(self._last_used[self._layer])
            if self._layer > 0:
                self._gather_ahead(self._last_used[self._layer - 1])

    def after_backward(self, layer: Layer) -> None:
        """Release the units first used by this layer."""
        if layer.parameters:
            self._release(self._first_used[self._layer])

    def _gather_ahead(self, units: Iterable[int]) -> None:
        if self._prefetch:
            for i in units:
                self._gathers[i] = self._side.start(self._gather, i)

    def _wait_for(self, units: Iterable[int]) -> None:
        for i in units:
            if i not in self._gathers:
                self._gathers[i] = self._side.start(self._gather, i)
            self._gathers[i].wait()

    def _release(self, units: Iterable[int]) -> None:
        for i in units:
            del self._gathers[i]

    def _gather(self, i: int) -> None:
        """On the second stream."""
        mine = self.own[self.units.holding.rooms[i]]
        mine = self._offload.move("parameters", mine, self.sharing.holders, self._offload.place("parameters"), "device")
        self.sharing.all_gather(mine, self.rooms[i])
