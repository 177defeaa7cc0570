"""Update: from the gradient of a batch to new weights, on a whole model or on this rank's part of it."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from simdist.arrays import Array, charge, copied, hold, kind_of, moved
from simdist.comm import Communicator
from simdist.errors import ArgumentError, ArrayError
from simdist.nn import Parameters
from simdist.optim.matrices import Whole, whole_here
from simdist.optim.norm import alone, norm
from simdist.parallel.gradient_norm import clip_factor, combine_over
from simdist.parallel.holding import Holding, Shard
from simdist.parallel.loss_scale import LossScale
from simdist.parallel.recipe import Recipe
from simdist.parallel.spread import Spread

__all__ = ["Update"]


class Update:
    """Updates weights by a gradient that is already summed over the ranks.

        gradient --> completed --> finite everywhere? --> norm, clip --> rule --> masters --> weights
                     by Spread     no: no rank steps                              float32     rounded

    It works on a whole vector that every rank has, and on a rank's holding; either way the norm is that of the whole
    gradient, to the bit.

    Args:
        weights: the weights that this rank updates, in the caller's memory: shape (holding.size,), of the precision's
            dtype or its master dtype.
        holding: their place in the whole model.
        parameters: of the model that the ranks of the data axis share.
        recipe: equal on all ranks.
        spread: the ranks that train together, which must all call `step`, and how other axes cut the model.
        holders: the ranks that together hold one whole model, if those of the data axis hold a part each; None if each
            of these holds all of it.
        whole: gets whole matrices from those of the data axis, if these hold a part each.
        kind: of the arrays that the rule works on; by default that of the weights.

    Attributes:
        masters: the array that the rule updates: the weights themselves, if they have the master dtype.
        rule: the optimizer.
        loss_scale: None where the precision needs none.
        norm: of the last gradient that changed the weights, before clipping; nan if gradients are not clipped.

    Raises:
        ArgumentError: the rule needs norms of single matrices, and the model is cut.
    """

    def __init__(
        self,
        weights: Array,
        holding: Holding,
        parameters: Parameters,
        recipe: Recipe,
        spread: Spread,
        *,
        holders: Communicator | None = None,
        whole: Whole = whole_here,
        kind: str | None = None,
    ) -> None:
        if spread.model is not None and spread.model.size > 1 and recipe.whole_model:
            raise ArgumentError(
                f"{recipe.optimizer} needs the whole model on each rank; this one is cut over {spread.model.size} ranks"
            )
        # The ranks to sum norms over: those that hold parts on the data axis, or else those that split the model.
        group = holders or spread.model
        self._combine = alone if group is None else combine_over(group)
        self._weights = weights
        self._holding = holding
        self._parameters = parameters
        self._recipe = recipe
        self._spread = spread
        precision = recipe.precision
        mixed = weights.dtype != precision.master_dtype
        self.masters: Array = weights.astype(precision.master_dtype) if mixed else weights
        self._kind = kind or kind_of(weights)
        self.rule = recipe.rule(moved(self.masters, self._kind), parameters, holding, self._combine, whole)
        hold("optimizer state", self._update_arrays())
        self.loss_scale = LossScale(spread.comm) if precision.scaled else None
        self.norm = math.nan

    @property
    def scale(self) -> float:
        """The factor for the loss before backward."""
        return self.loss_scale.value if self.loss_scale else 1.0

    def step(self, gradient: Array, learning_rate: float) -> bool:
        """Update the weights; returns False if it skips the step because a scaled gradient is not finite on some rank.

        Args:
            gradient: of the weights, times `scale`, summed over the data axis. Sums over other axes are made here, in
                place.
            learning_rate: of this step.

        Cost per rank: that of `Spread.complete`; an all-reduce of 1 byte, if the precision scales the loss; the two
        small ones of `norms`, if the gradient is clipped and held in parts.
        """
        scale = self.scale
        self._spread.complete(gradient, self._parameters, self._holding)
        if self.loss_scale:
            finite = self.loss_scale.agree(gradient)
            self.loss_scale.update(finite)
            if not finite:
                return False
        factor = 1 / scale
        if self._recipe.max_norm is not None:
            own_parts = self._spread.own_parts(gradient, self._parameters, self._holding)
            self.norm = norm(own_parts, self._combine) / scale
            factor *= clip_factor(self.norm, self._recipe.max_norm)
        masters = moved(self.masters, self._kind)
        self.rule.step(masters, moved(gradient, self._kind), learning_rate, factor)
        if masters is not self.masters:
            copied(self.masters, masters)
        self.round()
        return True

    def round(self) -> None:
        """Set the weights to the masters, rounded to their dtype."""
        if self._weights is not self.masters:
            copied(self._weights, self.masters)
            charge(0, self._weights.nbytes + self.masters.nbytes)

    # -- memory -----------------------------------------------------------------------------------------

    def _update_arrays(self) -> list[Array]:
        """The arrays that only the update uses."""
        return [*self.rule.state.values(), *([self.masters] if self.masters is not self._weights else [])]

    @property
    def num_bytes(self) -> int:
        """Of the rule's state, and of masters if they are not the weights themselves."""
        return sum(x.nbytes for x in self._update_arrays())

    def move(self, to: Callable[[Array], Array]) -> None:
        """Move the arrays that only the update uses to other memory: `to` returns a copy there."""
        for name, x in self.rule.state.items():
            self.rule.state[name] = to(x)
        if self.masters is not self._weights:
            self.masters = to(self.masters)

    # -- checkpoints ----------------------------------------------------------------------------------

    def vectors(self) -> dict[str, list[Shard]]:
        """The state with one item per weight, for a checkpoint, by the prefix of its name there.

        "" is the weights, in full precision; the rule's state is named after the rule: "adamw.m/". These arrays may be
        overwritten and then passed to `restore`.
        """
        own = {"": self.masters} | {self._prefix + name + "/": x for name, x in self.rule.vectors().items()}
        return {name: self._holding.shards(x) for name, x in own.items()}

    def numbers(self) -> dict[str, float]:
        """The rest of the state; the same on all ranks."""
        scale = self.loss_scale.state() if self.loss_scale else {}
        return {"optimizer.num_steps": self.rule.num_steps} | {f"loss_scale.{k}": v for k, v in scale.items()}

    def restore(self, vectors: Mapping[str, Sequence[Shard]], numbers: Mapping[str, float]) -> None:
        """Restore what `vectors` and `numbers` returned. If there was no loss scale, this one keeps its value.

        Raises:
            ArrayError: a vector is missing, unknown or of another length.
            ArgumentError: a number of the loss scale is missing or outside its limits.
        """
        if "" not in vectors:
            raise ArrayError(f"the weights are missing; was given {sorted(vectors)}")
        own = {name: self._joined(name, shards) for name, shards in vectors.items()}
        if self.loss_scale and (own_scale := _own_scale(numbers)):
            self.loss_scale.restore(own_scale)
        masters = own.pop("")
        state = {name.removeprefix(self._prefix).removesuffix("/"): x for name, x in own.items()}
        self.rule.restore(state, int(numbers["optimizer.num_steps"]))
        self.masters[...] = masters
        self.round()

    def check(self, numbers: Mapping[str, float]) -> None:
        """Raise ArgumentError if `restore` would, because of a number of the loss scale."""
        if self.loss_scale and (own_scale := _own_scale(numbers)):
            self.loss_scale.check(own_scale)

    @property
    def _prefix(self) -> str:
        return f"{self._recipe.optimizer}."

    def _joined(self, name: str, shards: Sequence[Shard]) -> Array:
        """Shards of this holding, joined to a vector."""
        starts = [(s.start, len(s.data)) for s in shards]
        wanted = [(s.start, s.stop - s.start) for s in self._holding.stretches]
        if starts != wanted:
            raise ArrayError(f"{name or 'weights'}: shards {starts} (start, length); this rank holds {wanted}")
        like = shards[0].data if shards else self.masters  # offloaded state is not where the masters are
        own = np.zeros_like(like, shape=(self._holding.size,))
        for place, shard in zip(self._holding.places, shards, strict=True):
            own[place] = shard.data
        return own


def _own_scale(numbers: Mapping[str, float]) -> dict[str, float]:
    """Those of the loss scale, by its own names."""
    return {n.removeprefix("loss_scale."): v for n, v in numbers.items() if n.startswith("loss_scale.")}
