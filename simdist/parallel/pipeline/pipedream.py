"""PipeDream: pipelines without a flush, whose stages update weights while micro-batches are in flight."""

from collections import Counter
from collections.abc import Sequence

from simdist.arrays import Array
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Model, Noise
from simdist.parallel.data_parallel import Allocate, DataParallel
from simdist.parallel.method import Learner
from simdist.parallel.pipeline.passes import Passes
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.share import Share
from simdist.parallel.pipeline.stage import MicroBatch
from simdist.parallel.pipeline.stash import Stash
from simdist.parallel.pipeline.times import Times
from simdist.parallel.pipeline.versions import versions
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread

__all__ = ["PipeDream"]


class PipeDream(Learner):
    """A pipeline whose schedule updates weights between micro-batches: PipeDream and its variants.

        stashing         w(t+1) = w(t) - ν ∇f(w_1(t-n+1), w_2(t-n+2), …, w_n(t))
        vertical sync    w(t+1) = w(t) - ν ∇f(w_1(t-n+1), w_2(t-n+1), …, w_n(t-n+1))
        2bw              W(t+1) = W(t) - ν ∇f(W(t-1))                                       t counts groups

    The weights are those of these formulas, not of one rank; n is the number of stages, ν the learning rate, and
    versions before the first are the first. Ranks take no common step: a batch brings many updates, one for each group
    of its micro-batches, and the pipeline drains only at the end of the batch. So this is not a `Method`.

    Args:
        model, mesh, recipe, seed, schedule, costs, times, memory: as of `Pipeline`; the schedule has a group of
            micro-batches between updates. The ranks of dp have different windows, and sum their gradients at every
            update.

    Attributes:
        model: the layers of this rank.
        share: its stages.
        weights: the flat vector of this rank's newest weights.
        executor: executes the schedule.
        weight_versions: the most versions of its weights this rank held at once.

    Raises:
        ArgumentError: the schedule updates after all micro-batches; a rank has several stages, or shares a stage or
            a tied table with another; or the recipe clips gradients or scales the loss, which all stages would have
            to agree on at each update.

    Source: Harlap et al. 2018, arXiv 1806.03377: weight stashing, vertical sync; Narayanan et al. 2021, arXiv
    2006.09503, section 3.1: 2BW.
    """

    def __init__(
        self,
        model: Model,
        mesh: Mesh,
        recipe: Recipe,
        seed: int,
        schedule: Schedule,
        *,
        costs: Sequence[float] | None = None,
        times: Times | None = None,
        memory: Allocate | None = None,
    ) -> None:
        _check(model, schedule, recipe)
        self.mesh = mesh
        self.schedule = schedule
        self.num_updates = schedule.weights.group_of(schedule.num_micro_batches - 1) + 1
        self.weight_versions = 1
        self.share = Share(model, mesh.pp, schedule, costs, recipe.precision.dtype)
        super().__init__(self.share.model, mesh.dp, recipe, Spread(mesh.comm))
        self._method = DataParallel(self.model, mesh.dp, recipe, seed, memory=memory)
        self.update = self._method.update
        self.weights: Array = self._method.weights
        self._plan = versions(schedule)[mesh.pp.rank][0]
        self._passes = Passes(self.share, schedule, self.update.masters, times)
        self.executor = self._passes.executor

    def train(
        self, windows: Sequence[Array], scale: float, learning_rate: float, noise: Sequence[Noise] | None = None
    ) -> float:
        """Run the schedule's micro-batches, and make all of its updates.

        The version before the first update is the last one of the previous call, on all stages.

        Args:
            windows, scale, noise: as of `Learner.train`; windows are the same on all ranks of pp. If all groups of
                micro-batches are full, each update uses the gradient of a mean loss.
            learning_rate: of every update.

        Returns:
            The loss summed over all windows, in nats, each with the weights its micro-batch used.

        Raises:
            ArgumentError: there are more or fewer micro-batches than the schedule has.
            ArrayError: a layer gave a parameter another array; see `Parameters.check_views`.
        """
        if self._in_step:
            self.zero_gradients()
        self._in_step = True
        stash = Stash(self._method, self._plan, learning_rate)
        batch = [
            MicroBatch(*self.model.examples(each), scale, None if noise is None else noise[i])
            for i, each in enumerate(windows)
        ]
        total = self._passes.train(batch, stash)
        self.weight_versions = max(self.weight_versions, stash.most)
        self._in_step = False
        return total

    def zero_gradients(self) -> None:
        """See Learner. The updates that a failed call has made stay; it may have left older weights bound."""
        self.model.parameters.bind(self.weights, self._method.gradient)
        self._method.zero_gradients()

    def loss(self, windows: Array) -> float:
        """See Learner. All ranks of pp have the same windows. Uses the newest weights, which are of one version."""
        return self._passes.loss(windows)

    def logits(self, tokens: Array) -> Array:
        """See Learner. All ranks of pp get them."""
        return self._passes.logits(tokens)


def _check(model: Model, schedule: Schedule, recipe: Recipe) -> None:
    """Refuse settings that need all stages to update together."""
    if schedule.weights.flushes:
        raise ArgumentError(f"{schedule.name} updates after all micro-batches; that is for Pipeline")
    placement = schedule.placement
    if any(len(stages) > 1 for stages in placement) or len(set(placement)) < len(placement):
        raise ArgumentError(
            f"{schedule.name} with {schedule.weights.policy} has stages {placement} on its ranks; "
            "needs one stage per rank, and no stage on two"
        )
    names = Counter(p.name for layer in model.layers.layers for p in layer.parameters)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ArgumentError(f"{twice[0]} is used by several layers, and each would update it by itself; untie them")
    if recipe.max_norm is not None or recipe.precision.scaled:
        raise ArgumentError(
            f"max_norm {recipe.max_norm} and precision {recipe.precision.name}: stages that update at "
            "different times cannot agree on a norm or a loss scale"
        )
