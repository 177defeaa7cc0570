"""Ranks: what each one does in an asynchronous run, from the first weights to its last step."""

from collections.abc import Callable
from typing import NamedTuple

from simdist.arrays import Array
from simdist.asynchronous import Replica, ad_psgd, d_psgd, diloco, local_sgd, metropolis, post_local
from simdist.asynchronous.local_sgd import average
from simdist.asynchronous.parameter_server import ParameterServer, ServerReport, train
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.errors import ArgumentError
from simdist.nn import Parameters
from simdist.optim import Optimizer
from simdist.optim.norm import alone
from simdist.parallel.holding import Holding
from simdist.training.asynchronous.methods import SERVED, compute_time, consistency, graph, slowed
from simdist.training.asynchronous.pace import Pace
from simdist.training.config import Config
from simdist.training.methods import recipe

__all__ = ["Doing", "check_ranks", "first_worker", "perform"]


class Doing(NamedTuple):
    """What came of one rank's part.

    Attributes:
        clocks, times_s, losses: of each step that this rank finished as a worker: its number, when its gradient
            was there, on the communicator's clock, and the loss, in nats a byte.
        waited_share: of its time, for others; None where only the record tells.
        staleness: of each update that it applied as a server.
        num_late, num_given_up: updates that came too late to it as a server; steps that it gave up as a worker.
    """

    clocks: list[int]
    times_s: list[float]
    losses: list[float]
    waited_share: float | None = None
    staleness: tuple[int, ...] = ()
    num_late: int = 0
    num_given_up: int = 0


def first_worker(config: Config) -> int:
    """The rank of the first worker; those before it are servers."""
    return config.servers if config.method in SERVED else 0


def check_ranks(config: Config, ranks: int) -> None:
    """Raise ArgumentError if a config cannot be for so many ranks."""
    first = first_worker(config)
    if ranks <= first:
        raise ArgumentError(f"servers is {first} on {ranks} ranks; needs a rank more at least, to work")
    for rank in slowed(config):
        if not first <= rank < ranks:
            raise ArgumentError(f"slow names rank {rank}; those that work are ranks {first} to {ranks - 1}")
    if first:
        consistency(config).check(ranks - first)
    if config.method == "ad-psgd":
        graph(config, ranks).sides()


def perform(comm: Communicator, config: Config, parameters: Parameters, weights: Array, pace: Pace) -> Doing:
    """Do this rank's part; all ranks must call.

    Args:
        parameters: of the model.
        weights: shape (n,), the first ones; in the end those of this rank, or of all servers together.
        pace: finds the gradients.
    """
    if config.method in SERVED:
        return _serve_or_work(comm, config, parameters, weights, pace)
    return _replicate(comm, config, parameters, weights, pace)


def _serve_or_work(comm: Communicator, config: Config, parameters: Parameters, weights: Array, pace: Pace) -> Doing:
    rates = config.rates()

    def rate(step: int) -> float:
        pace.trim()
        return rates(step)

    how = ParameterServer(
        config.servers,
        consistency(config),
        lambda own, start: _rule(config, parameters, own, start),
        bool(config.staleness_aware),
        compute_time=compute_time(config),
    )
    report = train(comm, weights, pace, config.steps, rate, how)
    pace.close()
    layout = how.layout(comm, len(weights))
    pace.keep(weights)
    if isinstance(report, ServerReport):
        weights[layout.keys(comm.rank)] = report.state.vectors["weights"]
    for server in range(config.servers):
        broadcast(weights[layout.keys(server)], comm, server)
    waited_share = report.waited_s / report.elapsed_s if report.elapsed_s else 0.0
    if isinstance(report, ServerReport):
        counts = report.counts
        return Doing([], [], [], waited_share, tuple(counts.staleness), counts.num_late)
    return Doing(report.clocks, report.times_s, report.losses, waited_share, num_given_up=report.num_given_up)


def _rule(config: Config, parameters: Parameters, own: Array, start: int) -> Optimizer:
    """The update rule, for a run of the weights that begins there."""
    return recipe(config).rule(own, parameters, Holding([slice(start, start + len(own))]), alone)


def _replicate(comm: Communicator, config: Config, parameters: Parameters, weights: Array, pace: Pace) -> Doing:
    replica = Replica(
        comm,
        weights,
        pace,
        config.rates(),
        optimizer=_rule(config, parameters, weights, 0),
        compute_time=compute_time(config),
    )
    _WAYS[config.method](replica, config)
    pace.close()
    pace.keep(weights)
    average(weights, comm)
    return Doing(list(range(config.steps)), replica.times_s, replica.losses)


def _post_local(replica: Replica, config: Config) -> None:
    switch = round(config.switch_share * config.steps)
    local_sgd(replica, config.steps, post_local(switch, config.local_steps), config.algorithm)


def _diloco(replica: Replica, config: Config) -> None:
    rounds, rate = config.steps // config.local_steps, config.outer_rate
    diloco(replica, rounds, config.local_steps, outer_rate=rate, algorithm=config.algorithm)


_WAYS: dict[str, Callable[[Replica, Config], object]] = {
    "d-psgd": lambda r, c: d_psgd(r, metropolis(graph(c, r.comm.size)), c.steps),
    "ad-psgd": lambda r, c: ad_psgd(r, graph(c, r.comm.size), c.steps, c.seed),
    "local-sgd": lambda r, c: local_sgd(r, c.steps, c.local_steps, c.algorithm),
    "post-local": _post_local,
    "diloco": _diloco,
}
