"""Recipe: how weights are updated, on any rank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array
from simdist.errors import ArgumentError, require_known, require_more, wrong_return
from simdist.nn import Parameters
from simdist.optim import LAMB, LARS, SGD, Adam, AdamW, AdamW8bit, Combine, Matrices, Matrix, Muon, Optimizer
from simdist.optim.matrices import Whole, whole_here
from simdist.optim.norm import alone
from simdist.parallel.holding import Holding
from simdist.parallel.precision import Precision, precision
from simdist.registry import Registry

__all__ = ["Make", "Recipe", "optimizer", "optimizer_defaults", "optimizers"]


@dataclass(frozen=True)
class Recipe:
    """Everything about an update except the weights, the gradient and the learning rate. Equal on all ranks.

    Args:
        optimizer: the rule's name, one of `optimizers()`.
        momentum: of SGD, LARS and Muon.
        betas: of the Adam family, and of Muon's AdamW.
        weight_decay: on weights of two axes and more; biases and norms do not decay, as in Megatron-LM.
        max_norm: gradients are clipped to this norm; None for no clipping.
        precision: the dtypes of computation and of master weights.

    Raises:
        UnknownNameError: there is no such rule.
        ArgumentError: max_norm is not above 0. A rule checks its own limits when it is made.
    """

    optimizer: str = "sgd"
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_norm: float | None = None
    precision: Precision = field(default_factory=lambda: precision("float32"))

    def __post_init__(self) -> None:
        _OPTIMIZERS.find(self.optimizer)
        if self.max_norm is not None:
            require_more("max_norm", self.max_norm, 0)

    def rule(
        self,
        like: Array,
        parameters: Parameters,
        holding: Holding,
        combine: Combine,
        whole: Whole = whole_here,
    ) -> Optimizer:
        """The update rule for what a rank holds.

        Args:
            like: shape (holding.size,), of the masters' dtype.
            parameters: of the whole model.
            holding: the place of `like` in its flat vector; each parameter's items are contiguous.
            combine: sums norms over the ranks that hold the rest, for LARS and LAMB.
            whole: gets whole matrices from these ranks, for Muon; without it they must be here.
        """
        known = (
            Matrix(p.name, p.shape, p.place.shape, span, holding.own(span))
            for p, span in zip(parameters, parameters.spans.values(), strict=True)
            if len(p.shape) > 1
        )
        matrices = Matrices(known, whole)
        made: Any = self.maker(self, like, matrices, combine)
        if not isinstance(made, Optimizer):
            raise wrong_return(f"what makes {self.optimizer}", made, "an Optimizer")
        return made

    @property
    def alignment(self) -> int:
        """The rule's shards should begin and end at multiples of this: see `Optimizer`."""
        return _alignment(self, self.maker)

    @property
    def maker(self) -> "Make":
        """What makes the rule, now: a name may be registered again."""
        return _OPTIMIZERS[self.optimizer].make

    @property
    def whole_matrices(self) -> bool:
        """Whether the rule needs whole matrices, so that tensor parallelism may not split them."""
        return _OPTIMIZERS[self.optimizer].whole_matrices

    @property
    def gathers(self) -> bool:
        """Whether it gets whole matrices itself from the ranks that hold parts of them."""
        return _OPTIMIZERS[self.optimizer].gathers

    @property
    def sums_norms(self) -> bool:
        """Whether it sums norms of matrices over these ranks instead."""
        return self.whole_matrices and not self.gathers

    @property
    def whole_model(self) -> bool:
        """Whether a weight's step depends on others: those of its block, or of its matrix, unless it gathers that.

        Parameters shared by ranks with different parts of a model would then drift apart.
        """
        return self.sums_norms or self.alignment > 1


Make = Callable[[Recipe, Array, Matrices, Combine], Optimizer]


@lru_cache(maxsize=256)
def _alignment(recipe: Recipe, made_by: Make) -> int:
    """The alignment of the rule that `made_by` makes, which is part of the key: its name may be registered again."""
    nothing = np.empty(0, recipe.precision.master_dtype)
    return recipe.rule(nothing, Parameters([]), Holding([]), alone).alignment


class _Known(NamedTuple):
    """A rule that recipes can name."""

    make: Make
    whole_matrices: bool
    gathers: bool
    defaults: Mapping[str, float]


_OPTIMIZERS = Registry[_Known]("optimizer")


def optimizer(
    name: str, *, whole_matrices: bool = False, gathers: bool = False, **defaults: float
) -> Callable[[Make], Make]:
    """Register the function below, which makes an update rule, for `Recipe(name)`, `simdist train --optimizer` and all
    methods, on whole vectors and on shards.

        @optimizer("lion", learning_rate=1e-4, weight_decay=0.1, beta1=0.9, beta2=0.99)
        def lion(recipe, like, matrices, combine):
            return Lion(like, recipe.betas, weight_decay=recipe.weight_decay, decay=matrices)

    The function takes the recipe; the vector that a rank holds, shape (n,); the slices of its matrices, which decay, in
    a list that also knows their shapes and gathers whole ones: see `Matrices`; and a function that sums norms over the
    ranks that hold the rest. The rule makes its state from that vector, self.state["momentum"] = np.zeros_like(like),
    so the state is an array of the same kind: a phantom where memory is predicted. Only what is in `state` is counted,
    and saved in checkpoints. A name of your own may be registered again.

    Args:
        whole_matrices: whether the step of one weight depends on its whole matrix, as in LARS and LAMB. Methods that
            split matrices or layers over ranks refuse such a rule. On ZeRO's shards it works if it sums over each
            matrix with `combine`.
        gathers: whether it gets whole matrices from `matrices` instead, all that it needs. Then only what cuts a matrix
            itself, tensor parallelism and several servers, is refused.
        defaults: its defaults in a training run: learning_rate (required), weight_decay, momentum, beta1 with beta2.
            A run that sets one of these that is not given here is refused.

    Raises:
        UnknownNameError: one of the defaults has another name.
        ArgumentError: there is no name, or it is one of simdist's own; learning_rate is missing, or one of beta1 and
            beta2; or the function takes other arguments.
    """
    register = _OPTIMIZERS.registering(
        name, lambda make: _Known(make, whole_matrices, gathers, defaults), "recipe", "like", "matrices", "combine"
    )
    for setting in defaults:
        require_known(f"default of optimizer {name}", setting, _SETTINGS)
    needed = ("learning_rate", "beta1", "beta2") if {"beta1", "beta2"} & set(defaults) else ("learning_rate",)
    for setting in needed:
        if setting not in defaults:
            raise ArgumentError(f"optimizer {name} has no default of {setting}; needs {', '.join(needed)}")
    return register


def optimizers() -> list[str]:
    """The names of all update rules."""
    return list(_OPTIMIZERS)


def optimizer_defaults(setting: str) -> dict[str, float]:
    """The default of "learning_rate", "momentum", … in a training run, by the name of each rule that uses it."""
    return {name: known.defaults[setting] for name, known in _OPTIMIZERS.items() if setting in known.defaults}


# -- the rules ----------------------------------------------------------------------------------------

_SETTINGS = ("learning_rate", "weight_decay", "momentum", "beta1", "beta2")
_BETAS: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999}


@optimizer("sgd", learning_rate=0.3, weight_decay=0.0, momentum=0.9)
def _sgd(recipe: Recipe, like: Array, matrices: Matrices, combine: Combine) -> Optimizer:
    return SGD(like, recipe.momentum, weight_decay=recipe.weight_decay, decay=matrices)


def _adam_like(rule: Callable[..., Optimizer]) -> Make:
    """What makes a rule of the Adam family that gives all weights the same rate."""
    return lambda recipe, like, matrices, combine: rule(
        like, betas=recipe.betas, weight_decay=recipe.weight_decay, decay=matrices
    )


optimizer("adam", learning_rate=0.001, weight_decay=0.0, **_BETAS)(_adam_like(Adam))
optimizer("adamw", learning_rate=0.001, weight_decay=0.01, **_BETAS)(_adam_like(AdamW))
optimizer("adamw8bit", learning_rate=0.001, weight_decay=0.01, **_BETAS)(_adam_like(AdamW8bit))

# LARS and LAMB give each matrix its own rate; biases and norms keep the common one.


@optimizer("lars", whole_matrices=True, learning_rate=10.0, weight_decay=0.0001, momentum=0.9)
def _lars(recipe: Recipe, like: Array, matrices: Matrices, combine: Combine) -> Optimizer:
    return LARS(
        like, matrices, combine=combine, momentum=recipe.momentum, weight_decay=recipe.weight_decay, decay=matrices
    )


@optimizer("lamb", whole_matrices=True, learning_rate=0.01, weight_decay=0.01, **_BETAS)
def _lamb(recipe: Recipe, like: Array, matrices: Matrices, combine: Combine) -> Optimizer:
    return LAMB(like, matrices, combine=combine, betas=recipe.betas, weight_decay=recipe.weight_decay, decay=matrices)


@optimizer("muon", whole_matrices=True, gathers=True, learning_rate=0.01, weight_decay=0.01, momentum=0.95, **_BETAS)
def _muon(recipe: Recipe, like: Array, matrices: Matrices, combine: Combine) -> Optimizer:
    """Of all matrices but the first and the last layer's, as in both papers: the tables of words and places, and what
    makes logits.
    """
    chosen = [matrix for matrix in matrices.known if matrix.name.split(".")[0] not in ("embedding", "logits")]
    return Muon(like, matrices, chosen, momentum=recipe.momentum, betas=recipe.betas, weight_decay=recipe.weight_decay)


_OPTIMIZERS.close()
