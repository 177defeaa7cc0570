"""Formulas: the parameters and operations of a GPT, exactly, and as papers count them.

l  layers      h  width      V  vocabulary      s  tokens of a sequence      B  sequences
f  features inside an MLP               q  width of a token's queries, h in most models
E  experts     S  slots of all experts  k  width of its keys, and of its values
a  width of attention's output, q in most models
"""

from simdist.errors import ArgumentError, require_least, unknown_name
from simdist.nn.functional.dispatch import capacity
from simdist.nn.functional.flash import num_flash_pairs
from simdist.nn.functional.heads import num_pairs
from simdist.nn.shape import RECOMPUTATIONS, Shape

__all__ = [
    "matmul_flops",
    "megatron_activation_bytes",
    "megatron_flops",
    "megatron_parameters",
    "megatron_tensor_elements",
    "megatron_training_s",
    "model_flops",
    "num_active_parameters",
    "num_parameters",
    "training_flops",
]


def num_parameters(shape: Shape) -> int:
    """The number of parameters of `gpt(shape)`.

    a block        qkv (h + 1)(q + 2k), attended qh + h, hidden hf + f, thought fh + h, two norms 4h
    around them    tokens Vh, places sh, last norm 2h, and Vh again for logits that are not tied

    a Llama block  qkv h(q + 2k),       attended qh,     hidden 2hf,    thought fh,     two norms 2h
    around them    tokens Vh,            last norm h,  and Vh again
    with biases    qkv (h + 1)(q + 2k)
    qk_norm        two gains of a head's width
    latent         instead of qkv  h(c + r) + c(1 + 2a) for keys and values, and hq, or (h + q)c' + c' for queries, with
                   latent vectors of c and c' features, r that are rotated, and a those of attention's output

    Models with GPT-2's blocks but rotary positions or ALiBi, such as GPT-NeoX, have no table of places: sh fewer.

    By default q and k are h, and f is 4h. With experts a block has hidden and thought E times, and a router hE; with
    shared experts hidden and thought once more, so many times as wide. Dense first blocks have one MLP of their own f.
    """
    h = shape.width
    blocks = sum(count * _block_parameters(kind) for kind, count in shape.kinds())
    tables = (1 if shape.tied else 2) * shape.vocabulary
    if shape.is_llama:
        return blocks + tables * h + h
    return blocks + (tables + shape.context) * h + 2 * h


def _block_parameters(shape: Shape) -> int:
    """The parameters of a block."""
    h, qkv = shape.width, shape.query_width + shape.key_value_width
    gains = 2 * shape.head_features if shape.qk_norm else 0
    gains += (shape.query_latent_width or 0) + (shape.kv_latent_width or 0)
    maps, perceptron = _attention_weights(shape) + gains, _perceptron_parameters(shape, shape.ffn_features)
    if shape.experts:
        shared = _perceptron_parameters(shape, shape.shared_features) if shape.shared_features else 0
        perceptron = shape.experts * (perceptron + h) + shared
    if shape.is_llama:
        return maps + (qkv if shape.qkv_bias else 0) + perceptron + 2 * h
    return maps + 5 * h + qkv + perceptron


def _attention_weights(shape: Shape) -> int:
    """The entries of the matrices before and after attention."""
    h, q, latent = shape.width, shape.query_width, shape.kv_latent_width
    after = shape.attention_width * h
    if latent is None:
        return h * (q + shape.key_value_width) + after
    first = shape.query_latent_width
    queries = h * q if first is None else (h + q) * first
    return queries + (h + 2 * shape.attention_width) * latent + h * shape.rotary_features + after


def num_active_parameters(shape: Shape) -> int:
    """The number of parameters used by each token: of a block's experts top_k. Mixtral 8x7B: 12.9 of 46.7 billion."""
    idle = (shape.layers - shape.dense_layers) * (shape.experts - shape.top_k) if shape.experts else 0
    return num_parameters(shape) - idle * _perceptron_parameters(shape, shape.ffn_features)


def _perceptron_parameters(shape: Shape, f: int) -> int:
    """The parameters of an MLP with f features inside."""
    h = shape.width
    return 3 * h * f if shape.is_llama else 2 * h * f + f + h


def matmul_flops(shape: Shape, sequences: int) -> int:
    """The operations in the matrix products of one forward and backward of full-length sequences.

    forward     a block 4 B s h (q + k) + 4 B s h f + 4 B n q (linear maps, attention), the logits 2 B s h V
    backward    twice that, once for the inputs and once for the weights or the other factor
    again       recomputation: 4 B n q a block when selective, all of its forward when full
    flash       2 B n q in each backward, for scores that were not kept; selective adds nothing
    latent      2 B s for each weight of attention's maps, and 2 B n (q + a) of attention, whose output has a features

    n is `num_pairs(s)`: s² up to 64 tokens; for longer contexts most pairs that the mask hides are left out, and with
    flash, `num_flash_pairs(s)`, all but half of the diagonal's tiles. The 4 B s h f of an MLP, 16 B s h² in most
    models, are 6 B s h f with a gate. With experts, their S slots, full or empty, replace the B s tokens there, and
    the router adds 2 B s h E; each shared expert has all B s tokens, as the MLP of a dense first block has.
    """
    blocks = sum(count * _block_flops(kind, sequences) for kind, count in shape.kinds())
    return blocks + 6 * sequences * shape.context * shape.width * shape.vocabulary


def _block_flops(shape: Shape, b: int) -> int:
    """The operations in the matrix products of a block."""
    s, q = shape.context, shape.query_width
    pairs = b * (num_flash_pairs(s) if shape.flash else num_pairs(s))
    attention = 2 * pairs * (q + shape.attention_width)
    block = 2 * b * s * _attention_weights(shape) + _perceptron_flops(shape, b) + attention
    again = {"none": 0, "selective": 0 if shape.flash else attention, "full": block}[shape.recompute]
    scores = 2 * pairs * q if shape.flash else 0
    return 3 * block + again + scores


def model_flops(shape: Shape, sequences: float) -> float:
    """The operations that one forward and backward of a model need, however they are done: for MFU.

        6 T l (2 h (q + k) + 2 h f) + 12 T l q s + 6 T h V          T = B s tokens, all s² scores; 3 h f with a gate

    With q = k = h and f = 4h this is `megatron_flops` without recomputation. Latent attention has its own weights in
    place of 2h (q + k), and 6 T l (q + a) s. Each token needs top_k experts, those that are shared and the router;
    work on empty slots does not count. Blocks of each kind count as they are.

    Source: Chowdhery et al. 2022, arXiv 2204.02311, appendix B, with matrices in place of 6 operations a parameter.
    """
    h, tokens = shape.width, sequences * shape.context
    return 6 * tokens * (sum(count * _used(kind) for kind, count in shape.kinds()) + h * shape.vocabulary)


def _used(shape: Shape) -> int:
    """The multiplications that a token needs in a block's forward."""
    h = shape.width
    perceptron = (3 if shape.is_llama else 2) * h * shape.ffn_features
    if shape.experts:
        perceptron = (shape.top_k + shape.shared_experts) * perceptron + h * shape.experts
    return _attention_weights(shape) + perceptron + (shape.query_width + shape.attention_width) * shape.context


def _perceptron_flops(shape: Shape, b: int) -> int:
    """The operations in one forward of a block's MLP, or of its experts and their router."""
    s, h, experts = shape.context, shape.width, shape.experts
    each = (6 if shape.is_llama else 4) * h * shape.ffn_features
    if not experts:
        return b * s * each
    group = shape.group or s
    slots = b * s // group * experts * capacity(group, experts, shape.capacity_factor, shape.top_k)
    return (slots + b * s * shape.shared_experts) * each + 2 * b * s * h * experts


def megatron_parameters(layers: float, width: float, vocabulary: float, context: float) -> float:
    """P = 12 l h² (1 + 13 / (12 h) + (V + s) / (12 l h)): tied logits, and no norm after the last block.

    Source: Narayanan et al. 2021, arXiv 2104.04473, equation 2.
    """
    h = width
    return layers * (12 * h**2 + 13 * h) + (vocabulary + context) * h


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
    if recompute not in RECOMPUTATIONS:
        raise unknown_name("recomputation", recompute, RECOMPUTATIONS)
    h, tokens = width, sequences * context
    maps = 24 * tokens * layers * h**2  # of one forward
    attention, logits = 4 * tokens * layers * context * h, 2 * tokens * h * vocabulary
    times = {"none": (3, 3), "selective": (3, 6), "full": (4, 4)}[recompute]
    return times[0] * maps + times[1] * attention + 3 * logits


def megatron_tensor_elements(width: float, context: float, sequences: float, tensor_parallel: int) -> float:
    """8bsh(t-1)/t: the elements that each of t ranks sends per layer and micro-batch, forward and backward.

    Four all-reduces of bsh; or, with sequence parallelism, four all-gathers and four reduce-scatters. To the next
    stage of a pipeline, bsh are sent, or bsh/t if each sends a part, which the next stage gathers.

    Raises:
        ArgumentError: t is less than 1.

    Source: Narayanan et al. 2021, arXiv 2104.04473, sections 3.2 and 4.1.
    """
    require_least("tensor_parallel", tensor_parallel, 1)
    return 8 * sequences * context * width * (tensor_parallel - 1) / tensor_parallel


def megatron_training_s(parameters: float, tokens: float, flops_per_s: float) -> float:
    """8 T P / (n X): the time to train a GPT on T tokens, if it is so large that its other operations are negligible.

    That is 2 to 3% less than the paper's own table 2, whose days follow from equation 3: `megatron_flops` of T / s
    sequences, divided by flops_per_s.

    Args:
        parameters: P.
        tokens: T.
        flops_per_s: n X, of n devices together; the 8 operations include full recomputation.

    Raises:
        ArgumentError: the devices do nothing.

    Source: Narayanan et al. 2021, arXiv 2104.04473, equation 4.
    """
    if not flops_per_s > 0:
        raise ArgumentError(f"flops_per_s is {flops_per_s}; needs more than 0")
    return 8 * tokens * parameters / flops_per_s


def training_flops(parameters: float, tokens: float, layers: float = 0, width: float = 0, context: float = 0) -> float:
    """T (6 N + 12 l h s): the operations of training on T tokens; with N alone, the 6 N T of scaling laws.

    For the tokens of one second, divided by the devices' peak rate, this is MFU.

    Args:
        parameters: N, those that each token uses: not all of a mixture's experts.
        tokens: T.
        layers, width, context: of the attention: l; h, of all heads together (not the model's width); s.

    Source: Chowdhery et al. 2022, arXiv 2204.02311, appendix B; 6 N T, Hoffmann et al. 2022, arXiv 2203.15556,
    appendix F.
    """
    return tokens * (6 * parameters + 12 * layers * width * context)


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
) -> float:
    """The bytes that L layers, or the first of p stages of 1F1B, keep on each of t ranks: 2 per item, 1 in masks.

        none                  sbh (34 + 5as/h)              selective recomputation leaves out 5as²b
        t                     sbh (10 + 24/t + 5as/(ht))    10sbh are not split
        t, sequence           sbh (34/t + 5as/(ht))
        selective             the same without 5as²b/t
        full                  2sbh
        L layers              times L; times L (1 + (p-1)/(pm)) where each rank has m > 1 chunks (interleaved 1F1B)

    Raises:
        ArgumentError: a number of ranks, layers or chunks is less than 1.
        UnknownNameError: there is no such recomputation.

    Source: Korthikanti et al. 2022, arXiv 2205.05198, table 2 and section 4.2.3.
    """
    if min(tensor_parallel, layers, pipeline_parallel, chunks) < 1:
        told = f"tensor_parallel is {tensor_parallel}, pipeline_parallel {pipeline_parallel}, layers {layers}"
        raise ArgumentError(f"{told}, chunks {chunks}; needs at least 1 of each")
    if recompute not in RECOMPUTATIONS:
        raise unknown_name("recomputation", recompute, RECOMPUTATIONS)
    s, b, h, t, p = context, sequences, width, tensor_parallel, pipeline_parallel
    kept = layers * (1 + (p - 1) / (p * chunks) if chunks > 1 else 1)
    if recompute == "full":
        return 2 * s * b * h * kept
    scores = 5 * heads * s**2 * b / t if recompute == "none" else 0
    return kept * (s * b * h * (34 / t if sequence_parallel else 10 + 24 / t) + scores)
