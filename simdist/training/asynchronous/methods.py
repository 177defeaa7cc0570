"""Methods: the asynchronous ones, by their names in a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simdist.asynchronous import ComputeTime, Constant, Exponential, Graph, LogNormal, Slowed, graphs
from simdist.asynchronous.parameter_server import BoundedStaleness, Consistency, Synchronous, asynchronous
from simdist.errors import ArgumentError
from simdist.parallel import Recipe
from simdist.parallel.precision import precision
from simdist.registry import Registry
from simdist.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from simdist.asynchronous import Worker
    from simdist.asynchronous.worker import Asked
    from simdist.training.config import Config

    Way: TypeAlias = Callable[[Worker, Config, Asked], object]

__all__ = [
    "ASYNCHRONOUS",
    "AVERAGING",
    "COMPUTE_TIMES",
    "GOSSIP",
    "OWN",
    "SERVED",
    "SURVIVING",
    "asynchronous_methods",
    "check",
    "check_ranks",
    "compute_time",
    "consistency",
    "first_worker",
    "gossips",
    "graph",
    "slowed",
]

SERVED = ("bsp", "async", "ssp", "backup")
"""Those with parameter servers: synchronous, no bound, bounded staleness, backup workers."""

SURVIVING = SERVED[1:]
"""Those that survive the death of a worker."""

GOSSIP = ("d-psgd", "ad-psgd")
"""Those in which ranks average with neighbours."""

AVERAGING = ("local-sgd", "post-local", "diloco")
"""Those in which all ranks average, but not every step."""

ASYNCHRONOUS = (*SERVED, *GOSSIP, *AVERAGING)
"""All of simdist's own."""

OWN = Registry["Way"]("method")
"""Those that programs have added: see `simdist.training.methods.named_asynchronous`."""

_TIMES: dict[str, Callable[[float, int], ComputeTime]] = {
    "constant": lambda seconds, seed: Constant(seconds),
    "exponential": lambda seconds, seed: Exponential(seconds, seed),
    "lognormal": lambda seconds, seed: LogNormal(seconds, seed=seed),
}
COMPUTE_TIMES = tuple(_TIMES)


def asynchronous_methods() -> list[str]:
    """The names of all asynchronous methods."""
    return [*ASYNCHRONOUS, *OWN]


def gossips(method: str) -> bool:
    """Whether ranks may have different weights at a cut: in gossip, and in what programs add; "" has a common step."""
    return method not in ("", *SERVED, *AVERAGING)


def check(config: Config) -> None:
    """Raise ArgumentError if the settings of an asynchronous run are incompatible."""
    method = config.method
    wanted = {"micro_batches": (config.micro_batches, 1), "dropout": (config.dropout or 0.0, 0.0), "dp": (config.dp, 0)}
    for name, (value, needed) in wanted.items():
        if value != needed:
            raise ArgumentError(f"{name} is {value}, and method {method}, which needs {needed}")
    if precision(config.precision).mixed:
        raise ArgumentError(f"precision is {config.precision}, and method {method}; needs float32 or float64")
    if method in SERVED and config.servers > 1 and Recipe(config.optimizer).whole_matrices:
        raise ArgumentError(f"optimizer is {config.optimizer} on {config.servers} servers; whole matrices need one")
    if method == "diloco" and config.steps % config.local_steps:
        raise ArgumentError(f"steps is {config.steps} and local_steps {config.local_steps}; needs whole rounds")
    if config.compute_time != "constant" and not config.compute_seconds:
        raise ArgumentError(f"compute_time is {config.compute_time}, and compute_seconds 0.0; needs more than 0")
    slowed(config)


def check_ranks(config: Config, ranks: int) -> None:
    """Raise ArgumentError if a config cannot run on this many ranks."""
    first = first_worker(config)
    if ranks <= first:
        raise ArgumentError(f"servers is {first} on {counted(ranks, 'rank')}; needs at least one rank more, to work")
    for rank in slowed(config):
        if not first <= rank < ranks:
            raise ArgumentError(f"slow names rank {rank}; those that work are ranks {first} to {ranks - 1}")
    if first:
        consistency(config).check(ranks - first)
    if config.method in GOSSIP:
        found = graph(config, ranks)
        if config.method == "ad-psgd":
            found.sides()


def first_worker(config: Config) -> int:
    """The rank of the first worker; those before it are servers."""
    return config.servers if config.method in SERVED else 0


def slowed(config: Config) -> dict[int, float]:
    """The ranks to slow down, and by what factor."""
    found: dict[int, float] = {}
    for part in [] if config.slow == "none" else config.slow.split(","):
        rank, _, factor = part.partition(":")
        try:
            known = len(found)
            found[int(rank)] = float(factor)
        except ValueError:
            raise ArgumentError(f"slow is {config.slow!r}; needs rank:factor, such as 2:4.0,3:1.5") from None
        if len(found) == known:
            raise ArgumentError(f"slow is {config.slow!r}, which names rank {rank} twice")
    Slowed(factors=found)
    return found


def compute_time(config: Config, ranks: Sequence[int] | None = None) -> ComputeTime:
    """The extra time of each rank's step, besides its real computation.

    Args:
        ranks: those left of the run; all if not given.
    """
    factors = slowed(config)
    if ranks is not None:
        factors = {ranks.index(rank): factor for rank, factor in factors.items() if rank in ranks}
    return Slowed(_TIMES[config.compute_time](config.compute_seconds, config.seed), factors)


def consistency(config: Config) -> Consistency:
    """Who waits for whom at the servers."""
    if config.method == "ssp":
        return BoundedStaleness(config.staleness)
    if config.method == "async":
        return asynchronous()
    return Synchronous(config.backups or 0)


def graph(config: Config, ranks: int) -> Graph:
    """Who averages with whom."""
    return graphs.graph(config.graph, ranks)
