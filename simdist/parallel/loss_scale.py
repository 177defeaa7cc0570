"""Loss scale: a factor that keeps gradients within the range of float16."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from simdist.arrays import Array, charge
from simdist.collectives import all_reduce
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.optim import largest

__all__ = ["LossScale"]


@dataclass(eq=False)
class LossScale:
    """The factor by which the loss is multiplied before backward, and the gradient divided after it.

        scale = LossScale(comm)
        backward(scale.value * loss)
        if finite := scale.agree(gradient):             # on all ranks or on none
            optimizer.step(weights, gradient, rate, gradient_scale=1 / scale.value)
        scale.update(finite)

    It searches for the largest factor that works: an Inf or NaN on any rank makes all ranks skip the step and halve
    it; after `interval` good steps in a row it doubles. A step that is skipped counts in the schedule of learning rates
    of a training run; in Megatron-LM and DeepSpeed it does not.

        value     8  8  8  16  16   8  8  8  16        interval = 3
        finite    y  y  y  y   no   y  y  y  …

    Args:
        comm: the ranks that train together.
        value: the first factor. Powers of two change no bits of a gradient that is in range.
        interval: good steps in a row before it doubles; at least 1.
        least, most: the limits of the factor.

    Attributes:
        value: the factor now; the same on all ranks.
        good_steps: how many in a row since it last changed.
        skipped_steps: how many in all.
        skipped_in_a_row: how many since the last good one. If this grows while value is at its minimum,
            the gradients are at fault, not the scale.

    Raises:
        ArgumentError: an argument is outside its limits.

    Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2: scaling, and skipping the update on
    overflow. When to halve and to double is as in PyTorch's GradScaler.
    """

    comm: Communicator
    value: float = 2.0**16
    _: KW_ONLY
    interval: int = 2000
    least: float = 1.0
    most: float = 2.0**24
    good_steps: int = field(default=0, init=False)
    skipped_steps: int = field(default=0, init=False)
    skipped_in_a_row: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.value <= self.most < math.inf or self.interval < 1:
            raise ArgumentError(
                f"value is {self.value}, least {self.least}, most {self.most}, interval {self.interval}; "
                "needs 0 < least <= value <= most, finite, and interval >= 1"
            )

    def agree(self, gradient: Array) -> bool:
        """Whether the gradient is finite on all ranks; all must call, and all get the same answer.

        Args:
            gradient: the whole one or this rank's shard, before or after the reduction; any real dtype.

        Cost per rank: an all-reduce of 1 byte. The gradient is read once.
        """
        charge(gradient.size, gradient.nbytes)
        wrong = np.array([not math.isfinite(largest(gradient))])
        all_reduce(wrong, self.comm, "lor")
        return not wrong[0]

    def update(self, finite: bool) -> None:
        """Set the factor for the next step; `finite` is the result of `agree` in this one."""
        if finite:
            self.good_steps += 1
            self.skipped_in_a_row = 0
            if self.good_steps >= self.interval:
                self.good_steps = 0
                self.value = min(2 * self.value, self.most)
        else:
            self.good_steps = 0
            self.skipped_steps += 1
            self.skipped_in_a_row += 1
            self.value = max(self.value / 2, self.least)

    def state(self) -> dict[str, float]:
        """The state to keep in a checkpoint; the same on all ranks."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: Mapping[str, float]) -> None:
        """Restore what `state` returned.

        Raises:
            ArgumentError: as of `check`; the state is then unchanged.
        """
        self.check(state)
        self.value = float(state["value"])
        self.good_steps, self.skipped_steps, self.skipped_in_a_row = (int(state[name]) for name in _STATE[1:])

    def check(self, state: Mapping[str, float]) -> None:
        """Raise ArgumentError if a number is missing, unknown or outside its limits."""
        if set(state) != set(_STATE):
            raise ArgumentError(f"a loss scale keeps {', '.join(_STATE)}; was given {', '.join(state) or 'nothing'}")
        counts = [state[name] for name in _STATE[1:]]
        if not self.least <= state["value"] <= self.most or any(not 0 <= n < math.inf or n % 1 for n in counts):
            raise ArgumentError(
                f"{dict(state)} is no loss scale; needs {self.least} <= value <= {self.most} and counts of 0 or more"
            )


_STATE = ("value", "good_steps", "skipped_steps", "skipped_in_a_row")
