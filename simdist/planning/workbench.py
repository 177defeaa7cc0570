"""Workbench: a cluster on which parts of training runs are measured."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from simdist.arrays import phantom
from simdist.cluster import Cluster, find_cluster
from simdist.collectives.registry import choose, find, version
from simdist.comm import Communicator
from simdist.comm.device import use_device
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, require_whole
from simdist.nn import Parameters
from simdist.optim.matrices import Whole, whole_here
from simdist.parallel import Recipe
from simdist.parallel.holding import Holding
from simdist.parallel.pipeline import split
from simdist.parallel.precision import precision
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update
from simdist.planning.anatomy import Anatomy, anatomy
from simdist.planning.group import Group
from simdist.training.config import Config, options
from simdist.training.methods import CUTTING, recipe
from simdist.training.models import sample
from simdist.training.pipelines import costs
from simdist.training.traffic import Call, Scratch, scratch
from simdist.words import counted

__all__ = ["Workbench", "update_s"]

T = TypeVar("T")

_model: Callable[[Config], tuple[Hashable, ...]]
_model = attrgetter(*(name for name, option in options() if option.group == "model"))
"""All settings of a config's model."""
_MOST_RANKS = 1 << 20
_SMALL_BYTES = 4096  # of each rank's chunk
_MOST_MESSAGES = 50_000


class Workbench:
    """Measures each part once, even if many runs share it; again if what it uses is registered anew.

    Args:
        cluster: the machine, or its name: see `find_cluster`.
        ranks: the number of its ranks that train together.

    Raises:
        ArgumentError: ranks is less than 1 or above 1,048,576, or they differ in speed, computation takes no time, or
            the cluster has jitter or routes.
    """

    def __init__(self, cluster: Cluster | str, ranks: int) -> None:
        require_whole("ranks", ranks, 1)
        if ranks > _MOST_RANKS:
            raise ArgumentError(f"ranks is {ranks}; plans need at most {_MOST_RANKS:,}")
        cluster = find_cluster(cluster)
        if cluster.jitter:
            raise ArgumentError(f"jitter of {cluster.name} is {cluster.jitter}; plans need 0")
        if not cluster.device.seconds(1, 1):
            raise ArgumentError(f"the rates of {cluster.device.name} are infinite; plans need finite ones")
        if slow := {rank: factor for rank, factor in cluster.slow.items() if rank < ranks and factor != 1}:
            most = max(1, *slow.values())
            raise ArgumentError(
                f"slow of {cluster.name} is {slow}; plans need ranks of equal speed: in lockstep all wait for the "
                f"slowest, so leave it out and divide flops_efficiency and memory_efficiency by {most:g}"
            )
        if cluster.route is not None:
            raise ArgumentError(
                f"{cluster.name} has routes, which plans do not know; needs none, and what they leave a card in between"
            )
        self.cluster = cluster
        self.ranks = ranks
        self._known: dict[tuple[Hashable, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<workbench: {counted(self.ranks, 'rank')} of {self.cluster.name}>"

    def once(self, make: Callable[[], T], *key: Hashable) -> T:
        """The result of `make`, which is called once for each key."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def without(self, kind: str) -> "Workbench":
        """A bench where messages take only their latency over a kind of link: inside or between nodes."""

        def make() -> Workbench:
            link = replace(getattr(self.cluster, kind), bytes_per_s=inf)
            return Workbench(self.cluster.with_(**{kind: link}), self.ranks)

        return self.once(make, "without", kind)

    def machine(self, config: Config) -> Cluster:
        """The cluster, with its speed in the precision of this run."""
        return self.cluster.computing_in(precision(config.precision).dtype)

    def anatomy(self, config: Config, num_windows: int) -> Anatomy:
        """The cost of a micro-batch on each layer: see `anatomy.anatomy`."""
        key = *self.cut(config), num_windows
        return self.once(lambda: anatomy(config, self.machine(config), num_windows), "anatomy", *key)

    def cut(self, config: Config) -> tuple[Hashable, ...]:
        """All settings that the cost of layers depends on, except the windows."""
        axes = (getattr(config, axis) for axis in CUTTING)
        how = config.precision, config.sequence_parallel, config.tp_overlap, config.ulysses, config.overlap_degree
        return (*_model(config), *how, *axes)

    def bounds(self, config: Config, num_stages: int) -> list[slice]:
        """The layers of each stage, balanced by their operations."""
        key = *_model(config), num_stages
        return self.once(lambda: split([layer.total for layer in costs(config)], num_stages), "bounds", *key)

    def scratch(self, group: Group, operation: str, num_bytes: int) -> Scratch:
        """The memory that a collective takes beside its array, by the algorithm that `auto` chooses.

        It is found in the virtual world, with a small array where ranks share no memory: there it is a share of the
        array, depending on the algorithm. Where that would take too many messages, it is a chunk, as in a ring.
        """
        if len(group.ranks) == 1:
            return Scratch(0, 0)
        key = operation, version(operation), group.ranks, num_bytes
        return self.once(lambda: self._scratch(group, operation, num_bytes), "scratch", *key)

    def _scratch(self, group: Group, operation: str, num_bytes: int) -> Scratch:
        p, cluster = len(group.ranks), self.cluster
        name = choose(operation, group, num_bytes).shared.name
        small = max(num_bytes, 1) if cluster.one_memory else p * _SMALL_BYTES
        found = find(operation, name)
        if p * found.cost(group.case(small)).messages > _MOST_MESSAGES:
            return Scratch(0, -(-num_bytes // p))

        def make() -> Scratch:
            return scratch(cluster, (), [Call(operation, name, small, group.ranks, "")], itemsize=4)

        stays, passing = self.once(make, "measured scratch", operation, found.run, group.ranks, small)
        return Scratch(stays, -(-num_bytes * passing // small))

    def update_s(self, config: Config) -> float:
        """The time to update one weight."""
        how = recipe(config)

        def make() -> float:
            parameters = sample(config).model.parameters
            return update_s(self.machine(config), how, parameters, Holding.of_all(parameters.size)) / parameters.size

        return self.once(make, "update", how, how.maker, *_model(config))


def update_s(
    cluster: Cluster, how: Recipe, parameters: Parameters, holding: Holding, whole: Whole = whole_here
) -> float:
    """The time of an update on a rank with this holding, by a step of it on phantoms: see `Update`."""

    def program(comm: Communicator) -> float:
        use_device(comm, "phantom")
        weights, gradient = (phantom(holding.size, how.precision.dtype) for _ in range(2))
        update = Update(weights, holding, parameters, how, Spread(comm), whole=whole)
        start_s = comm.clock()
        update.step(gradient, 1.0)
        return comm.clock() - start_s

    seconds: list[float] = run_virtual(program, 1, cluster, record=False)[0]
    return seconds[0]
