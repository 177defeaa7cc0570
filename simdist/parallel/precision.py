"""Precision: the dtypes in which a training run computes and keeps its weights."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from simdist.errors import require_known

__all__ = ["Precision", "precision", "precisions"]


@dataclass(frozen=True)
class Precision:
    """Two dtypes: one for computation and messages, one for the master weights.

        precision    weights, activations, gradients, messages    master weights    loss scale
        float64      float64                                      the same          no
        float32      float32                                      the same          no
        bf16         bfloat16                                     float32           no
        fp16         float16                                      float32           yes

    Small updates vanish when they are added in low precision: 1 + 0.001 is 1 in bfloat16. So master weights
    are float32, and computation uses their rounded values. float16 also has a small range, and needs a
    `LossScale`. Gradients of several micro-batches add up in 16 bits, too; Megatron-LM adds them up in float32.

    Attributes:
        name: as in the table.
        dtype: of weights, activations, gradients and messages.
        master_dtype: of the weights that the update rule changes, and of its state.
        scaled: whether the loss is scaled.

    Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3; Kalamkar et al. 2019, arXiv 1905.12322.
    """

    name: str
    dtype: np.dtype
    master_dtype: np.dtype
    scaled: bool = False

    @property
    def mixed(self) -> bool:
        """Whether there are masters beside the weights used in computation."""
        return self.dtype != self.master_dtype


_SINGLE = np.dtype(np.float32)
_PRECISIONS = {
    p.name: p
    for p in (
        Precision("float64", np.dtype(np.float64), np.dtype(np.float64)),
        Precision("float32", _SINGLE, _SINGLE),
        Precision("bf16", np.dtype(ml_dtypes.bfloat16), _SINGLE),
        Precision("fp16", np.dtype(np.float16), _SINGLE, scaled=True),
    )
}


def precisions() -> list[str]:
    """The names of all precisions."""
    return list(_PRECISIONS)


def precision(name: str) -> Precision:
    """The precision of this name.

    Raises:
        UnknownNameError: there is no such precision.
    """
    require_known("precision", name, _PRECISIONS)
    return _PRECISIONS[name]
