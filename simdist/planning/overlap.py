"""Overlap: the micro-batches of a step on ranks that have all layers, while gradients and weights travel beside them.

main             | F0 F1 F2 | B2 | B1 | B0 | wait
communication    |               | r2 | r1 | r0 |        r: a unit of gradients, reduced when it is complete
                 | g0 g1 g2 |g1  g0 |                    g: in ZeRO's stage 3 a unit of weights, gathered ahead
"""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Layer", "Travel", "micro_batches_s"]


class Layer(NamedTuple):
    """What a layer takes of a micro-batch, in seconds, and the units of its weights, by number.

    Attributes:
        forward_s, backward_s: on the main stream.
        begins, ends: the units whose first layer, and whose last, this is.
    """

    forward_s: float
    backward_s: float
    begins: tuple[int, ...]
    ends: tuple[int, ...]


class Travel(NamedTuple):
    """What of each unit goes on the second stream.

    Attributes:
        reduce_s: how long its gradients take.
        slots: in which memory they are: there a unit waits for the one before it, and so each micro-batch is reduced;
            none where each unit has its own, in which all add up until the last.
        gather_s: how long its weights take, before a layer in forward and again in backward; none where they stay.
        last_s: how much longer than reduce_s its gradients take with the last micro-batch; none if no longer.
    """

    reduce_s: Sequence[float]
    slots: Sequence[int] = ()
    gather_s: Sequence[float] = ()
    last_s: Sequence[float] = ()


def micro_batches_s(layers: Sequence[Layer], travel: Travel, num_micro_batches: int) -> float:
    """How long so many micro-batches take, one after the other, until all gradients are reduced."""
    step = _Step(layers, travel)
    for i in range(num_micro_batches):
        step.forward()
        step.backward(last=i == num_micro_batches - 1)
    return step.finish()


class _Step:
    """Two streams, each with a clock: the second does what it is given in that order, not before it is given."""

    def __init__(self, layers: Sequence[Layer], travel: Travel) -> None:
        self._layers = layers
        self._travel = travel
        self._now_s = 0.0
        self._side_s = 0.0
        self._there: dict[int, float] = {}  # units of weights that are here or on their way, and since when
        self._slots: dict[int, float] = {}  # when what is in a slot is reduced

    def forward(self) -> None:
        """See `GatheredWeights` for what is gathered when."""
        for k, layer in enumerate(self._layers):
            self._have(layer.begins)
            self._send_for(self._layers[k + 1].begins if k + 1 < len(self._layers) else ())
            self._now_s += layer.forward_s
            self._let_go(layer.ends)
        self._send_for(self._layers[-1].ends)

    def backward(self, last: bool) -> None:
        """From the last layer to the first."""
        reduced = last or self._travel.slots
        for k, layer in reversed(list(enumerate(self._layers))):
            for unit in layer.ends if reduced and self._travel.slots else ():
                self._now_s = max(self._now_s, self._slots.get(self._travel.slots[unit], 0.0))
            self._have(layer.ends)
            self._send_for(self._layers[k - 1].ends if k else ())
            self._now_s += layer.backward_s
            for unit in layer.begins if reduced else ():
                more_s = self._travel.last_s[unit] if last and self._travel.last_s else 0.0
                done_s = self._start(self._travel.reduce_s[unit] + more_s)
                if self._travel.slots:
                    self._slots[self._travel.slots[unit]] = done_s
            self._let_go(layer.begins)

    def finish(self) -> float:
        """When both streams are done."""
        return max(self._now_s, self._side_s)

    def _start(self, seconds: float) -> float:
        """Give the second stream something to do; returns when that is done."""
        self._side_s = max(self._side_s, self._now_s) + seconds
        return self._side_s

    def _send_for(self, units: Sequence[int]) -> None:
        for unit in units if self._travel.gather_s else ():
            self._there[unit] = self._start(self._travel.gather_s[unit])

    def _have(self, units: Sequence[int]) -> None:
        if self._travel.gather_s:
            self._send_for([unit for unit in units if unit not in self._there])
            self._now_s = max([self._now_s, *(self._there[unit] for unit in units)])

    def _let_go(self, units: Sequence[int]) -> None:
        for unit in units:
            self._there.pop(unit, None)
