"""Job: a planned training run on ranks of a cluster."""

from collections.abc import Callable, Hashable
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np

from simdist.arrays import partition
from simdist.comm.mesh import full_sizes
from simdist.errors import ArgumentError, require_kind
from simdist.nn import Parameters
from simdist.parallel.buckets import BUCKET_BYTES
from simdist.parallel.pipeline import Footprint, Schedule, joined
from simdist.parallel.pipeline.copies import displaced, holders, shared
from simdist.parallel.pipeline.schedules import maker
from simdist.parallel.zero.unit import grouped, least_items, padded
from simdist.planning.anatomy import Anatomy
from simdist.planning.group import Group, members, misfit
from simdist.planning.scope import check_known, too_long
from simdist.planning.workbench import Workbench
from simdist.training.config import Config
from simdist.training.layout import mesh_sizes
from simdist.training.methods import PIPELINE, recipe
from simdist.training.pipelines import schedule_of
from simdist.words import counted

__all__ = ["Job", "Part", "Piece", "check_kinds"]

T = TypeVar("T")


def check_kinds(config: object, bench: object) -> None:
    """Raise ArgumentError unless this is a config, and that a bench."""
    require_kind("config", config, Config, 'Config(model="gpt")')
    require_kind("bench", bench, Workbench, 'Workbench("h100", ranks=8)')


class Part(NamedTuple):
    """A rank's part of the model.

    Attributes:
        layers: by number, in order.
        parameters: all weights of these layers, each once.
    """

    layers: tuple[int, ...]
    parameters: Parameters

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.parameters.size

    @property
    def weights(self) -> dict[str, int]:
        """Their sizes, by name."""
        return {parameter.name: parameter.size for parameter in self.parameters}


class Piece(NamedTuple):
    """Weights that are reduced or gathered together: a `Unit` of ZeRO, or one of the `Buckets` of DDP.

    Attributes:
        room: the number of items, with padding.
        first, last: the first and last layer that uses one of them, counting only layers with weights, from 0.
        ends: where each of them ends, by name, in their order.
    """

    room: int
    first: int
    last: int
    ends: dict[str, int]


class Job:
    """A run of a config, and what follows from the config without executing a step.

    Args:
        config: of the run.
        bench: the cluster and the number of ranks.

    Attributes:
        sizes: of the axes of the mesh.
        windows: the number in each micro-batch.
        pipelined: whether they are in a pipeline.
        cut: all settings that the cost of layers depends on, except the windows.

    Raises:
        ArgumentError: a feature is not predicted, the axes of the mesh do not multiply to the number of ranks,
            micro-batches differ in size or are too long, ranks that share layers do not fill nodes evenly, or dp is
            not a multiple of shards.
    """

    def __init__(self, config: Config, bench: Workbench) -> None:
        check_kinds(config, bench)
        check_known(vars(config))
        self.config = config
        self.bench = bench
        self.recipe = recipe(config)
        self.sizes = mesh_sizes(config, bench.ranks) or full_sizes({"dp": bench.ranks}, bench.ranks)
        pp, dp, ep, sp, tp = self.sizes.values()
        if why := misfit(ep * sp * tp, bench.ranks, bench.cluster):
            raise ArgumentError(f"{why}; plans need groups that do")
        shards = (config.shards or dp) if self.zero_stage else 1
        self._grid = {"pp": pp, "copies": dp // shards, "holders": shards, "ep": ep, "sp": sp, "tp": tp}
        readers, count = dp * ep, config.micro_batches
        self.windows, uneven = divmod(config.global_batch_size, readers * count)
        if uneven:
            raise ArgumentError(
                f"global_batch_size is {config.global_batch_size}; plans need a multiple of {readers * count}: "
                f"{counted(count, 'micro-batch')} on each of {readers} ranks"
            )
        if why := too_long(self.windows, config.context_bytes):
            raise ArgumentError(why)
        self.pipelined = config.method == PIPELINE
        self.cut = bench.cut(config)

    @cached_property
    def anatomy(self) -> Anatomy:
        """The cost of a micro-batch on each layer."""
        return self.bench.anatomy(self.config, self.windows)

    @cached_property
    def parts(self) -> list[Part]:
        """The part of each pipeline rank, in order; without a pipeline, of a single rank."""
        everything = tuple(range(len(self.anatomy.layers)))
        each = [everything]
        if self.pipelined:
            each = [tuple(k for s in own for k in everything[self.bounds[s]]) for own in self.schedule.placement]
        return self.bench.once(lambda: [Part(of, self.anatomy.of(of)) for of in each], "parts", *self.cut, *each)

    def _of_parts(self, find: Callable[[list[dict[str, int]]], T], name: str) -> T:
        """The result of `find` for the weights of all parts: found once for all runs on the bench with these parts."""
        layers = (part.layers for part in self.parts)
        return self.bench.once(lambda: find([part.weights for part in self.parts]), name, *self.cut, *layers)

    def group(self, *axes: str) -> Group:
        """The slowest group of ranks that differ only in these axes.

        Args:
            axes: of pp, copies, holders, ep, sp, tp: those of the mesh, with dp split into copies and holders.
        """
        return self.group_of(members(self._grid, *axes), *axes)

    def group_of(self, own: tuple[int, ...], *axes: str) -> Group:
        """The slowest of these ranks, which differ only in these axes, and of all groups like them."""
        grid = self._grid

        def make() -> Group:
            beside = members(grid, *(axis for axis in grid if axis not in axes))
            return Group.slowest(self.bench.machine(self.config), own, beside)

        return self.bench.once(make, "group", tuple(grid.items()), own, axes, self.config.precision)

    @cached_property
    def holders(self) -> Group:
        """The ranks of dp that share one model by ZeRO: see `Sharing`. Without ZeRO, a single rank."""
        return self.group("holders")

    @cached_property
    def copies(self) -> Group:
        """The ranks of dp that hold the same part of the model, for different windows."""
        return self.group("copies")

    @property
    def reduces_late(self) -> bool:
        """Whether gradients are reduced after the passes; from stage 2 of ZeRO on, only over the copies."""
        return self.pipelined or self.config.method == "dp"

    @property
    def zero_stage(self) -> int:
        """The stage of ZeRO; 0 with methods that have none."""
        return self.config.zero or 0

    @property
    def itemsize(self) -> int:
        """The bytes of a weight in computation, and of its gradient."""
        return self.recipe.precision.dtype.itemsize

    # -- the line -------------------------------------------------------------------------------------

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of the pipeline."""
        return schedule_of(self.config)

    @cached_property
    def bounds(self) -> list[slice]:
        """The layers of each stage."""
        return self.bench.bounds(self.config, self.schedule.num_stages)

    @cached_property
    def stages(self) -> list[Footprint]:
        """The cost of a micro-batch on each stage."""
        key = "stages", self.windows, self.schedule.num_stages, *self.cut
        return self.bench.once(lambda: [joined(self.anatomy.layers[bound]) for bound in self.bounds], *key)

    def once(self, make: Callable[[], T], name: str, *more: float) -> T:
        """What `make` returns for this pipeline's passes, once for all runs on the bench with these and `more`."""
        config = self.config
        made = maker(config.schedule), config.schedule, config.chunks, config.micro_batches
        beside = (self.zero_stage, config.shards, *self._unit) if self.zero_stage > 1 else ()
        key = *made, *beside, *self.sizes.values(), self.windows, *self.cut
        return self.bench.once(make, name, *more, *key)

    # -- what is reduced, and held, in pieces ---------------------------------------------------------

    def pieces(self, part: Part) -> list[Piece]:
        """The weights of a part, in pieces: see `Units` and `Buckets`."""
        return self.of_pieces(part, lambda: self._pieces(part, *self._unit), "pieces")

    def of_pieces(self, part: Part, find: Callable[[], T], name: str, *more: Hashable) -> T:
        """What `find` returns for the pieces of a part: found once for all runs on the bench with these pieces."""
        cut = *self.cut, len(self.holders.ranks), self._displaced, *part.layers
        return self.bench.once(find, name, *more, *self._unit, *cut)

    @cached_property
    def _unit(self) -> tuple[int, int]:
        """The least items of a piece, and the alignment of its chunks."""
        least = least_items(self.zero_stage, self.config.bucket_bytes or BUCKET_BYTES, self.itemsize)
        by_layer = self.pipelined and self.zero_stage > 1
        return 1 if by_layer else least, self.recipe.alignment if self.zero_stage else 1

    def _pieces(self, part: Part, least: int, alignment: int) -> list[Piece]:
        found = []
        for group, first, last in grouped((self.anatomy.weights[k] for k in part.layers), least, self._displaced):
            room = padded(sum(weight.size for weight in group), len(self.holders.ranks), alignment)
            ends = dict(zip((w.name for w in group), accumulate(w.size for w in group), strict=True))
            found.append(Piece(room, first, last, ends))
        return found

    def reduced_bytes(self, part: Part) -> list[int]:
        """The sizes of the reductions of a part's gradients: all at once, in buckets, or by ZeRO's units."""
        sizes = (
            [part.size] if self.reduces_late and not self.zero_stage else [piece.room for piece in self.pieces(part)]
        )
        return [size * self.itemsize for size in sizes]

    def own(self, part: Part) -> int:
        """The number of a part's weights that a rank updates: with ZeRO those of its chunk of each piece."""
        if not self.zero_stage:
            return part.size
        return sum(partition(piece.room, len(self.holders.ranks)).largest for piece in self.pieces(part))

    def summed(self, part: Part) -> list[tuple[Group, int]]:
        """Ranks of other axes that sum gradients of some of a part's weights, and the most bytes: with ZeRO each rank
        sums what it has of them.
        """
        sizes = (
            (axes, self.of_pieces(part, partial(self._most_of, part, names), "most of", names))
            for axes, names in self.anatomy.sums
        )
        return [(self.group(*axes), size * self.itemsize) for axes, size in sizes if size]

    def _most_of(self, part: Part, names: frozenset[str]) -> int:
        """The most items of these weights in the chunks of one of the holders."""
        shards = len(self.holders.ranks)
        held = np.zeros(shards, int)
        for piece in self.pieces(part):
            edges = [partition(piece.room, shards).start(i) for i in range(shards + 1)]
            for (name, end), start in zip(piece.ends.items(), [0, *piece.ends.values()], strict=False):
                if name in names:
                    held += np.diff(np.clip(edges, start, end))
        return int(held.max())

    @cached_property
    def _displaced(self) -> frozenset[str]:
        return self._of_parts(displaced, "displaced")

    @cached_property
    def held_twice(self) -> list[tuple[tuple[int, ...], Group, int]]:
        """Pipeline ranks that hold some of the same weights, their group, and the bytes each sums: see `Copies`."""
        line, found = members(self.sizes, "pp"), list[tuple[tuple[int, ...], Group, int]]()
        for ranks, names in self._of_parts(lambda weights: shared(holders(weights)), "shared"):
            group = self.group_of(tuple(line[rank] for rank in ranks), "pp")
            part, parted = self.parts[ranks[0]], self.zero_stage > 1
            size = self._most_of(part, frozenset(names)) if parted else sum(part.weights[name] for name in names)
            found.append((ranks, group, size * self.itemsize))
        return found

    def memory_s(self, num_bytes: float) -> float:
        """The time to read or write this many bytes of a device's memory."""
        return self.bench.machine(self.config).device.seconds(0, num_bytes)
