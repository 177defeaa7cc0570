"""Peer: a rank's part in a run without servers, in which each rank has its own weights."""

from simdist.arrays import Array
from simdist.asynchronous import Worker, ad_psgd, d_psgd, diloco, local_sgd, metropolis, post_local
from simdist.asynchronous.diloco import nesterov
from simdist.asynchronous.local_sgd import average
from simdist.asynchronous.worker import Asked
from simdist.errors import ArgumentError
from simdist.optim import Optimizer
from simdist.parallel.holding import Shard
from simdist.training.asynchronous.checkpoint import AsynchronousState, Origin, rank_prefix
from simdist.training.asynchronous.methods import OWN, compute_time, gossips, graph
from simdist.training.asynchronous.role import RankReport, Role
from simdist.training.asynchronous.served import rule

__all__ = ["Peer"]

_OUTER = "outer."


class Peer(Role):
    """Makes its own steps, and averages with others."""

    def __post_init__(self) -> None:
        comm, config, weights, gradient = self.comm, self._config, self._weights, self._gradient
        self._rule = rule(config, self._parameters, weights, 0)
        self._outer = nesterov(weights) if config.method == "diloco" else None
        times = compute_time(config)
        self.worker = Worker(comm, weights, gradient, config.rates(), optimizer=self._rule, compute_time=times)
        if config.method == "d-psgd":  # whose messages leave before the next gradient begins
            self.worker.observe = lambda step, weights: gradient.close()
        self.done = [0] * comm.size

    @property
    def front(self) -> int:
        """See Role. Where ranks are at different steps, the first to reach a step ends the stretch."""
        return max(self.done)

    def train(self, until: int, asked: Asked) -> RankReport:
        """See Role. A method that averages stops at its first average from `until` on: an extra one would change the
        rest of the run.
        """
        config, worker, comm = self._config, self.worker, self.comm
        begun, first = worker.done, len(worker.losses)

        def due() -> bool:
            return asked() or (until < config.steps and worker.done >= until)

        if config.method == "d-psgd":  # all ranks know in advance where it stops
            d_psgd(worker, metropolis(graph(config, comm.size)), until, asked)
        elif config.method == "ad-psgd":  # soon after the first rank is there
            ad_psgd(worker, graph(config, comm.size), config.steps, config.seed, due)
        elif config.method in ("local-sgd", "post-local"):
            switch = round((config.switch_share or 0.0) * config.steps)  # counted from the start of the whole run
            local_sgd(worker, config.steps, post_local(switch, config.local_steps), config.algorithm, due)
        elif config.method == "diloco":
            h, outer = config.local_steps, self._outer
            rounds, algorithm = config.steps // h, config.algorithm
            diloco(worker, rounds, h, outer=outer, outer_rate=config.outer_rate, algorithm=algorithm, asked=due)
        else:
            self._train_by_own(until, due)
        self.done = [int(done) for done in comm.exchange(str(worker.done))]
        return RankReport(list(range(begun, worker.done)), worker.times_s[first:], worker.losses[first:])

    def _train_by_own(self, until: int, due: Asked) -> None:
        """By a program's method: stop soon after the first rank is there; raises ArgumentError if it does otherwise."""
        config, worker = self._config, self.worker
        ahead = worker.done - len(worker.losses)
        OWN.find(config.method)(worker, config, due)
        if worker.done - len(worker.losses) != ahead:
            raise ArgumentError(
                f"method {config.method} found {len(worker.losses)} gradients for {worker.done - ahead} steps on rank "
                f"{self.comm.rank}; needs one find_gradient for each descend, and steps counted from worker.done"
            )
        ended = self.comm.exchange("" if worker.done < until and not due() else "there")
        if not (any(ended) if until < config.steps else all(ended)):
            raise ArgumentError(
                f"method {config.method} ended after {worker.done} steps on rank {self.comm.rank}, not asked to; "
                f"needs {config.steps}, each made by worker.descend"
            )

    def collect(self) -> None:
        """See Role. Their mean."""
        average(self.worker.weights, self.comm)

    # -- checkpoints ----------------------------------------------------------------------------------

    def vectors(self) -> dict[str, Shard]:
        """See Role. In gossip also the mean of all weights, as one model."""
        x, me = self.worker.weights, f"rank{self.comm.rank}/"
        if not gossips(self._config.method):
            return self._vectors(x, "", me)
        mean = x.copy()
        average(mean, self.comm)
        return self._vectors(x, me, me) | {"": Shard(0, mean)}

    def _vectors(self, weights: Array, of_weights: str, of_rule: str) -> dict[str, Shard]:
        """The vectors, by these prefixes."""
        found = {of_weights: weights}
        found |= {f"{of_rule}{self._config.optimizer}.{name}/": x for name, x in self._rule.vectors().items()}
        if self._outer:
            found |= {f"{_OUTER}{name}/": x for name, x in self._outer.vectors().items()}
        return {prefix: Shard(0, x) for prefix, x in found.items()}

    def optimizer_steps(self) -> list[int]:
        """See Role."""
        return [int(steps) for steps in self.comm.exchange(str(self._rule.num_steps))]

    def wanted(self, origin: Origin) -> dict[str, Shard]:
        """See Role."""
        if origin.weights_per_rank and not gossips(self._config.method):
            raise ArgumentError(
                f"the checkpoint of step {origin.step} is by {origin.method}, whose ranks have weights of their own; "
                f"by {self._config.method} they begin with the same"
            )
        me = rank_prefix(origin, self.comm, per_rank=True, has_state=bool(self._rule.vectors()))
        found = self._vectors(self.worker.weights, me if origin.weights_per_rank else "", me)
        if origin.method == self._config.method:
            return found
        return {prefix: shard for prefix, shard in found.items() if not prefix.startswith(_OUTER)}

    def restore(self, wanted: dict[str, Shard], state: AsynchronousState) -> None:
        """See Role."""
        rank, method = self.comm.rank, self._config.method
        if min(state.done) < max(state.done) and method not in ("ad-psgd", state.common.config["method"]):
            raise ArgumentError(
                f"ranks have made {min(state.done)} to {max(state.done)} steps; {method} needs as many of all"
            )
        self.done, self.worker.done = state.done, state.done[rank]
        steps = state.optimizer_steps
        _restore(self._rule, wanted, f"{self._config.optimizer}.", steps[rank] if rank < len(steps) else steps[0])
        if self._outer and any(prefix.startswith(_OUTER) for prefix in wanted):
            _restore(self._outer, wanted, _OUTER, state.done[rank] // self._config.local_steps)


def _restore(rule: Optimizer, wanted: dict[str, Shard], prefix: str, num_steps: int) -> None:
    """Restore a rule from the vectors whose names end as its own do."""
    ends = {f"{prefix}{name}/": name for name in rule.vectors()}
    found = {ends[end]: shard.data for at, shard in wanted.items() for end in ends if at.endswith(end)}
    rule.restore(found, num_steps)
