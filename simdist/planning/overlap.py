"""Overlap: the micro-batches of a step on ranks with all layers, overlapped with gradients and weights in flight.

main             | F0 F1 F2 | B2 | B1 | B0 | wait
communication    |               | r2 | r1 | r0 |        r: a unit of gradients, reduced when it is complete
                 | g0 g1 g2 |g1  g0 |                    g: with ZeRO stage 3, a unit of weights, gathered ahead
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

__all__ = ["Layer", "Streams", "Travel", "micro_batches_s"]


class Layer(NamedTuple):
    """A micro-batch's forward or backward in a layer, and the units of the layer's weights, by number.

    Attributes:
        seconds: on the main stream.
        begins, ends: the units of which this is the first layer, and those of which it is the last.
        sent_s: the part of the seconds in which it needs the links of the second stream.
        held_bytes: the most that passes hold meanwhile.
        within_bytes: of these, the most that collectives within it take.
        left_bytes: what passes hold when its gradients are complete, and may be reduced.
        weighted: whether it has weights; if not, it waits for nothing.
        parted: the units that its stage has not all weights of: their reduction begins with the rank's next backward.
    """

    seconds: float
    begins: Sequence[int]
    ends: Sequence[int]
    sent_s: float = 0.0
    held_bytes: float = 0.0
    within_bytes: float = 0.0
    left_bytes: float = 0.0
    weighted: bool = True
    parted: tuple[int, ...] = ()


class Travel(NamedTuple):
    """The communication of each unit on the second stream.

    Attributes:
        reduce_s: the time to reduce its gradients.
        slots: the buffers of gradients, which units share: a unit waits for the previous one in its slot, and every
            micro-batch is reduced. Empty if each unit accumulates in its own buffer until the last micro-batch.
        gather_s: the time to gather its weights, before a layer in forward and again in backward; empty if they stay.
        last_s: the time in addition to reduce_s for the last micro-batch; empty if none.
        reduce_bytes, gather_bytes: what the collectives take beside their arrays; empty if not asked for.
    """

    reduce_s: Sequence[float]
    slots: Sequence[int] = ()
    gather_s: Sequence[float] = ()
    last_s: Sequence[float] = ()
    reduce_bytes: Sequence[float] = ()
    gather_bytes: Sequence[float] = ()

    @property
    def seconds(self) -> float:
        """All of these once."""
        return sum(self.reduce_s) + sum(self.gather_s) + sum(self.last_s)


def micro_batches_s(forward: Sequence[Layer], backward: Sequence[Layer], travel: Travel, count: int) -> float:
    """The time of this many micro-batches, one after the other, until all gradients are reduced."""
    streams = Streams(travel)
    for i in range(count):
        streams.forward(forward)
        streams.backward(backward, last=i == count - 1)
    return streams.finish()


class _Task(NamedTuple):
    """A task of the second stream: its place in their order, when it will be done, and what it takes."""

    number: int
    done_s: float
    num_bytes: float


class Streams:
    """Two streams, each with a clock: the second executes what it is given in order, not before it is given.

    While both send over one link, each has half of it. So both take that time once more, and are late by as much; the
    clocks stand still meanwhile.

    Memory does not follow the clocks: a task that was begun, and not yet waited for, may be the one that is under way.

    Attributes:
        now_s: the clock of the main stream.
        held_bytes: the most that layers and a task beside them have held; a caller may begin anew by setting it to 0.
        waited_bytes: likewise the most that a task took while the main stream waited, for weights or a message.
        collective_bytes: the most that collectives of both streams have taken.
    """

    def __init__(self, travel: Travel) -> None:
        self._travel = travel
        self.now_s = 0.0
        self._side_s = 0.0
        self._late_s = 0.0
        self.held_bytes = self.waited_bytes = self.collective_bytes = 0.0
        self._numbers = count()
        self._under_way: list[_Task] = []  # those that may be, but for one that ends before one that takes as much
        self._gathers: dict[int, _Task] = {}  # of units of weights gathered or in flight
        self._slots: dict[int, _Task] = {}  # the last reduction of a unit in a slot
        self._parted: list[int] = []  # units with some of their gradients

    def forward(self, layers: Sequence[Layer], backward_follows: bool = True) -> None:
        """From the first layer to the last; see `GatheredWeights` for the order of gathering."""
        ahead = iter([layer.begins for layer in layers if layer.weighted][1:])
        for layer in layers:
            if layer.weighted:
                self._wait_for(layer.begins)
                self._gather_ahead(next(ahead, ()))
            self._work(layer)
            self._release(layer.ends)
        if backward_follows:
            self._gather_ahead(layers[-1].ends)
            self.hold(layers[-1])  # the loss

    def backward(self, layers: Sequence[Layer], *, last: bool = False, halves: str = "IW", loss: bool = True) -> None:
        """From the last layer to the first.

        Args:
            last: whether it is the last of the step, after which gradients are reduced in any case.
            halves: of a whole backward, or of one of its halves: I reads weights, and W adds to gradients.
            loss: whether it begins with the loss, which waits for nothing.
        """
        weights, reduced = "I" in halves, "W" in halves and (last or self._travel.slots)
        if reduced:
            self._reduce_parted()
        if loss:
            self.hold(layers[-1])
        ahead = iter([layer.ends for layer in reversed(layers) if layer.weighted and weights][1:])
        for layer in reversed(layers):
            for unit in layer.ends if reduced and self._travel.slots else ():
                if self._travel.slots[unit] in self._slots:
                    self._join(self._slots[self._travel.slots[unit]])
            if layer.weighted and weights:
                self._wait_for(layer.ends)
                self._gather_ahead(next(ahead, ()))
            self._work(layer)
            for unit in layer.begins if reduced else ():
                if unit in layer.parted:
                    self._parted.append(unit)
                else:
                    self._reduce(unit, last)
                    self.held_bytes = max(self.held_bytes, layer.left_bytes + self.beside_bytes)
            self._release(layer.begins)

    def finish(self) -> float:
        """When both streams are done."""
        self._reduce_parted()
        return max(self.now_s, self._side_s) + self._late_s

    @property
    def beside_bytes(self) -> float:
        """The most that a task takes that may be under way."""
        return self._under_way[0].num_bytes if self._under_way else 0.0

    def hold(self, layer: Layer) -> None:
        """Count what a layer holds, with a task that may be under way."""
        self.held_bytes = max(self.held_bytes, layer.held_bytes + self.beside_bytes)
        self.collective_bytes = max(self.collective_bytes, layer.within_bytes + self.beside_bytes)

    def wait(self) -> None:
        """Count a task that may be under way while the main stream waits."""
        self.waited_bytes = max(self.waited_bytes, self.beside_bytes)
        self.collective_bytes = max(self.collective_bytes, self.beside_bytes)

    def _work(self, layer: Layer) -> None:
        """Let the main stream work on a layer, which sends at an even rate."""
        self.hold(layer)
        both_s = min(max(self._side_s - self.now_s, 0.0), layer.seconds)
        if both_s:
            self._late_s += layer.sent_s * both_s / layer.seconds
        self.now_s += layer.seconds

    def _start(self, seconds: float, each_bytes: Sequence[float], unit: int) -> _Task:
        """Give the second stream a task for a unit, which takes its own of these bytes."""
        self._side_s = max(self._side_s, self.now_s) + seconds
        task = _Task(next(self._numbers), self._side_s, each_bytes[unit] if each_bytes else 0.0)
        while self._under_way and self._under_way[-1].num_bytes <= task.num_bytes:
            self._under_way.pop()
        self._under_way.append(task)
        return task

    def _reduce(self, unit: int, last: bool) -> None:
        more_s = self._travel.last_s[unit] if last and self._travel.last_s else 0.0
        task = self._start(self._travel.reduce_s[unit] + more_s, self._travel.reduce_bytes, unit)
        if self._travel.slots:
            self._slots[self._travel.slots[unit]] = task

    def _reduce_parted(self) -> None:
        """Reduce the units that the last action has left with some of their gradients."""
        while self._parted:
            self._reduce(self._parted.pop(), False)
            self.wait()

    def _join(self, task: _Task) -> None:
        """Wait for a task, and so for all before it."""
        self.now_s = max(self.now_s, task.done_s)
        self._under_way = [other for other in self._under_way if other.number > task.number]

    def _gather_ahead(self, units: Sequence[int]) -> None:
        for unit in units if self._travel.gather_s else ():
            self._gathers[unit] = self._start(self._travel.gather_s[unit], self._travel.gather_bytes, unit)

    def _wait_for(self, units: Sequence[int]) -> None:
        if self._travel.gather_s:
            self._gather_ahead([unit for unit in units if unit not in self._gathers])
            self.wait()
            for unit in units:
                self._join(self._gathers[unit])

    def _release(self, units: Sequence[int]) -> None:
        for unit in units:
            self._gathers.pop(unit, None)
