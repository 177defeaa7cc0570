"""Method: a way for many ranks to train one model as one rank would."""

from abc import abstractmethod
from collections.abc import Sequence

from simdist.arrays import Array, clear
from simdist.nn import Noise
from simdist.parallel.learner import Learner

__all__ = ["GRADIENTS", "Method"]

GRADIENTS = "synchronize gradients"
"""The span around a step's reduction, or around the part of it that is left after backward."""


class Method(Learner):
    """A learner that makes one update per batch, by the gradient of the whole batch.

        for windows in micro_batches:                                   # this rank's part of the batch
            total += method.backward(windows, scale, noise, last=…)     # gradients add up
        method.step(learning_rate)                                      # over the ranks, then new weights

    The weights after a step equal those of one rank with the whole batch, up to rounding; a method that differs by
    more says so.
    """

    _in_step = False  # whether `train` has begun a step and not ended it

    @abstractmethod
    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """Forward and backward: add the derivatives of scale * the summed loss to the gradient of the batch.

        With scale = 1 / (targets in the global batch) this is the gradient of the batch's mean loss, for any split
        of the batch: all windows have the same weight, and a rank may have none.

        Args:
            windows: this rank's micro-batch, shape (n, length), uint8.
            noise: for dropout, which windows of the batch these are; without it nothing is dropped.
            last: whether it is this rank's last before `step`, so that the reduction of gradients may begin.

        Returns:
            The loss summed over these windows, in nats.
        """

    @abstractmethod
    def step(self, learning_rate: float) -> bool:
        """Finish the reduction of gradients, update the weights by them, and reset them.

        Returns:
            Whether the weights were updated: not if a scaled loss overflowed on any rank.
        """

    def zero_gradients(self) -> None:
        """Drop what `backward` has added since the last `step`, to go on after an exception that all ranks have had at
        the same place.
        """
        for p in self.model.parameters:
            clear(p.gradient)

    def train(
        self, windows: Sequence[Array], scale: float, learning_rate: float, noise: Sequence[Noise] | None = None
    ) -> float:
        """See Learner. A call after one that raised begins with `zero_gradients`.

        Raises:
            ArrayError: the step gave a parameter another array; see `Parameters.check_views`.
        """
        if self._in_step:
            self.zero_gradients()
        self._in_step = True
        total, last = 0.0, len(windows) - 1
        for i, each in enumerate(windows):
            total += self.backward(each, scale, None if noise is None else noise[i], last=i == last)
        self.step(learning_rate)
        self._in_step = False
        self.model.parameters.check_views()
        return total
