"""Validation: the validation losses along an asynchronous run, of copies of the weights that ranks kept."""

from collections.abc import Iterable
from dataclasses import dataclass

from simdist.arrays import Array
from simdist.asynchronous import Snapshots
from simdist.asynchronous.local_sgd import average
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.nn import Model
from simdist.training.asynchronous.methods import SERVED, first_worker, gossips
from simdist.training.config import Config
from simdist.training.evaluation import Evaluator
from simdist.training.text import Text

__all__ = ["Validation"]


@dataclass(eq=False, repr=False)
class Validation:
    """The validation loss at each mark: of the weights that the first worker had read, or of the mean of all ranks'.

    A rank that is not there yet at the end of a stretch contributes its weights as they are then.

    Args:
        comm: the ranks; all of them must call.
        model: is bound to the weights afterwards.
        pending: the marks not evaluated yet: at first all steps of the log.
        snapshots: where copies are kept, one a mark.

    Attributes:
        unlogged: (mark, loss) of those evaluated that have no line yet.
        last: the last mark and its loss; 0 and nan before the first.
    """

    _comm: Communicator
    _config: Config
    _model: Model
    _weights: Array
    _text: Text
    pending: list[int]
    _snapshots: Snapshots

    def __post_init__(self) -> None:
        self.unlogged: list[tuple[int, float]] = []
        self.last = (0, float("nan"))
        self.regroup(self._comm)

    def regroup(self, comm: Communicator) -> None:
        """Continue with these ranks."""
        self._comm = comm
        self.evaluator = Evaluator(self._text.validation, comm, self._config, self._model.targets_per_window)

    def resume(self, done: int, unlogged: Iterable[tuple[int, float]]) -> None:
        """Resume after this many steps, with these losses known."""
        self.unlogged = [(mark, loss) for mark, loss in unlogged if mark in self.pending]
        known = {mark for mark, _ in self.unlogged}
        self.pending = [mark for mark in self.pending if mark > done and mark not in known]

    def evaluate(self) -> None:
        """Evaluate the copies of all marks reached; all ranks must call."""
        comm, first = self._comm, first_worker(self._config)
        served = self._config.method in SERVED
        count = int(comm.exchange(str(len(self._snapshots.iterates)))[first])
        copies = self._snapshots.pop(count)
        if gossips(self._config.method) and copies.iterates:
            copies.errors()
        parameters, x = self._model.parameters, self._weights.copy()
        spare = parameters.gradient
        parameters.bind(x, spare)
        for i in range(count):
            if not served or comm.rank == first:
                x[...] = copies.iterates[i]
            if served:
                broadcast(x, comm, first)
            else:
                average(x, comm)
            self.last = self.pending.pop(0), self.evaluator.loss(lambda windows: self._model.forward(windows)[0])
            self.unlogged.append(self.last)
        parameters.bind(self._weights, spare)

    def due(self, done: int) -> list[tuple[int, float]]:
        """Those of the marks that all workers have reached, which now get their lines."""
        found = [(mark, loss) for mark, loss in self.unlogged if mark <= done]
        self.unlogged = self.unlogged[len(found) :]
        return found
