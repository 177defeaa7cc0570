"""ZeRO: data parallelism without redundant copies of optimizer state, gradients or weights."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np

from simdist.arrays import Array, copied, hold
from simdist.comm import Communicator, Stream
from simdist.errors import ArgumentError, require_least
from simdist.nn import Model, Noise, Observer, Parameter
from simdist.nn.layers.layer import Observers
from simdist.optim.matrices import Whole
from simdist.parallel.buckets import BUCKET_BYTES
from simdist.parallel.data_parallel import Allocate
from simdist.parallel.holding import Shard
from simdist.parallel.method import GRADIENTS, Method
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update
from simdist.parallel.zero.gradients import Gradients, ShardedGradients, WholeGradients
from simdist.parallel.zero.offload import Offload
from simdist.parallel.zero.sharing import Sharing
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import Units, gatherer, least_items
from simdist.parallel.zero.weights import GatheredWeights, Weights, WholeWeights

__all__ = ["FSDP", "ZeRO"]


class ZeRO(Method):
    """Data parallelism that shards the state of ranks instead of replicating it: the zero redundancy optimizer.

        rank 1 of 4 holds     weights     gradients     optimizer state     sends, of Ψ weights a step
        data parallel          ####         ####             ####           2Ψ(p-1)/p    reduced and gathered
        stage 1                ####         ####             .#..           2Ψ(p-1)/p    gradients reduced,
        stage 2                ####         .#..             .#..           2Ψ(p-1)/p    weights gathered after
        stage 3, FSDP          .#..         .#..             .#..           3Ψ(p-1)/p    weights gathered twice,
                                                                                         gradients reduced
        16-bit Adam, bytes      2Ψ           2Ψ              12Ψ            Stage 3 thus keeps 16Ψ/p.

    The model is cut into `Units`, in stages 1 and 2 buckets of gradients, in stage 3 layers, and each unit into a chunk
    for every rank. Gradients are reduced, and in stage 3 weights gathered a layer ahead, on a second stream while the
    main one computes. What is whole only for a while is in a few `Slots`, which units use in turn; the ledger counts
    them as communication. In hybrid sharding p is the number of shards, whose sums travel on top: see `Sharing`.

    With one micro-batch a step, one model and the ring, weights are the same bits as those of `DataParallel` with
    buckets of the same units, since its all-reduce is a ring reduce-scatter and a ring all-gather. From stage 2 on,
    every micro-batch is reduced: with several more is sent (see `simdist.parallel.zero.formulas`), and sums are made in
    another order, equal up to rounding. The blocks of an 8-bit optimizer start at each unit, so they are those of data
    parallelism only if there is one unit.

    Args:
        model, comm, recipe, spread: as of `Learner`. Ranks must call `backward` and `loss` the same number of times.
        seed: of the first weights, which every rank draws itself; the same on all.
        zero_stage: 1, 2 or 3.
        bucket_bytes: stages 1 and 2: the least size of a bucket.
        algorithm: of reduce-scatter and all-gather: "ring", or "auto".
        prefetch: stage 3: whether weights are gathered a layer ahead.
        offload: which state of a rank is kept outside its device.
        shards: the number of shards of each model, on as many neighbouring ranks; all these groups have the same model.
            0 for one group of all ranks. See `Sharing`.
        memory: makes the vectors that peers may reach; by default `empty` of the ranks that share a model.
        apart: as of `Units`.

    Attributes:
        units: how the model is split.
        sharing: the ranks that it is split over.

    Raises:
        ArgumentError: there is no such stage, bucket_bytes is less than 1, something to offload is not sharded in this
            stage, or the number of ranks is not a multiple of shards.
        CollectiveMismatch: on all ranks, if they were given different stages, shards or seeds.

    Source: Rajbhandari, Rasley, Ruwase, He 2020, arXiv 1910.02054, sections 5 and 7; Zhao et al. 2023, PyTorch
    FSDP, arXiv 2304.11277 (hybrid sharding, too); Zhang et al. 2022, MiCS, arXiv 2205.00119 (sums over
    copies once a step).
    """

    def __init__(
        self,
        model: Model,
        comm: Communicator,
        recipe: Recipe,
        seed: int,
        zero_stage: int,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        algorithm: str = "auto",
        prefetch: bool = True,
        offload: Offload | None = None,
        shards: int = 0,
        spread: Spread | None = None,
        memory: Allocate | None = None,
        apart: Collection[str] = (),
    ) -> None:
        super().__init__(model, comm, recipe, spread)
        require_least("bucket_bytes", bucket_bytes, 1)
        if zero_stage not in (1, 2, 3):
            raise ArgumentError(f"zero_stage is {zero_stage}; needs 1, 2 or 3")
        self.zero_stage, self.bucket_bytes = zero_stage, bucket_bytes
        self.offload = offload or Offload(())
        self.offload.check(zero_stage)
        comm.agree(f"ZeRO of stage {zero_stage} from seed {seed} in {shards or comm.size} shards")
        self.sharing = Sharing.of(comm, shards, algorithm)
        holders, dtype = self.sharing.holders, recipe.precision.dtype
        least = least_items(zero_stage, bucket_bytes, dtype.itemsize)
        self.units = Units(model, holders.size, holders.rank, least, recipe.alignment, apart)
        self._memory = memory or holders.empty
        side = comm.stream("communication")
        side_sharing: Sharing = side.start(Sharing.of, side.comm, shards, algorithm).wait()  # with separate messages
        self._gradients = self._make_gradients(dtype, side, side_sharing)
        self._weights = self._make_weights(dtype, side, side_sharing, prefetch)
        self._draw(seed)
        self.update = self._make_update()

    # -- memory -----------------------------------------------------------------------------------------

    def _make_gradients(self, dtype: np.dtype, side: Stream, sharing: Sharing) -> Gradients:
        """Memory for each unit's gradients, and the object that reduces them."""
        if self.zero_stage == 1:
            slots = Slots.apart(self.units)
            flat = self._zeros(slots.size, dtype, "gradients")
            return WholeGradients(self.units, slots, flat, side, sharing)
        slots = Slots.shared(self.units)
        flat = self._zeros(slots.size, dtype, "communication")
        own = self._part(flat, dtype, "gradients", "gradients")
        return ShardedGradients(self.units, slots, flat, side, sharing, own, self.offload)

    def _make_weights(self, dtype: np.dtype, side: Stream, sharing: Sharing, prefetch: bool) -> Weights:
        """Memory for each unit's weights, and the object that gathers them."""
        if self.zero_stage < 3:
            slots = Slots.apart(self.units)
            flat = self._zeros(slots.size, dtype, "parameters")
            own = self._part(flat, self.recipe.precision.master_dtype, "optimizer", "optimizer state")
            return WholeWeights(self.units, slots.cut(flat), own, self.sharing)
        slots = Slots.shared(self.units)
        flat = self._zeros(slots.size, dtype, "communication")
        own = self._part(flat, dtype, "parameters", "parameters")
        return GatheredWeights(self.units, slots.cut(flat), own, sharing, side, self.offload, prefetch)

    def _make_update(self) -> Update:
        """The update of this rank's part, on the ranks of all axes that together hold one model."""
        all_ranks, copies = self.spread.comm, self.sharing.copies
        update = Update(
            self._weights.own,
            self.units.holding,
            self.model.parameters,
            self.recipe,
            self.spread,
            holders=all_ranks if copies is None else cast(Communicator, all_ranks.split(copies.rank, all_ranks.rank)),
            whole=self._whole(),
            kind="numpy" if self.offload.updating == "host" else self.comm.device.kind,
        )
        update.move(partial(self.offload.keep, "optimizer"))
        return update

    def _zeros(self, size: int, dtype: np.dtype, category: str) -> Array:
        """A vector of zeros that peers may reach."""
        flat = self._memory(size, dtype)
        flat[...] = 0
        hold(category, flat)
        return flat

    def _part(self, like: Array, dtype: np.dtype, what: str, category: str) -> Array:
        """Zeros for this rank's holding, in the place of `what`."""
        own = self.offload.keep(what, np.zeros_like(like, shape=(self.units.holding.size,), dtype=dtype))
        if self.offload.place(what) == "device":
            hold(category, own)
        return own

    def _draw(self, seed: int) -> None:
        """Bind every unit to its rooms, and set this rank's part of the first weights."""
        rooms = self._weights.rooms, self._gradients.rooms, self.units.holding.rooms
        for unit, weight, gradient, place in zip(self.units, *rooms, strict=True):
            size = unit.parameters.size
            weight[...] = 0
            unit.parameters.bind(weight[:size], gradient[:size])
            unit.parameters.initialize(seed)
            copied(self._weights.own[place], weight[unit.chunk])

    def _whole(self) -> Whole:
        """How a rank gets whole matrices."""

        def all_gather(chunk: Array, i: int) -> Array:
            unit = np.empty_like(chunk, shape=(self.units[i].room,))
            self.sharing.all_gather(chunk, unit)
            return unit

        return gatherer([unit.whole for unit in self.units], self.units.holding, all_gather)

    # -- training ---------------------------------------------------------------------------------------

    def backward(self, windows: Array, scale: float, noise: Noise | None = None, last: bool = True) -> float:
        """See Method. After the last micro-batch this rank's part is summed over all ranks."""
        weights, gradients = self._weights.observer(backward_follows=True), self._gradients.observer(last)
        with self.comm.span("forward"):
            total, context = self.model.forward(windows, noise, weights)
        with self.comm.span("backward"):
            self.model.backward(context, scale * self.update.scale, Observers(gradients, weights))
        if last:
            with self.comm.span(GRADIENTS):
                self._gradients.finish()
        return total

    def of_stage(self, layers: slice) -> Callable[[str], Observer]:
        """For a pipeline, in place of `backward`: what observes a stage, given the letter of an action that begins.

            F, B, I     stage 3: each layer's weights are gathered before it reads them
            B, W        from stage 2 on: each layer's gradients are reduced after it has added to them

        Args:
            layers: those of the stage, counting the model's layers with parameters.
        """

        def observer(letter: str) -> Observer:
            if letter == "F":
                return self._weights.of_stage(layers, backward=False)
            weights = self._weights.of_stage(layers, backward=True) if letter in "BI" else Observer()
            if letter == "I":
                return weights
            self._gradients.reduce_begun()  # that of a tied table, which another stage of this rank completes
            return Observers(self._gradients.observer(last=False), weights)

        return observer

    def reduce(self) -> None:
        """Sum over all ranks the gradients of a step that other code than `backward` has added to the parameters."""
        with self.comm.span(GRADIENTS):
            self._gradients.settle()

    def own_gradient(self, parameter: Parameter) -> Array:
        """From stage 2 on, after `reduce`: this rank's part of a parameter's gradient, flat, to be changed in place."""
        own: Array = self._gradients.own()[self.units.holding.own(self.model.parameters.spans[parameter.name])]
        return own

    def zero_gradients(self) -> None:
        """See Learner."""
        self._gradients.discard()

    def step(self, learning_rate: float) -> bool:
        """Every rank updates its part; in stages 1 and 2 all then gather the whole."""
        offload, gradient = self.offload, self._gradients.own()
        with self.comm.span("update"):
            gradient = offload.move("gradients", gradient, self.comm, offload.place("gradients"), offload.updating)
            with offload.update(self.comm):
                changed = self.update.step(gradient, learning_rate)
            if changed:
                self._move_updated()
            self._gradients.clear()
        if changed:
            self._weights.publish()
        return changed

    def _move_updated(self) -> None:
        """Record the transfers of an update other than that of the gradients."""
        offload, state_bytes, own = self.offload, self.update.num_bytes, self._weights.own
        weight_bytes = len(own) * self.recipe.precision.dtype.itemsize
        if self.zero_stage < 3:
            state_bytes += own.nbytes  # the masters
        elif self.update.masters is own:
            offload.note("parameters", weight_bytes, self.comm, offload.place("parameters"), offload.updating)
        offload.note("optimizer", state_bytes, self.comm, offload.place("optimizer"), offload.updating)
        offload.note("optimizer", state_bytes, self.comm, offload.updating, offload.place("optimizer"))
        offload.note("parameters", weight_bytes, self.comm, offload.updating, offload.place("parameters"))

    def loss(self, windows: Array) -> float:
        """See Learner. All ranks must call, each with its own windows."""
        return self.model.forward(windows, observer=self._weights.observer(backward_follows=False))[0]

    def logits(self, tokens: Array) -> Array:
        """See Learner."""
        return self.model.logits(tokens, self._weights.observer(backward_follows=False))

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """See Learner. All ranks must call."""
        super().restore(vectors, numbers)
        self._weights.publish()


FSDP = partial(ZeRO, zero_stage=3)
"""Stage 3, under PyTorch's name: fully sharded data parallel. The arguments are ZeRO's."""
