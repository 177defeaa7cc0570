"""Weights: whole on every rank (stages 1 and 2), or whole only while a layer needs them (stage 3)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from simdist.arrays import Array, charge, copied
from simdist.collectives import all_gather
from simdist.comm import Communicator, Stream, Work
from simdist.nn import Layer, Observer
from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.sharing import Sharing
from simdist.parallel.zero.unit import Units

__all__ = ["GatheredWeights", "Weights", "WholeWeights"]


class Weights(ABC):
    """What a rank has of a model's weights.

    Args:
        units: of the model; their parameters look into `rooms`.
        rooms: for each unit, the memory that its weights are in when they are all there.
        own: what this rank changes, a vector of its holding.
        algorithm: of the all-gathers.
    """

    def __init__(self, units: Units, rooms: list[Array], own: Array, algorithm: str) -> None:
        self.units = units
        self.rooms = rooms
        self.own = own
        self.algorithm = algorithm

    @abstractmethod
    def observer(self, backward_follows: bool) -> Observer:
        """Who must be told of a pass that begins: a forward, with or without a backward after it."""

    @abstractmethod
    def publish(self) -> None:
        """Let all ranks have what each has changed."""


class WholeWeights(Weights):
    """Every rank has all weights, and of its own part a copy in the dtype of masters, which it changes.

        rank 1    | .. |w1| .. |   own |m1|  --step-->  |m1'|  --rounded-->  | .. |w1'| .. |  --all-gather--> all

    All weights are everywhere when a step ends. The gathers could also be overlapped with the next forward, each unit's
    until a layer needs it; then a step on the record would not contain what it sends, and whoever reads weights
    between steps, as a pipeline on this data axis does, would have to ask for them first.

    Args:
        units, rooms, own, algorithm: as of `Weights`; own has the masters' dtype.
        holders: the ranks that change a part each.

    Cost of `publish` per rank, n bytes of weights: an all-gather a unit, n(p-1)/p bytes together on p holders.
    """

    def __init__(self, units: Units, rooms: list[Array], own: Array, algorithm: str, holders: Communicator) -> None:
        super().__init__(units, rooms, own, algorithm)
        self._holders = holders

    def observer(self, backward_follows: bool) -> Observer:
        """Nobody."""
        return Observer()

    def publish(self) -> None:
        """Round and all-gather, a unit at a time."""
        with self._holders.span("publish weights", sum(room.nbytes for room in self.rooms)):
            for unit, room, place in zip(self.units, self.rooms, self.units.holding.rooms, strict=True):
                mine, masters = room[unit.chunk], self.own[place]
                copied(mine, masters)
                charge(0, mine.nbytes + masters.nbytes)
                all_gather(mine, self._holders, self.algorithm, out=room)


class GatheredWeights(Weights, Observer):
    """Every rank has its own part, and the rest while it needs it: gathers a layer's units before the layer.

        main             | wait | layer 0 | layer 1 | layer 2 | layer 3 …      backward the same, from the last
        communication    | g0   | g1      | g2      | g3      |

    The next layer's units are on their way while one is at work. A unit of several layers, as tied weights are,
    stays from the first of them to the last; then its memory is another's. Between forward and backward even the
    last layer's go and come again, as the papers count it.

    Args:
        units, rooms, own, algorithm: as of `Weights`; own has the dtype of the rooms, which are `Slots.shared`.
        side: the stream on which to gather.
        sharing: its ranks, of whom the holders of a model gather it.
        offload: where `own` lies.
        prefetch: whether to gather ahead; without it each layer waits for its own.

    Cost of a pass per rank, n bytes of weights: an all-gather a unit, n(p-1)/p bytes together on p holders.
    """

    def __init__(
        self,
        units: Units,
        rooms: list[Array],
        own: Array,
        algorithm: str,
        side: Stream,
        sharing: Sharing,
        offload: Offload,
        prefetch: bool = True,
    ) -> None:
        super().__init__(units, rooms, own, algorithm)
        self._side = side
        self._holders = sharing.holders
        self._offload = offload
        self._prefetch = prefetch
        self._coming: dict[int, Work] = {}  # units that are here or on their way
        layers = range(max((unit.last for unit in units), default=-1) + 1)
        self._first = [[i for i, unit in enumerate(units) if unit.first == k] for k in layers]
        self._last = [[i for i, unit in enumerate(units) if unit.last == k] for k in layers]
        self._at = 0  # how many layers with parameters forward has behind it, and backward before it
        self._backward_follows = False

    def observer(self, backward_follows: bool) -> Observer:
        """This."""
        for work in self._coming.values():  # left by a pass that failed
            work.wait()
        self._coming.clear()
        self._at, self._backward_follows = 0, backward_follows
        return self

    def publish(self) -> None:
        """Nothing: who needs them gathers them."""

    # -- a pass -----------------------------------------------------------------------------------------

    def before_forward(self, layer: Layer) -> None:
        """Have the units that begin with this layer, and send for those that begin with the next."""
        if layer.parameters:
            self._have(self._first[self._at])
            if self._at + 1 < len(self._first):
                self._send_for(self._first[self._at + 1])

    def after_forward(self, layer: Layer) -> None:
        """Let go of those that end with this layer."""
        if layer.parameters:
            self._let_go(self._last[self._at])
            self._at += 1
            if self._backward_follows and self._at == len(self._last):
                self._send_for(self._last[-1])

    def before_backward(self, layer: Layer) -> None:
        """Have those that end with this layer, and send for those that end with the one before it."""
        if layer.parameters:
            self._at -= 1
            self._have(self._last[self._at])
            if self._at > 0:
                self._send_for(self._last[self._at - 1])

    def after_backward(self, layer: Layer) -> None:
        """Let go of those that begin with this layer."""
        if layer.parameters:
            self._let_go(self._first[self._at])

    def _send_for(self, units: Iterable[int]) -> None:
        if self._prefetch:
            for i in units:
                self._coming[i] = self._side.start(self._gather, i)

    def _have(self, units: Iterable[int]) -> None:
        for i in units:
            if i not in self._coming:
                self._coming[i] = self._side.start(self._gather, i)
            self._coming[i].wait()

    def _let_go(self, units: Iterable[int]) -> None:
        for i in units:
            del self._coming[i]

    def _gather(self, i: int) -> None:
        """On the second stream."""
        mine = self.own[self.units.holding.rooms[i]]
        mine = self._offload.move("parameters", mine, self._holders, self._offload.place("parameters"), "device")
        all_gather(mine, self._holders, self.algorithm, out=self.rooms[i])
