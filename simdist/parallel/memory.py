"""Memory: the bytes of a model on a rank, as measured, as predicted, and by the papers' formulas."""

from collections.abc import Mapping
from typing import NamedTuple

from simdist.arrays import CATEGORIES, Ledger, phantom
from simdist.nn import Parameters, Shape
from simdist.nn.memory import Cut, paper_activation_bytes, peak_activation_bytes
from simdist.optim.norm import alone
from simdist.parallel.holding import Holding
from simdist.parallel.recipe import Recipe

__all__ = [
    "MemoryRow",
    "Prediction",
    "memory_rows",
    "num_weights",
    "optimizer_state",
    "replicated_memory",
    "rule_bytes",
]


class Prediction(NamedTuple):
    """The peak bytes of a category on a rank.

    Attributes:
        num_bytes: by this implementation's own formula, exactly.
        paper_bytes: by the paper's; None where it has none.
    """

    num_bytes: int
    paper_bytes: float | None


class MemoryRow(NamedTuple):
    """A category's peak bytes three times; None where there is no formula."""

    category: str
    measured: int
    predicted: int | None
    paper: float | None


def optimizer_state(recipe: Recipe, weights: int | Parameters) -> Prediction:
    """The bytes of an update rule's state for one contiguous vector of weights, masters included.

        SGD, LARS          one number a weight, the velocity; SGD without momentum none
        Adam, AdamW, LAMB  two, the moments
        Muon               one for each weight in a matrix inside a model, the momentum; for others two
        a registered rule  the bytes of its state for an array of this length
        AdamW of 8 bits    two bytes a weight, and two scales of 4 bytes for each 2048 weights, which its paper
                           leaves out
        mixed precision    4 bytes more a weight: the masters

    Args:
        weights: their number; or the parameters, for a rule whose state depends on what is a matrix.

    Source: Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1 (K = 12 for Adam with masters); Dettmers et al.
    2022, arXiv 2110.02861, section 1.
    """
    precision, n = recipe.precision, num_weights(weights)
    masters = precision.master_dtype.itemsize * n if precision.mixed else 0
    num_bytes = masters + rule_bytes(recipe, weights)
    return Prediction(num_bytes, masters + 2 * n if recipe.optimizer == "adamw8bit" else num_bytes)


def rule_bytes(recipe: Recipe, weights: int | Parameters, holding: Holding | None = None) -> int:
    """The exact bytes of an update rule's state, without masters, for one contiguous vector of weights, given as in
    `optimizer_state`, or for what a rank holds of it.
    """
    known = weights if isinstance(weights, Parameters) else Parameters([])
    held = holding or Holding.of_all(num_weights(weights))
    rule = recipe.rule(phantom(held.size, recipe.precision.master_dtype), known, held, alone)
    return sum(x.nbytes for x in rule.state.values())


def num_weights(weights: int | Parameters) -> int:
    """Their number, given as in `optimizer_state`."""
    return weights.size if isinstance(weights, Parameters) else weights


def replicated_memory(
    weights: int | Parameters, recipe: Recipe, shape: Shape | None = None, sequences: int = 0, cut: Cut | None = None
) -> dict[str, Prediction]:
    """By category, the memory of a rank in a method that replicates the model, such as `DataParallel`.

    Args:
        weights: of the model, as in `optimizer_state`.
        shape, sequences: of a GPT and of this rank's micro-batch in flight; without them activations are left out.
        cut: how ranks share activations; weights are then those of this rank.

    The papers' activations are of `Shape.in_papers` only.
    """
    e, n = recipe.precision.dtype.itemsize, num_weights(weights)
    found = {
        "parameters": Prediction(e * n, e * n),
        "gradients": Prediction(e * n, e * n),
        "optimizer state": optimizer_state(recipe, weights),
    }
    if shape is not None:
        cut = cut or Cut()
        block, around = paper_activation_bytes(shape, sequences, e, cut)
        peak = peak_activation_bytes(shape, sequences, e, cut)
        found["activations"] = Prediction(peak, shape.layers * block + around if shape.in_papers else None)
    return found


def memory_rows(ledger: Ledger, predictions: Mapping[str, Prediction]) -> list[MemoryRow]:
    """A row for each category that was used or predicted, at its own peak; then the peak of their total."""
    rows = []
    for category in CATEGORIES:
        measured = ledger.peaks[category]
        if measured or category in predictions:
            rows.append(MemoryRow(category, measured, *predictions.get(category, (None, None))))
    return [*rows, MemoryRow("all at once", ledger.peak.total, None, None)]
