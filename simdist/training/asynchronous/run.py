"""Run: an asynchronous training run, from the first weights to all that is to be told of it."""

from collections.abc import Callable
from typing import Any

from simdist.arrays import Array
from simdist.arrays.memory import keep_freed_memory
from simdist.asynchronous import ModelGradient, first_weights
from simdist.asynchronous.local_sgd import average
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.data import Batches
from simdist.training.asynchronous.methods import GOSSIP, SERVED
from simdist.training.asynchronous.pace import Pace
from simdist.training.asynchronous.ranks import Doing, check_ranks, first_worker, perform
from simdist.training.asynchronous.story import Costs, Story
from simdist.training.config import Config
from simdist.training.judge import Judge
from simdist.training.models import build
from simdist.training.record import gather_json, gather_trace
from simdist.training.text import Text

__all__ = ["AsynchronousRun"]


class AsynchronousRun:
    """A training run whose ranks need not wait for each other. It has no common step, and so no `Trainer`.

        run = AsynchronousRun(comm, config)
        story = run.run()                 # all ranks must call; rank 0 is told
        texts = run.samples()

    What would make ranks talk, and so change who waits for whom, comes when all have ended: the validation losses of
    copies of the weights that were kept on the way, and the consensus error of these.

    Args:
        comm: the ranks, servers and workers. All of them must call.
        config: the same on all ranks, of an asynchronous method.
        text: the config's, if it has been read already.

    Attributes:
        model: bound, after the run, to the weights that the servers have, or to the mean of all ranks'.

    Raises:
        DataError: the text cannot be read or is too short.
        ArgumentError: the config is not for so many ranks; on all of them.
        CollectiveMismatch: on all ranks, if they were given different configs or read different texts.
    """

    def __init__(self, comm: Communicator, config: Config, text: Text | None = None) -> None:
        check_ranks(config, comm.size)
        self.comm = comm
        self.config = config
        self.text = text or Text(config)
        self.text.agree(comm, config)
        self._first_span = len(comm.recorder.rows)
        keep_freed_memory()
        self.model = build(config)
        self._weights = first_weights(self.model, config.precision, config.seed)
        self._judge = Judge(self.text.validation, comm, config, self.model.targets_per_window)

    @property
    def num_workers(self) -> int:
        """How many ranks work."""
        return self.comm.size - first_worker(self.config)

    @property
    def marks(self) -> list[int]:
        """After which steps the log has a line."""
        steps, interval = self.config.steps, self.config.interval
        return sorted({1, *range(interval, steps, interval), steps})

    def run(self, tell: Callable[[int, float], None] | None = None) -> Story | None:
        """Train; returns what came of it on rank 0, None elsewhere.

        Args:
            tell: called on the first worker's rank with (step, its last loss) when it comes to a step of the log.
        """
        comm, config = self.comm, self.config
        comm.barrier()
        start_s, pace, on_record = comm.clock(), self._pace(tell), comm.recorder.on
        doing = perform(comm, config, self.model.parameters, self._weights, pace)
        if config.method in GOSSIP:
            pace.snapshots.errors()
        losses = self._validation_losses(pace)
        costs = Costs(pace.sent_bytes, pace.communication_s, pace.messages, pace.meter.flops, pace.norm)
        told = gather_json(comm, [doing, costs])
        trace = gather_trace(comm, first=self._first_span)
        comm.recorder.on = on_record  # a long run has ended its record
        if told is None or trace is None:
            return None
        parts = [(Doing(*one), Costs(*other)) for one, other in told]
        return Story(config, self.num_workers, self.marks, losses, parts, trace, start_s)

    def samples(self) -> list[tuple[bytes, bytes]]:
        """A few windows of the validation text, and what the model writes after each; all ranks must call."""
        return self._judge.samples(self)

    def logits(self, tokens: Array) -> Array:
        """What may come next after each row of tokens: see `Model.logits`."""
        return self.model.logits(tokens)

    def _pace(self, tell: Callable[[int, float], None] | None) -> Pace:
        comm, config, first = self.comm, self.config, first_worker(self.config)
        size, stride = config.global_batch_size, self.model.targets_per_window
        batches = Batches(self.text.train, size, config.seed, config.order, stride)
        gradient = ModelGradient(self.model, batches, comm.rank - first, self.num_workers)
        keeps = comm.rank == first or (config.method not in SERVED)
        return Pace(comm, gradient, self.marks if keeps else [], config.clip_norm, tell if comm.rank == first else None)

    def _validation_losses(self, pace: Pace) -> list[float]:
        """At each mark: of the weights as the first worker had read them from servers, or of the mean of all ranks'."""
        comm, parameters, first = self.comm, self.model.parameters, first_worker(self.config)
        x, spare = self._weights.copy(), self._weights.copy()
        parameters.bind(x, spare)
        found = []
        for i in range(len(self.marks)):
            if self.config.method not in SERVED:
                x[...] = pace.snapshots.iterates[i]
                average(x, comm)
            else:
                if comm.rank == first:
                    x[...] = pace.snapshots.iterates[i]
                broadcast(x, comm, first)
            found.append(self._judge.loss(self._loss))
        parameters.bind(self._weights, spare)
        return found

    def _loss(self, windows: Array) -> Any:
        return self.model.forward(windows)[0]
