"""Recipe: how weights are to change, whoever holds them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simdist.arrays import Array
from simdist.errors import ArgumentError, unknown_name
from simdist.nn import Parameters
from simdist.optim import LAMB, LARS, SGD, Adam, AdamW, AdamW8bit, Combine, Optimizer
from simdist.optim.norm import alone
from simdist.parallel.holding import Holding
from simdist.parallel.precision import Precision, precision

__all__ = ["Recipe", "optimizers"]


@dataclass(frozen=True)
class Recipe:
    """Everything about an update but the weights, the gradient and the learning rate. Equal on all ranks.

    Args:
        optimizer: the rule's name, one of `optimizers()`.
        momentum: of SGD and LARS.
        betas: of the Adam family.
        weight_decay: on weights of two axes and more; biases and norms do not decay.
        max_norm: gradients are clipped to this norm; None leaves them.
        precision: what is computed in, and what masters are kept in.

    Raises:
        UnknownNameError: there is no such rule.
        ArgumentError: max_norm is not above 0. A rule's own limits are checked when it is made.
    """

    optimizer: str = "sgd"
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_norm: float | None = None
    precision: Precision = field(default_factory=lambda: precision("float32"))

    def __post_init__(self) -> None:
        if self.optimizer not in _OPTIMIZERS:
            raise unknown_name("optimizer", self.optimizer, _OPTIMIZERS)
        if self.max_norm is not None and not self.max_norm > 0:
            raise ArgumentError(f"max_norm is {self.max_norm}; needs more than 0")

    def rule(self, like: Array, parameters: Parameters, holding: Holding, combine: Combine) -> Optimizer:
        """The update rule for what a rank holds.

        Args:
            like: shape (holding.size,), of the masters' dtype.
            parameters: of the whole model.
            holding: where `like` lies in its flat vector; each parameter's items in one piece.
            combine: how the ranks that hold the rest add up norms, for LARS and LAMB.
        """
        matrices = [holding.own(parameters.spans[p.name]) for p in parameters if len(p.shape) > 1]
        return _OPTIMIZERS[self.optimizer](self, like, matrices, combine)

    @property
    def alignment(self) -> int:
        """What the rule's shards should begin and end at multiples of: see `Optimizer`."""
        nothing = np.empty(0, self.precision.master_dtype)
        return self.rule(nothing, Parameters([]), Holding([]), alone).alignment


_Make = Callable[[Recipe, Array, list[slice], Combine], Optimizer]

# LARS and LAMB give each matrix a rate of its own; biases and norms keep the common one.
_OPTIMIZERS: dict[str, _Make] = {
    "sgd": lambda r, x, at, _: SGD(x, r.momentum, weight_decay=r.weight_decay, decay=at),
    "adam": lambda r, x, at, _: Adam(x, betas=r.betas, weight_decay=r.weight_decay, decay=at),
    "adamw": lambda r, x, at, _: AdamW(x, betas=r.betas, weight_decay=r.weight_decay, decay=at),
    "adamw8bit": lambda r, x, at, _: AdamW8bit(x, betas=r.betas, weight_decay=r.weight_decay, decay=at),
    "lars": lambda r, x, at, combine: LARS(
        x, at, combine=combine, momentum=r.momentum, weight_decay=r.weight_decay, decay=at
    ),
    "lamb": lambda r, x, at, combine: LAMB(
        x, at, combine=combine, betas=r.betas, weight_decay=r.weight_decay, decay=at
    ),
}


def optimizers() -> list[str]:
    """The names of all update rules."""
    return list(_OPTIMIZERS)
