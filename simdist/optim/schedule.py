"""Schedule: the learning rate at each step of a run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simdist.errors import ArgumentError, require_known, require_least, require_more

__all__ = ["SHAPES", "Schedule"]

SHAPES: dict[str, Callable[[float, float], float]] = {
    "cosine": lambda done, times: (1 + math.cos(math.pi * done)) / 2,
    "linear": lambda done, times: 1 - done,
    "quadratic": lambda done, times: (1 - done) ** 2,
    "constant": lambda done, times: 1.0,
    "inverse-sqrt": lambda done, times: 1 / math.sqrt(times),
}
"""The rate after the warm-up, as a share of the peak, by the share of steps done and the step over warmup_steps."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate as a function of the step, from 0: `Schedule(peak=0.1, steps=100)(step)`.

        peak              .---.
                        /       `.
                      /            `.               it rises linearly, then falls in the given shape
        start       /                 `--
                   |  warmup  |

    Args:
        peak: the highest rate; above 0, and finite.
        steps: of the whole run; later ones stay at the final rate.
        shape: after the warm-up "cosine" (half a wave), "linear", "quadratic" (as with LARS), "constant", or
            "inverse-sqrt" (as of the first Transformer), which halves whenever there are four times as many steps.
        warmup_steps: the number of steps after which the rate is at its peak, where a run has as many.
        start: the rate of the first step; if 0, that is the first of `warmup_steps` equal increments from 0.
        floor: the final rate, as a share of peak.
        drops: steps from which the rate is a tenth of what it would be. ResNet-50's are those of epochs 30, 60 and 80,
            with "constant".

    Raises:
        ArgumentError: an argument is outside its limits.
        UnknownNameError: there is no such shape.

    Source: Goyal et al. 2017, arXiv 1706.02677, sections 2.2 (gradual warm-up) and 5.1 (drops); Loshchilov and Hutter
    2017, arXiv 1608.03983, equation 5 (cosine); You, Gitman, Ginsburg 2017, arXiv 1708.03888 (quadratic); Vaswani et
    al. 2017, arXiv 1706.03762, equation 3 (inverse root).
    """

    peak: float
    steps: int
    shape: str = "cosine"
    warmup_steps: int = 0
    start: float = 0.0
    floor: float = 0.0
    drops: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require_known("shape of a schedule", self.shape, SHAPES)
        require_more("peak", self.peak, 0)
        if self.peak == math.inf:
            raise ArgumentError(f"peak is {self.peak}; needs a finite rate")
        require_least("steps", self.steps, 1)
        require_least("warmup_steps", self.warmup_steps, 0)
        require_least("start", self.start, 0)
        require_least("floor", self.floor, 0)
        if self.start > self.peak or self.floor > 1:
            raise ArgumentError(
                f"start is {self.start} and floor {self.floor}; needs 0 <= start <= peak = {self.peak}, 0 <= floor <= 1"
            )
        if isinstance(self.drops, str) or not isinstance(self.drops, Sequence):
            raise ArgumentError(f"drops is {self.drops!r:.60}; needs a sequence of steps, such as (30, 60, 80)")
        for i, at in enumerate(self.drops):
            require_least(f"drops[{i}]", at, 0)

    def __call__(self, step: int) -> float:
        """The learning rate of this step, the first of which is 0."""
        require_least("step", step, 0)
        return self._smooth(step) * 0.1 ** sum(step >= at for at in self.drops)

    def _smooth(self, step: int) -> float:
        """The same without drops."""
        if step < self.warmup_steps:
            climbed = step if self.start else step + 1  # a step at a rate of 0 would do nothing
            return self.start + (self.peak - self.start) * climbed / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        times = max(1.0, (min(step, self.steps) + 1) / max(1, self.warmup_steps))
        return self.peak * (self.floor + (1 - self.floor) * SHAPES[self.shape](min(1.0, done), times))
