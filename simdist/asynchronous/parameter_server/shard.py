"""Shard: the weights that one server holds, and their updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simdist.arrays import Array, charge, clear
from simdist.asynchronous.parameter_server.clocks import Push
from simdist.errors import ArrayError
from simdist.optim import Optimizer

__all__ = ["ServerState", "Shard"]


@dataclass(frozen=True)
class ServerState:
    """All that one server needs to resume later, as plain arrays and numbers.

    Attributes:
        keys: its slice of the whole flat vector.
        vectors: name -> flat vector with one item per key: "weights", "optimizer/velocity" and the like.
        numbers: name -> integer: "steps" of the optimizer, the "clock", and for "worker 0" and so on one more than the
            stamp of its last update applied.
    """

    keys: slice
    vectors: Mapping[str, Array]
    numbers: Mapping[str, int]


class Shard:
    """A slice of the flat vector, and the optimizer that updates it.

    Args:
        weights: shape (keys,), flat; the shard takes ownership.
        keys: its range in the whole vector.
        row_width: the width of the rows of sparse updates.
        optimizer: made for these weights.

    Attributes:
        version: the number of times that the weights have changed.
    """

    def __init__(self, weights: Array, keys: slice, row_width: int, optimizer: Optimizer) -> None:
        self.weights = weights
        self.keys = keys
        self.optimizer = optimizer
        self.version = 0
        self._row_width = row_width
        self._sum = np.empty_like(weights)

    def read(self, keys: slice) -> Array:
        """A view of the weights of these keys of the whole vector, all within the shard."""
        return self.weights[keys.start - self.keys.start : keys.stop - self.keys.start]

    def apply(self, pushes: Sequence[Push], rate: float) -> None:
        """Make one step with the mean of these updates, added up in this order."""
        self.optimizer.step(self.weights, self._gradient(pushes), rate, 1 / len(pushes))
        self.version += 1

    def _gradient(self, pushes: Sequence[Push]) -> Array:
        """The sum of the updates, one item per key of the shard: zero where nothing was pushed."""
        if len(pushes) == 1 and len(pushes[0].values) == len(self.weights) and pushes[0].rows is None:
            return pushes[0].values
        total = self._sum
        clear(total)
        width = self._row_width
        total_rows = total.reshape(-1, width)
        for push in pushes:
            charge(push.values.size, 3 * push.values.nbytes)
            if push.rows is None:
                total[push.keys.start - self.keys.start : push.keys.stop - self.keys.start] += push.values
            else:  # the rows of a push are distinct, so that each is added
                total_rows[push.rows - self.keys.start // width] += push.values.reshape(-1, width)
        return total

    # -- checkpoints ----------------------------------------------------------------------------------

    def vectors(self) -> dict[str, Array]:
        """The weights and the optimizer's state, not copied."""
        return {"weights": self.weights} | {f"optimizer/{name}": x for name, x in self.optimizer.vectors().items()}

    def restore(self, state: ServerState) -> None:
        """Take over the state of another shard of the same keys.

        Raises:
            ArrayError: the state is of other keys, or a vector is missing, unknown or of another length.
        """
        if state.keys != self.keys:
            raise ArrayError(
                f"the state is of keys {state.keys.start} to {state.keys.stop}, "
                f"and this server holds {self.keys.start} to {self.keys.stop}"
            )
        vectors = dict(state.vectors)
        weights = vectors.pop("weights", None)
        if weights is None or weights.shape != self.weights.shape:
            found = "none" if weights is None else f"shape {weights.shape}"
            raise ArrayError(f"the state's weights have {found}; this server needs {self.weights.shape}")
        kept = {name.removeprefix("optimizer/"): x for name, x in vectors.items()}
        self.optimizer.restore(kept, state.numbers["steps"])
        self.weights[...] = weights
