"""Megatron: a GPT's parameters, operations, messages and activations as the papers on Megatron-LM count them."""

from math import sqrt

from simdist.errors import as_declared, require_known, require_least, require_more
from simdist.nn.shape import RECOMPUTATIONS

__all__ = [
    "megatron_activation_bytes",
    "megatron_checkpoint_bytes",
    "megatron_checkpoints",
    "megatron_flops",
    "megatron_outer_activation_bytes",
    "megatron_parameters",
    "megatron_pipeline_elements",
    "megatron_tensor_elements",
    "megatron_training_s",
]


@as_declared
def megatron_parameters(layers: float, width: float, vocabulary: float, context: float) -> float:
    """P = 12 l h² (1 + 13 / (12 h) + (V + s) / (12 l h)): tied logits, and no norm after the last block.

    Source: Narayanan et al. 2021, arXiv 2104.04473, equation 2.
    """
    h = width
    return layers * (12 * h**2 + 13 * h) + (vocabulary + context) * h


@as_declared
def megatron_flops(
    layers: float, width: float, vocabulary: float, context: float, sequences: float, recompute: str = "full"
) -> float:
    """The operations of an iteration, in which the papers count all s² scores.

        none         72 B s l h² (1 + s / (6 h) + V / (12 l h))     what the model needs
        selective    72 B s l h² (1 + s / (3 h) + V / (12 l h))     what the hardware does
        full         96 B s l h² (1 + s / (6 h) + V / (16 l h))

    MFU divides the model's operations, HFU the hardware's, by what the devices could do in the iteration's time: 51.4%
    is `megatron_flops(96, 12288, 51200, 2048, 64, "none") / (64 * 312e12 * 13.75)`, of 64 A100s in 13.75 s.

    Selective recomputes attention's forward, a third of its operations; the paper, and so its table, counts all of
    them twice. `matmul_flops` counts the operations that are executed.

    Raises:
        UnknownNameError: there is no such recomputation.

    Source: full, Narayanan et al. 2021, arXiv 2104.04473, equation 3; the others, Korthikanti et al. 2022, arXiv
    2205.05198, appendix A.
    """
    require_known("recomputation", recompute, RECOMPUTATIONS)
    h, tokens = width, sequences * context
    maps = 24 * tokens * layers * h**2  # of one forward
    attention, logits = 4 * tokens * layers * context * h, 2 * tokens * h * vocabulary
    times = {"none": (3, 3), "selective": (3, 6), "full": (4, 4)}[recompute]
    return times[0] * maps + times[1] * attention + 3 * logits


@as_declared
def megatron_tensor_elements(
    width: float,
    context: float,
    sequences: float,
    tensor_parallel: int,
    recompute: str = "none",
    *,
    sequence_parallel: bool = False,
) -> float:
    """8bsh(t-1)/t: the elements that each of t ranks sends per layer and micro-batch, forward and backward.

    Four all-reduces of bsh; or, with sequence parallelism, four all-gathers and four reduce-scatters. Six, 12bsh, with
    full recomputation, whose second forward sends as much as the first; selective sends nothing again.

    Args:
        sequence_parallel: whether the two all-gathers are counted that backward then takes besides, as ranks keep a
            part each of what their linear maps read: 10bsh, or 14bsh. They can be hidden behind computing.

    Raises:
        ArgumentError: t is less than 1.
        UnknownNameError: there is no such recomputation.

    Source: Narayanan et al. 2021, arXiv 2104.04473, sections 3.2 and 4.1; with recomputation, Rajbhandari, Rasley,
    Ruwase, He 2020, arXiv 1910.02054, section 8; Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2.
    """
    require_least("tensor_parallel", tensor_parallel, 1)
    require_known("recomputation", recompute, RECOMPUTATIONS)
    halves = (12 if recompute == "full" else 8) + 2 * sequence_parallel  # of all-reduces
    return halves * sequences * context * width * (tensor_parallel - 1) / tensor_parallel


@as_declared
def megatron_pipeline_elements(
    width: float, context: float, sequences: float, tensor_parallel: int = 1, chunks: int = 1
) -> float:
    """v bsh/t: the elements that a rank sends to the next stages per micro-batch, forward; backward as many.

    Where ranks of a stage share its tensors, each sends a part, which those of the next stage gather over faster links;
    without this, t = 1, each sends all. A rank with v chunks sends v times as much (interleaved 1F1B).

    Raises:
        ArgumentError: t or v is less than 1.

    Source: Narayanan et al. 2021, arXiv 2104.04473, sections 2.2.2, 3.2 and 4.1.
    """
    require_least("tensor_parallel", tensor_parallel, 1)
    require_least("chunks", chunks, 1)
    return chunks * sequences * context * width / tensor_parallel


@as_declared
def megatron_training_s(parameters: float, tokens: float, flops_per_s: float) -> float:
    """8 T P / (n X): the time to train a GPT on T tokens, if it is so large that its other operations are negligible.

    That is 2 to 3% less than the paper's own table 2, whose days follow from equation 3: `megatron_flops` of T / s
    sequences, divided by flops_per_s.

    Args:
        parameters: P.
        tokens: T.
        flops_per_s: n X, of n devices together; the 8 operations include full recomputation. Without it there are 6:
            `training_flops(parameters, tokens) / flops_per_s`.

    Raises:
        ArgumentError: the devices do nothing.

    Source: Narayanan et al. 2021, arXiv 2104.04473, equation 4.
    """
    require_more("flops_per_s", flops_per_s, 0)
    return 8 * tokens * parameters / flops_per_s


@as_declared
def megatron_activation_bytes(
    context: float,
    width: float,
    heads: float,
    sequences: float,
    *,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    layers: int = 1,
    pipeline_parallel: int = 1,
    chunks: int = 1,
    ffn_width: float | None = None,
) -> float:
    """The bytes that L layers, or the first of p stages of 1F1B, keep on each of t ranks: 2 per item, 1 in masks.

        none                  sbh (34 + 5as/h)              selective recomputation leaves out 5as²b
        t                     sbh (10 + 24/t + 5as/(ht))    10sbh are not split
        t, sequence           sbh (34/t + 5as/(ht))
        selective             the same without 5as²b/t
        full                  2sbh
        L layers              times L; times L (1 + (p-1)/(pm)) where each rank has m > 1 chunks (interleaved 1F1B)
        an MLP of ffn_width   4sbf for 16sbh of 34sbh, and of 24sbh/t; by default f is 4h

    Raises:
        ArgumentError: a number of ranks, layers or chunks is less than 1.
        UnknownNameError: there is no such recomputation.

    Source: Korthikanti et al. 2022, arXiv 2205.05198, table 2, section 4.2.3; f: Megatron-LM, theoretical_memory_usage.
    """
    s, b, h, t, p = context, sequences, width, tensor_parallel, pipeline_parallel
    for name, number in (("tensor_parallel", t), ("pipeline_parallel", p), ("layers", layers), ("chunks", chunks)):
        require_least(name, number, 1)
    require_known("recomputation", recompute, RECOMPUTATIONS)
    kept = layers * (1 + (p - 1) / (p * chunks) if chunks > 1 else 1)
    if recompute == "full":
        return 2 * s * b * h * kept
    scores = 5 * heads * s**2 * b / t if recompute == "none" else 0
    inside = 16 if ffn_width is None else 4 * ffn_width / h
    return kept * (s * b * h * ((18 + inside) / t if sequence_parallel else 10 + (8 + inside) / t) + scores)


@as_declared
def megatron_outer_activation_bytes(
    context: float,
    width: float,
    sequences: float,
    vocabulary: float,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
) -> float:
    """sbh/t (p + 4 (1 + V/h) if p = 1): the bytes that the first of p stages keeps outside its layers.

    Masks of the embedding's dropout, a byte each, for the p micro-batches in flight; and without a pipeline also the
    inputs of the last norm and of the logits, 2sbh each, and the logits in float32, 4sbV.

    Raises:
        ArgumentError: t or p is less than 1.

    Source: Korthikanti et al. 2022, arXiv 2205.05198, section 4.3, with sequence parallelism.
    """
    require_least("tensor_parallel", tensor_parallel, 1)
    require_least("pipeline_parallel", pipeline_parallel, 1)
    ends = 4 * (1 + vocabulary / width) if pipeline_parallel == 1 else 0
    return context * sequences * width / tensor_parallel * (pipeline_parallel + ends)


@as_declared
def megatron_checkpoint_bytes(layers: float, checkpoints: float, input_bytes: float, layer_bytes: float) -> float:
    """c A_in + (l/c) A: what is kept of l layers with full recomputation from c checkpoints.

    All inputs of c runs of l/c layers; and, while backward is in a run, all that its layers keep. With one checkpoint
    a layer, A is that of one layer alone.

    Args:
        layers, checkpoints: l and c.
        input_bytes, layer_bytes: A_in, of a layer's input; A, of all that a layer keeps.

    Raises:
        ArgumentError: checkpoints is less than 1.

    Source: Narayanan et al. 2021, arXiv 2104.04473, section 3.5.
    """
    require_least("checkpoints", checkpoints, 1)
    return checkpoints * input_bytes + layers / checkpoints * layer_bytes


@as_declared
def megatron_checkpoints(layers: float, input_bytes: float, layer_bytes: float) -> float:
    """√(l A / A_in): the number of checkpoints with which the least is kept, 2 √(l A A_in).

    Args:
        layers, input_bytes, layer_bytes: as for `megatron_checkpoint_bytes`.

    Raises:
        ArgumentError: inputs have no bytes.

    Source: the same; that √l are enough, Chen, Xu, Zhang, Guestrin 2016, arXiv 1604.06174, section 4.1.
    """
    require_more("input_bytes", input_bytes, 0)
    return sqrt(layers * layer_bytes / input_bytes)
