"""Formulas: the memory and traffic of each stage, as in ZeRO's paper and exactly as in this implementation.

Ψ  weights of the model      N  ranks      K  bytes of optimizer state a weight: 12 for Adam in mixed precision

    stage    bytes a rank keeps             elements it sends a step
    0        (2 + 2 + K) Ψ                  2Ψ (N-1)/N                    data parallelism
    1        4Ψ + KΨ/N                      2Ψ (N-1)/N
    2        2Ψ + (2 + K) Ψ/N               2Ψ (N-1)/N
    3        (4 + K) Ψ/N                    3Ψ (N-1)/N

The paper counts elements for large N, as 2Ψ and 3Ψ. In hybrid sharding N is the number of shards, and the
c = ranks/N copies of each shard send 2 (Ψ/N) (c-1)/c elements more; if each node holds a whole model, only these pass
between nodes. (The paper on FSDP has (ranks-1)/ranks in place of (c-1)/c: the same for many nodes.) With k
micro-batches stage 2 sends (k+1)Ψ and stage 3 3kΨ instead of 2Ψ and 3Ψ; copies sum their gradients once per step.

Source: Rajbhandari, Rasley, Ruwase, He 2020, arXiv 1910.02054, figure 1, table 1 and section 7; Zhao et al. 2023,
PyTorch FSDP, arXiv 2304.11277 (hybrid sharding).
"""

from collections.abc import Collection
from typing import NamedTuple

from simdist.errors import ArgumentError, as_declared, require_least, require_whole
from simdist.nn import Model, Parameters
from simdist.parallel.buckets import BUCKET_BYTES
from simdist.parallel.memory import num_weights, optimizer_state, rule_bytes
from simdist.parallel.recipe import Recipe
from simdist.parallel.zero.sharing import check_shards
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import Units, least_items

__all__ = [
    "Kept",
    "Offloaded",
    "activation_bytes",
    "kept",
    "kept_of",
    "offloaded_bytes",
    "paper_bytes",
    "paper_elements",
    "paper_kept",
    "plus_plus_bytes",
    "plus_plus_elements",
]


@as_declared
def paper_bytes(
    weights: float,
    ranks: int,
    zero_stage: int,
    optimizer_bytes: float = 12.0,
    weight_bytes: float = 2.0,
    gradient_bytes: float = 2.0,
) -> float:
    """The bytes of weights, gradients and optimizer state on a rank, by the paper; its defaults are 16-bit training.

    The largest model that fits, without activations, has memory_bytes / paper_bytes(1, ranks, zero_stage) weights: on
    64 GPUs of 32 GB 2, 7.6, 14.4 and 128 billion (table 2).

    Args:
        weights: Ψ.
        ranks: N, the ranks that share a model.
        zero_stage: 0 to 3.
        optimizer_bytes: K, with 4-byte masters: 12 for Adam and LAMB; 8 for SGD and LARS with momentum, Lion and Muon;
            4 for SGD without; 6 for Adam of 8 bits; hardly more than 4 for Adafactor, with n + m numbers for a matrix
            of n x m. Where Adam keeps no masters, 8; in 16 bits, 4.
        weight_bytes, gradient_bytes: per weight; Megatron-LM accumulates 16-bit gradients in 4 bytes.

    Raises:
        ArgumentError: there is no such stage, or ranks is less than 1.
    """
    sizes = weight_bytes, gradient_bytes, optimizer_bytes
    return weights * sum(size * part for size, part in zip(sizes, _shares(ranks, zero_stage), strict=True))


def paper_kept(recipe: Recipe, weights: int | Parameters, ranks: int, zero_stage: int) -> dict[str, float]:
    """The same bytes by category of the ledger, in the sizes of a recipe; see `kept` for the exact ones.

    Raises:
        ArgumentError: as of `paper_bytes`.
    """
    parameters, gradients, state = _shares(ranks, zero_stage)
    short = num_weights(weights) * recipe.precision.dtype.itemsize
    return {
        "parameters": short * parameters,
        "gradients": short * gradients,
        "optimizer state": (optimizer_state(recipe, weights).paper_bytes or 0.0) * state,
    }


def _shares(ranks: int, zero_stage: int) -> list[float]:
    """The shares of weights, gradients and optimizer state that a rank keeps."""
    _check(ranks, zero_stage)
    return [1.0 / ranks if zero_stage >= cut else 1.0 for cut in (3, 2, 1)]


@as_declared
def activation_bytes(layers: float, width: float, context: float, sequences: float) -> float:
    """24 l h s B: the activations of a GPT without recomputation, about 12 of 2 bytes for each number between layers.

    It leaves out what grows with s²; `simdist.nn.formulas.megatron_activation_bytes` counts that, too, and more.

    Source: the paper, section 3.2: some 60 GB for GPT-2 with 1.5 billion weights, s = 1024 and B = 32.
    """
    return 24 * layers * width * context * sequences


@as_declared
def paper_elements(weights: float, ranks: int, zero_stage: int, shards: int = 0, micro_batches: int = 1) -> float:
    """The elements that a rank sends in a step, exact for this number of ranks.

    Args:
        weights: Ψ.
        ranks: all of them.
        zero_stage: 0 to 3.
        shards: N, from stage 1 on: a divisor of ranks, or 0 for one shard per rank.
        micro_batches: k.

    Raises:
        ArgumentError: as of `paper_bytes`, ranks are no multiple of shards, or micro_batches is less than 1.
    """
    _check(ranks, zero_stage)
    require_least("micro_batches", micro_batches, 1)
    check_shards(ranks, shards)
    holders = shards or ranks
    copies = ranks // holders
    times = (2, 2, micro_batches + 1, 3 * micro_batches)[zero_stage]
    return times * weights * (holders - 1) / holders + 2 * weights / holders * (copies - 1) / copies


class Offloaded(NamedTuple):
    """Bytes of a rank in ZeRO-Offload.

    Attributes:
        device: weights of 2 bytes, all of them.
        host: of this rank's part, gradients of 2 bytes and K of optimizer state.
        moved: over the link in a step: gradients of the part to the host, and its weights back.
    """

    device: float
    host: float
    moved: float


@as_declared
def offloaded_bytes(weights: float, ranks: int = 1, optimizer_bytes: float = 12.0) -> Offloaded:
    """2Ψ on the device, (2 + K) Ψ/N on the host, 4Ψ/N moved: 2, 14 and 4 bytes a weight on one rank.

    The device's 2Ψ leave out the gradients on their way to the host.

    Args:
        weights, ranks, optimizer_bytes: Ψ, N and K.

    Raises:
        ArgumentError: ranks is less than 1.

    Source: Ren et al. 2021, ZeRO-Offload, arXiv 2101.06840, sections 3 and 4.2. `ZeRO` with `Offload` of the optimizer
    and gradients in stage 2 does this.
    """
    _check(ranks, 2)
    return Offloaded(2 * weights, (2 + optimizer_bytes) * weights / ranks, 4 * weights / ranks)


@as_declared
def plus_plus_elements(
    weights: float, *, weight_bits: float = 8, gradient_bits: float = 4, node_copies: bool = True
) -> float:
    """What ZeRO++ sends between nodes in a step, in elements of 16 bits, for large N: 0.75Ψ of stage 3's 3Ψ.

        forward     Ψ weight_bits/16        weights are gathered in blocks of 8 bits (qwZ)
        backward    0, or as forward        each node keeps a copy of the weights in 16 bits (hpZ)
        gradients   Ψ gradient_bits/16      rounded to 4 bits, in an all-to-all (qgZ)

    Args:
        weights: Ψ.
        weight_bits, gradient_bits: of an item on its way; 16 without qwZ or qgZ.
        node_copies: with hpZ.

    Source: Wang et al. 2023, ZeRO++, arXiv 2306.10209: from 3M to 0.75M for M weights.
    """
    gathers = 1 if node_copies else 2
    return weights * (gathers * weight_bits + gradient_bits) / 16


@as_declared
def plus_plus_bytes(
    weights: float,
    ranks: int,
    ranks_per_node: int,
    optimizer_bytes: float = 12.0,
    weight_bytes: float = 2.0,
    gradient_bytes: float = 2.0,
) -> float:
    """The bytes on a rank in ZeRO++, (4 + K) Ψ/N of stage 3 and 2Ψ/P: with hpZ the ranks of a node share a second copy.

    On 1024 ranks, 16 a node, this is nine times as much as stage 3 alone, and 114 times less than data parallelism.

    Args:
        weights, ranks: Ψ and N.
        ranks_per_node: P, a divisor of N.
        optimizer_bytes, weight_bytes, gradient_bytes: as of `paper_bytes`; the copy has the bytes of the weights.

    Raises:
        ArgumentError: a number of ranks is less than 1, or the nodes are not equal.

    Source: Wang et al. 2023, ZeRO++, arXiv 2306.10209 (hpZ).
    """
    require_least("ranks_per_node", ranks_per_node, 1)
    if ranks % ranks_per_node:
        raise ArgumentError(f"ranks_per_node is {ranks_per_node}, and ranks {ranks}; needs a divisor of that")
    shard = paper_bytes(weights, ranks, 3, optimizer_bytes, weight_bytes, gradient_bytes)
    return shard + weights * weight_bytes / ranks_per_node


def _check(ranks: int, zero_stage: int) -> None:
    require_whole("ranks", ranks, 1)
    if zero_stage not in (0, 1, 2, 3):
        raise ArgumentError(f"zero_stage is {zero_stage}; needs 0, 1, 2 or 3")


class Kept(NamedTuple):
    """Bytes of a rank, by category of the ledger.

    Attributes:
        parameters: weights, in the dtype of computation.
        gradients: in the same dtype.
        optimizer_state: including masters that are kept beside the weights.
        communication: the slots that units pass through.
    """

    parameters: int
    gradients: int
    optimizer_state: int
    communication: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def kept(
    model: Model,
    recipe: Recipe,
    ranks: int,
    zero_stage: int,
    *,
    rank: int = 0,
    bucket_bytes: int = BUCKET_BYTES,
    apart: Collection[str] = (),
) -> Kept:
    """The exact bytes that a rank keeps between steps if this many share a model. The arguments are those of `ZeRO`;
    stage 0 is data parallelism.

    In mixed precision, with sizes that N divides, these are the paper's plus the slots. In other precisions stages 1
    and 2 keep this rank's part of the weights twice, so that the update gets it in one piece.

    Raises:
        ArgumentError: as of `paper_bytes`.
    """
    _check(ranks, zero_stage)
    if zero_stage == 0:
        return kept_of(recipe, 0, model.parameters.size, model.parameters.size, rule_bytes(recipe, model.parameters))
    least = least_items(zero_stage, bucket_bytes, recipe.precision.dtype.itemsize)
    units = Units(model, ranks, rank, least, recipe.alignment, apart)
    whole = sum(unit.room for unit in units)
    state = rule_bytes(recipe, model.parameters, units.holding)
    return kept_of(recipe, zero_stage, whole, units.holding.size, state, Slots.shared(units).size)


@as_declared
def kept_of(recipe: Recipe, zero_stage: int, whole: int, own: int, state_bytes: int, passing: int = 0) -> Kept:
    """The same, by numbers of items: of the whole model and of the rank's holding, with padding; by the bytes of the
    rule's state; and by the items of all slots.
    """
    precision = recipe.precision
    short = precision.dtype.itemsize
    masters = precision.master_dtype.itemsize if zero_stage in (1, 2) or precision.mixed else 0
    return Kept(
        (own if zero_stage == 3 else whole) * short,
        (own if zero_stage >= 2 else whole) * short,
        own * masters + state_bytes,
        passing * short * max(zero_stage - 1, 0),
    )
