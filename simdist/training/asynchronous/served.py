"""Served: a rank's part in a run with parameter servers, as a server or as a worker."""

from dataclasses import replace

import numpy as np

from simdist.arrays import Array
from simdist.asynchronous.parameter_server import ParameterServer, ServerReport, ServerState, Synchronous, train
from simdist.asynchronous.worker import Asked
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.nn import Parameters
from simdist.optim import Optimizer
from simdist.optim.norm import alone
from simdist.parallel.holding import Holding, Shard
from simdist.training.asynchronous.checkpoint import AsynchronousState, Origin, rank_prefix
from simdist.training.asynchronous.methods import compute_time, consistency
from simdist.training.asynchronous.role import RankReport, Role
from simdist.training.config import Config
from simdist.training.methods import recipe

__all__ = ["Served", "rule"]

_OPTIMIZER = "optimizer/"


class Served(Role):
    """Keeps some of the weights as a server, or trains all of them as a worker."""

    def __post_init__(self) -> None:
        comm, config = self.comm, self._config
        self._rates = config.rates()
        self._how = ParameterServer(
            config.servers,
            consistency(config),
            lambda own, start: rule(config, self._parameters, own, start),
            bool(config.staleness_aware),
            compute_time=compute_time(config),
        )
        self._layout = self._how.layout(comm, len(self._weights))
        self._serves = self._layout.serves(comm)
        self._keys = self._layout.keys(comm.rank) if self._serves else slice(0, 0)
        self._optimizer_steps = 0
        self._state: ServerState | None = None
        self.done = [0] * self._layout.num_workers

    def train(self, until: int, asked: Asked) -> RankReport:
        """See Role. Under a bound all workers make `until` steps; without one, at least the slowest does."""
        config, bounded = self._config, self._config.method != "async"
        report = train(
            self.comm,
            self._weights,
            self._gradient,
            until if bounded else config.steps,
            self._rate,
            self._how,
            state=self._state,
            until=None if bounded else until,
            asked=asked,
        )
        self._gradient.close()  # others may still be training
        ended_s = self.comm.clock()
        left = self.comm.survivors()
        self._hear(report.state if isinstance(report, ServerReport) else None, left)
        # Ranks wait at a cut for the others, but not at the end of the run.
        paused_s = self.comm.clock() - ended_s if until < config.steps else 0.0
        if left is not self.comm:
            self._go_without(left)
        waited_s, elapsed_s = report.waited_s + paused_s, report.elapsed_s + paused_s
        if isinstance(report, ServerReport):
            counts = report.counts
            return RankReport([], [], [], waited_s, elapsed_s, counts.staleness, counts.num_late)
        own = report.clocks, report.times_s, report.losses
        return RankReport(*own, waited_s, elapsed_s, num_given_up=report.num_given_up)

    def _hear(self, state: ServerState | None, left: Communicator) -> None:
        """Learn from the first server how far all have come."""
        told = np.zeros(2 + len(self.done), np.int64)
        if state is not None:
            numbers = state.numbers
            told[:] = [numbers["steps"], numbers["clock"], *(numbers[f"worker {w}"] for w in range(len(self.done)))]
            self._state = state
        broadcast(told, left)
        self._optimizer_steps, clock, *applied = told.tolist()
        self.done = [clock] * len(applied) if self._how.consistency.whole_steps else applied

    def _go_without(self, left: Communicator) -> None:
        """Some workers have died: the next stretch has these ranks. The dead workers' parts are not done."""
        kept = [w for w in range(len(self.done)) if self.comm.ranks[self._layout.rank_of(w)] in left.ranks]
        rule = self._how.consistency
        lost = self._layout.num_workers - len(kept)
        self._how = replace(
            self._how,
            consistency=Synchronous(rule.backups - lost) if isinstance(rule, Synchronous) else rule,
            compute_time=compute_time(self._config, left.ranks),
        )
        self.comm, self.done = left, [self.done[w] for w in kept]
        self._layout = self._how.layout(left, len(self._weights))
        if self._state is not None:
            self._state = ServerState(self._keys, self._state.vectors, self._numbers())

    def _numbers(self) -> dict[str, int]:
        """Of a server's state."""
        numbers = {"steps": self._optimizer_steps, "clock": min(self.done)}
        return numbers | {f"worker {worker}": done for worker, done in enumerate(self.done)}

    def _rate(self, step: int) -> float:
        self._gradient.trim()
        return self._rates(step)

    def collect(self) -> None:
        """See Role. All servers' weights together."""
        if self._state is not None:
            self._weights[self._keys] = self._state.vectors["weights"]
        for server in range(self._config.servers):
            broadcast(self._weights[self._layout.keys(server)], self.comm, server)

    # -- checkpoints ----------------------------------------------------------------------------------

    def vectors(self) -> dict[str, Shard]:
        """See Role. A server's."""
        if not self._serves:
            return {}
        state = self._state or self._first_state()
        return {self._prefix(name): Shard(self._keys.start, x) for name, x in state.vectors.items()}

    def optimizer_steps(self) -> list[int]:
        """See Role."""
        return [self._optimizer_steps]

    def wanted(self, origin: Origin) -> dict[str, Shard]:
        """See Role."""
        rank_prefix(origin, self.comm, per_rank=False, has_state=len(self._first_state().vectors) > 1)
        return self.vectors()

    def restore(self, wanted: dict[str, Shard], state: AsynchronousState) -> None:
        """See Role. Where all workers close a step together, those that were ahead start with the others."""
        self.done, self._optimizer_steps = state.done, state.optimizer_steps[0]
        if self._how.consistency.whole_steps:
            self.done = [min(state.done)] * len(state.done)
        if self._serves:
            vectors = {name: wanted[self._prefix(name)].data for name in self._first_state().vectors}
            self._state = ServerState(self._keys, vectors, self._numbers())

    def _first_state(self) -> ServerState:
        """A server's state before the first step."""
        first = self._weights[self._keys].copy()
        kept = self._how.optimizer(first, self._keys.start).vectors()
        return ServerState(self._keys, {"weights": first} | {f"{_OPTIMIZER}{name}": x for name, x in kept.items()}, {})

    def _prefix(self, name: str) -> str:
        """The name of a server's vector in a checkpoint, the same as in other methods."""
        return "" if name == "weights" else f"{self._config.optimizer}.{name.removeprefix(_OPTIMIZER)}/"


def rule(config: Config, parameters: Parameters, own: Array, start: int) -> Optimizer:
    """The update rule for the stretch of weights that begins at `start`."""
    return recipe(config).rule(own, parameters, Holding([slice(start, start + len(own))]), alone)
