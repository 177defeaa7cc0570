"""Workbench: a cluster on which pieces of training runs are tried out."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from simdist.cluster import Cluster
from simdist.comm import Communicator
from simdist.comm.device import use_device
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError
from simdist.parallel import DataParallel
from simdist.parallel.pipeline import split
from simdist.parallel.precision import precision
from simdist.planning.anatomy import Anatomy, anatomy
from simdist.training.config import Config, options
from simdist.training.methods import CUTTING, recipe
from simdist.training.models import sample
from simdist.training.pipelines import costs

__all__ = ["Workbench"]

T = TypeVar("T")


class Workbench:
    """Tries each piece once, however many runs have it.

    Args:
        cluster: the machine.
        ranks: how many of it train together.

    Raises:
        ArgumentError: ranks are not all as fast, or compute in no time, or messages take longer by chance.
    """

    def __init__(self, cluster: Cluster, ranks: int) -> None:
        if cluster.jitter:
            raise ArgumentError(f"jitter of {cluster.name} is {cluster.jitter}; plans are of messages without")
        if not cluster.device.seconds(1, 1):
            raise ArgumentError(f"the rates of {cluster.device.name} are infinite; plans are of devices that take time")
        if slow := {rank: factor for rank, factor in cluster.slow.items() if rank < ranks and factor != 1}:
            raise ArgumentError(f"slow of {cluster.name} is {slow}; plans are of ranks that are all as fast")
        self.cluster = cluster
        self.ranks = ranks
        self._known: dict[tuple[Hashable, ...], Any] = {}

    def once(self, make: Callable[[], T], *key: Hashable) -> T:
        """What is made, or was the last time that this key was asked for."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def machine(self, config: Config) -> Cluster:
        """The cluster, as fast as it is with the numbers that this run computes in."""
        return self.cluster.computing_in(precision(config.precision).dtype)

    def anatomy(self, config: Config, num_windows: int) -> Anatomy:
        """What each layer takes of a micro-batch of so many windows: see there."""

        def make() -> Anatomy:
            return anatomy(config, self.machine(config), num_windows)

        return self.once(make, "anatomy", *self.cut(config), num_windows)

    def cut(self, config: Config) -> tuple[Hashable, ...]:
        """All that layers depend on, except the windows."""
        axes = (getattr(config, axis) for axis in CUTTING)
        return (*_model(config), config.precision, config.sequence_parallel, config.ulysses, *axes)

    def bounds(self, config: Config, num_stages: int) -> list[slice]:
        """The layers of each stage, which are balanced by how many operations they are."""

        def make() -> list[slice]:
            return split([layer.total for layer in costs(config)], num_stages)

        return self.once(make, "bounds", *_model(config), num_stages)

    def update_s(self, config: Config) -> float:
        """How long the update of a weight takes."""
        how = recipe(config)

        def program(comm: Communicator) -> float:
            use_device(comm, "phantom")
            method = DataParallel(sample(config).model, comm, how, config.seed)
            start_s = comm.clock()
            method.update.step(method.gradient, 1.0)
            return (comm.clock() - start_s) / method.model.parameters.size

        def make() -> float:
            seconds: list[float] = run_virtual(program, 1, self.machine(config), record=False)[0]
            return seconds[0]

        return self.once(make, "update", how, *_model(config))


def _model(config: Config) -> tuple[Hashable, ...]:
    """All that a model depends on."""
    return tuple(getattr(config, name) for name, option in options() if option.group == "model")
