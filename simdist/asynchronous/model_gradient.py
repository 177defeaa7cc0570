"""Model gradient: a model and its batches as a function from weights to a gradient."""

import numpy as np

from simdist.arrays import Array, clear, empty
from simdist.data import Batches
from simdist.nn import Model

__all__ = ["ModelGradient", "first_weights"]


def first_weights(model: Model, dtype: str = "float32", seed: int = 0, kind: str = "numpy") -> Array:
    """A flat vector of the model's initial values, which depend only on the seed; the model is bound to it."""
    weights = empty(kind, model.parameters.size, dtype)
    model.parameters.bind(weights, np.zeros_like(weights))
    model.parameters.initialize(seed)
    return weights


class ModelGradient:
    """One worker's gradient on its part of each batch: gradient(weights, step) -> (loss, gradient).

    The mean of all workers' gradients is that of the whole batch, even if its parts differ in size. A worker's loss is
    the mean over its own windows; nan if it has none, as when there are fewer windows than workers.

    Args:
        model: this rank's own; it is bound to the weights of each call. There is no dropout.
        batches: of all workers together.
        worker, workers: the index of this worker, and the number of workers.
    """

    def __init__(self, model: Model, batches: Batches, worker: int, workers: int) -> None:
        self._model = model
        self._batches = batches
        self._worker, self._workers = worker, workers
        self._weights: Array | None = None

    def __call__(self, weights: Array, step: int) -> tuple[float, Array]:
        """The loss in nats per target, and its gradient, in an array that the next call reuses.

        Raises:
            ArrayError: a layer has replaced a parameter's array; see `Parameters.check_views`.
        """
        model, parameters = self._model, self._model.parameters
        if weights is not self._weights:
            parameters.bind(weights, np.zeros_like(weights))
            self._weights = weights
        clear(parameters.gradient)
        part = self._batches.part(step, self._worker, self._workers)
        own = len(part.windows) * model.targets_per_window
        total, context = model.forward(part.windows)
        model.backward(context, self._workers / (part.batch_size * model.targets_per_window))
        parameters.check_views()
        return total / own if own else np.nan, parameters.gradient
