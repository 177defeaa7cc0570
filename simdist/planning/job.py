"""Job: a training run as it is to be, on so many ranks of a cluster."""

from functools import cached_property
from typing import NamedTuple

from simdist.arrays import partition
from simdist.nn import Parameters
from simdist.parallel.pipeline import Footprint, Schedule, joined
from simdist.parallel.zero.unit import Unit, grouped
from simdist.planning.anatomy import Anatomy, Weight
from simdist.planning.bench import Bench
from simdist.planning.group import Group, members
from simdist.training.config import Config
from simdist.training.layout import mesh_sizes
from simdist.training.methods import CUTTING, PIPELINE, recipe
from simdist.training.pipelines import schedule_of

__all__ = ["Job", "Part"]


class Part(NamedTuple):
    """What a rank has of the model.

    Attributes:
        layers: by number, in order.
        weights: all of theirs, each once: their sizes by name.
    """

    layers: list[int]
    weights: dict[str, int]

    @property
    def size(self) -> int:
        """How many weights."""
        return sum(self.weights.values())


class Job:
    """A run by its config, and what follows from that without any step.

    Args:
        config: of the run.
        bench: the ranks that it is for.

    Attributes:
        windows: of each of a rank's micro-batches; the first is the largest.
        anatomy: what its layers take of such a micro-batch.
        parts: of the ranks in a line, one after the other; of one rank where there is no pipeline.

    Raises:
        ArgumentError: the axes of its mesh do not multiply to the number of ranks.
    """

    def __init__(self, config: Config, bench: Bench) -> None:
        self.config = config
        self.bench = bench
        self.recipe = recipe(config)
        axes = ("pp", "dp", *CUTTING)
        self.sizes = mesh_sizes(config, bench.ranks) or dict.fromkeys(axes, 1) | {"dp": bench.ranks}
        own = partition(config.global_batch_size, self.sizes["dp"] * self.sizes["ep"]).largest
        self.windows: tuple[int, ...] = tuple(part.stop - part.start for part in partition(own, config.micro_batches))
        self.anatomy: Anatomy = bench.anatomy(config, self.windows[0])
        self.pipelined = config.method == PIPELINE
        self.parts = [self._part(layers) for layers in self._layers_of_ranks()]

    def group(self, *axes: str) -> Group:
        """The ranks that differ from rank 0 in these axes alone."""
        return Group(self.bench.cluster, members(self.sizes, *axes), self.bench.ranks)

    @cached_property
    def copies(self) -> Group:
        """The ranks that have the same part of the model, for other windows."""
        return self.group("dp")

    @property
    def itemsize(self) -> int:
        """Bytes of a weight as it is computed with, and of its gradient."""
        return self.recipe.precision.dtype.itemsize

    # -- the line -------------------------------------------------------------------------------------

    @cached_property
    def schedule(self) -> Schedule:
        """Of the pipeline."""
        return schedule_of(self.config)

    @cached_property
    def bounds(self) -> list[slice]:
        """The layers of each stage."""
        return self.bench.bounds(self.config, self.schedule.num_stages)

    @cached_property
    def stages(self) -> list[Footprint]:
        """What a micro-batch takes on each."""
        return [joined(self.anatomy.layers[bound]) for bound in self.bounds]

    @cached_property
    def busiest_s(self) -> float:
        """What no step takes less than: the passes of all micro-batches on the rank that has most to do."""
        each = [took.seconds["F"] + took.seconds["B"] for took in self.anatomy.layers]
        shared = self.schedule.num_stages / sum(map(len, self.schedule.placement)) if self.pipelined else 1.0
        return (
            self.config.micro_batches * shared * max(sum(each[layer] for layer in part.layers) for part in self.parts)
        )

    def _layers_of_ranks(self) -> list[list[int]]:
        everything = range(len(self.anatomy.layers))
        if not self.pipelined:
            return [list(everything)]
        return [[layer for s in own for layer in everything[self.bounds[s]]] for own in self.schedule.placement]

    def _part(self, layers: list[int]) -> Part:
        return Part(layers, {w.name: w.size for layer in layers for w in self.anatomy.weights[layer]})

    # -- what is reduced, and held, in pieces --------------------------------------------------------------

    def units(self, part: Part) -> list[Unit]:
        """The weights of a part in the pieces in which they are reduced, or gathered: see `Units`, `Buckets`."""
        bucket_bytes = self.config.bucket_bytes or _BUCKET_BYTES
        least = 1 if self.config.zero == 3 else -(-bucket_bytes // self.itemsize)
        uses = [weights for layer in part.layers if (weights := self.anatomy.weights[layer])]
        first, last = dict[Weight, int](), dict[Weight, int]()
        for number, weights in enumerate(uses):
            for weight in weights:
                first.setdefault(weight, number)
                last[weight] = number
        completes = [[w for w in weights if first[w] == number] for number, weights in enumerate(uses)]
        found: list[Unit] = []
        for unit in grouped(completes, least):
            begins, ends = min(first[weight] for weight in unit), max(last[weight] for weight in unit)
            found.append(Unit(Parameters([]), 0, sum(weight.size for weight in unit), slice(0), begins, ends))
        return found

    def held_twice(self) -> list[tuple[tuple[int, ...], list[str]]]:
        """Ranks of the line, and the weights that all of them have: see `Copies`."""
        holders: dict[str, tuple[int, ...]] = {}
        for rank, part in enumerate(self.parts):
            for name in part.weights:
                holders[name] = (*holders.get(name, ()), rank)
        groups = sorted({ranks for ranks in holders.values() if len(ranks) > 1})
        return [(ranks, [name for name, found in holders.items() if found == ranks]) for ranks in groups]

    def memory_s(self, num_bytes: float) -> float:
        """To read or to write so many bytes of a device's memory."""
        return self.bench.cluster.device.seconds(0, num_bytes)


_BUCKET_BYTES = 1 << 20  # of a pipeline's ZeRO
