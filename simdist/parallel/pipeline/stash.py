"""Stash: the older versions of a stage's weights that micro-batches still need."""

from collections import Counter

import numpy as np

from simdist.arrays import Array, hold
from simdist.parallel.data_parallel import DataParallel
from simdist.parallel.pipeline.versions import StageVersions

__all__ = ["Stash"]


class Stash:
    """Gives each micro-batch its version of the weights, and updates them when a group's gradients are complete.

        newest    v0 ---- update ---- v1 ---- update ---- v2        updated in place
        stash             v0 ............ last user done            a copy, while a micro-batch still needs it

    Args:
        method: holds and updates the stage's weights.
        plan: which micro-batch uses which version, and when the stage is updated.
        learning_rate: of every update.

    Attributes:
        most: the most versions at once, including the newest.
    """

    def __init__(self, method: DataParallel, plan: StageVersions, learning_rate: float) -> None:
        self.most = 1
        self._method = method
        self._plan = plan
        self._rate = learning_rate
        self._weights, self._gradient = method.weights, method.gradient
        self._users = Counter(plan.used.values())
        self._places = frozenset(plan.updates)
        self._newest = 0
        self._old: dict[int, Array] = {}
        self._spare: list[Array] = []

    def use(self, micro_batch: int) -> None:
        """Bind the layers to the version of this micro-batch."""
        self._bind(self._old.get(self._plan.used[micro_batch], self._weights))

    def done(self, micro_batch: int) -> None:
        """Drop the version of this micro-batch, unless it is the newest or another micro-batch needs it."""
        version = self._plan.used[micro_batch]
        self._users[version] -= 1
        if version in self._old and not self._users[version]:
            self._spare.append(self._old.pop(version))

    def update(self, place: int) -> None:
        """After the last gradient of a group, make a new version; keep a copy of the previous one if still needed."""
        if place not in self._places:
            return
        if self._users[self._newest]:
            copy = self._spare.pop() if self._spare else np.empty_like(self._weights)
            copy[...] = self._weights
            hold("parameters", copy, "stash")
            self._old[self._newest] = copy
        self.most = max(self.most, 1 + len(self._old))
        self._bind(self._weights)
        self._method.reduce()
        self._method.step(self._rate)
        self._newest += 1

    def _bind(self, weights: Array) -> None:
        parameters = self._method.model.parameters
        parameters.check_views()  # before new views hide that one was replaced
        parameters.bind(weights, self._gradient)
