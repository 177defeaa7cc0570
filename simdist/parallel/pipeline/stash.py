"""Stash: the versions of a stage's weights that micro-batches still need, beside the newest."""

from collections import Counter

import numpy as np

from simdist.arrays import Array, hold
from simdist.parallel.data_parallel import DataParallel
from simdist.parallel.pipeline.versions import StageVersions

__all__ = ["Stash"]


class Stash:
    """Lets each micro-batch meet its version of the weights, and updates them when a group's gradients are there.

        newest    v0 ---- update ---- v1 ---- update ---- v2        changed in place
        stash             v0 ............ last user done            a copy, while any micro-batch still needs it

    Args:
        method: holds the stage's weights, and changes them.
        plan: which micro-batch uses which version, and when there is a new one.
        learning_rate: of every update.

    Attributes:
        most: how many versions there were at once, the newest included.
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
        """Let the layers read the version of this micro-batch."""
        self._bind(self._old.get(self._plan.used[micro_batch], self._weights))

    def done(self, micro_batch: int) -> None:
        """Let go of its version, if nobody else needs it and it is not the newest."""
        version = self._plan.used[micro_batch]
        self._users[version] -= 1
        if version in self._old and not self._users[version]:
            self._spare.append(self._old.pop(version))

    def update(self, place: int) -> None:
        """After the last gradient of a group make a new version, and keep the one before if it is still needed."""
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
        self._method.model.parameters.bind(weights, self._gradient)
