"""Formulas: the parameters and operations of a GPT, exactly, and as papers count them.

l  layers      h  width      V  vocabulary      s  tokens of a sequence      B  sequences
f  features inside an MLP               q  width of a token's queries, h in most models
E  experts     S  slots of all experts  k  width of its keys, and of its values
a  width of attention's output, q in most models
"""

from simdist.errors import ArgumentError, as_declared, require_least
from simdist.nn.decoding import speculative_speedup
from simdist.nn.functional.dispatch import capacity
from simdist.nn.functional.flash import attention_accesses, num_flash_pairs
from simdist.nn.functional.heads import num_pairs
from simdist.nn.kaplan import KaplanBest, kaplan_best, kaplan_loss, kaplan_steps_loss
from simdist.nn.lora import lora_parameters, map_sizes
from simdist.nn.megatron import (
    megatron_activation_bytes,
    megatron_checkpoint_bytes,
    megatron_checkpoints,
    megatron_flops,
    megatron_outer_activation_bytes,
    megatron_parameters,
    megatron_pipeline_elements,
    megatron_tensor_elements,
    megatron_training_s,
)
from simdist.nn.revolve import revolve_forwards, revolve_layers
from simdist.nn.scaling import (
    DeepSeekBest,
    LossLaw,
    StepLaw,
    deepseek_best,
    repeated_tokens,
    step_law,
)
from simdist.nn.shape import Shape

__all__ = [
    "DeepSeekBest",
    "KaplanBest",
    "LossLaw",
    "StepLaw",
    "attention_accesses",
    "deepseek_best",
    "galore_state",
    "kaplan_best",
    "kaplan_loss",
    "kaplan_steps_loss",
    "kv_cache_bytes",
    "lora_parameters",
    "matmul_flops",
    "megatron_activation_bytes",
    "megatron_checkpoint_bytes",
    "megatron_checkpoints",
    "megatron_flops",
    "megatron_outer_activation_bytes",
    "megatron_parameters",
    "megatron_pipeline_elements",
    "megatron_tensor_elements",
    "megatron_training_s",
    "model_flops",
    "num_active_parameters",
    "num_parameters",
    "repeated_tokens",
    "revolve_forwards",
    "revolve_layers",
    "speculative_speedup",
    "step_law",
    "training_flops",
]


@as_declared
def num_parameters(shape: Shape, embeddings: bool = True) -> int:
    """The number of parameters of `gpt(shape)`; or, as scaling laws count them, of its blocks and last norm alone.

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
    shared experts hidden and thought once more, as many times as wide. Dense blocks have one MLP of their own f.

    Args:
        embeddings: whether tokens, places and logits count: of Qwen2.5 72B 72.7 billion, without them 70.2.

    Source: without them, Kaplan et al. 2020, arXiv 2001.08361, section 2.1.
    """
    h = shape.width
    inside = sum(count * _block_parameters(kind) for kind, count in shape.kinds()) + (h if shape.is_llama else 2 * h)
    tables = (1 if shape.tied else 2) * shape.vocabulary + (0 if shape.is_llama else shape.context)
    return inside + tables * h if embeddings else inside


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


@as_declared
def num_active_parameters(shape: Shape, embeddings: bool = True) -> int:
    """The number of parameters used by each token: of a block's experts, top_k. Mixtral 8x7B: 12.9 of 46.7 billion.

    Some leave out the table of tokens, of which a token uses one row: gpt-oss-120b has 5.7 billion here, and 5.1 in its
    card, which counts the Vh of the logits alone.

    Args:
        embeddings: as for `num_parameters`.
    """
    idle = sum(count * (kind.experts - kind.top_k) for kind, count in shape.kinds() if kind.experts)
    return num_parameters(shape, embeddings) - idle * _perceptron_parameters(shape, shape.ffn_features)


@as_declared
def galore_state(shape: Shape, rank: int) -> int:
    """Σ (m r + 2 r n) over the maps of all blocks, m ≤ n, and 2 for each other parameter: the items of Adam's state.

    A gradient of m x n is projected on r directions, so that both moments are r x n. Adam alone has 2 mn.

        galore_state(published("llama-7b"), 1024)       # 4.7 billion; Adam 13.5

    Raises:
        ArgumentError: rank is less than 1 or more than a map's m, or attention is latent.

    Source: Zhao et al. 2024, arXiv 2403.03507, table 1.
    """
    maps = [size for sizes in map_sizes(shape).values() for size in sizes]
    most = min((min(rows, columns) for n, rows, columns in maps if n), default=rank)
    if not 1 <= rank <= most:
        raise ArgumentError(f"rank is {rank}; needs from 1 to {most}, the smaller side of a map")
    projected = sum(n * rank * (min(size) + 2 * max(size)) for n, *size in maps)
    return projected + 2 * (num_parameters(shape) - sum(n * rows * columns for n, rows, columns in maps))


@as_declared
def kv_cache_bytes(
    shape: Shape,
    tokens: float = 1,
    item_bytes: float = 2,
    window: float | None = None,
    whole_every: int = 0,
    sharing: float = 1,
) -> float:
    """The bytes of the keys and values that a model keeps of these tokens, to continue a text: 2 k l items a token.

    Latent attention keeps c + r features a token and layer: the latent vector, and what of the keys is rotated.

    Args:
        window: how many tokens a query sees, and so a layer keeps, at most (sliding windows, or chunks); None for all.
        whole_every: n, if every n-th layer sees all tokens nevertheless: 2 in Gemma 2 and gpt-oss, 4 in Llama 4, 6 in
            Gemma 3; 0 for none, as in Mistral 7B.
        sharing: how many layers in a row use the same keys and values (cross-layer attention): 2 in Hunyuan-Large.

        kv_cache_bytes(published("deepseek-v3"))        # 70,272 bytes a token; llama3-405b 516,096
        kv_cache_bytes(published("mistral-7b"), 32_768, window=4096)        # an eighth of what all tokens need

    Raises:
        ArgumentError: sharing is less than 1.

    Source: Zhao et al. 2025, arXiv 2505.09343, table 1; windows, Jiang et al. 2023, arXiv 2310.06825, section 2;
    sharing, Brandon et al. 2024, arXiv 2405.12981.
    """
    require_least("sharing", sharing, 1)
    latent = shape.kv_latent_width
    features = shape.key_value_width if latent is None else latent + shape.rotary_features
    near = shape.layers - (shape.layers // whole_every if whole_every else 0)
    kept = shape.layers * tokens if window is None else near * min(tokens, window) + (shape.layers - near) * tokens
    return kept * features * item_bytes / sharing


def _perceptron_weights(shape: Shape, f: int) -> int:
    """The entries of the matrices of an MLP with f features inside."""
    return (3 if shape.is_llama else 2) * shape.width * f


def _perceptron_parameters(shape: Shape, f: int) -> int:
    """The same with biases."""
    return _perceptron_weights(shape, f) + (0 if shape.is_llama else f + shape.width)


@as_declared
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
    the router adds 2 B s h E; each shared expert has all B s tokens, as the MLP of a dense block has.
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


@as_declared
def model_flops(shape: Shape, sequences: float, causal: bool = False) -> float:
    """The operations that one forward and backward of a model need, however they are done: for MFU.

        6 T l (2 h (q + k) + 2 h f) + 12 T l q s + 6 T h V          T = B s tokens, all s² scores; 3 h f with a gate
        causal                        6 T l q s                     the half of the scores that the mask leaves

    With q = k = h and f = 4h this is `megatron_flops` without recomputation. Latent attention has its own weights in
    place of 2h (q + k), and 6 T l (q + a) s. Each token needs top_k experts, those that are shared and the router;
    work on empty slots does not count. Blocks of each kind count as they are.

    Args:
        causal: whether scores that the mask hides do not count. DeepSeek-V3 takes 250 GFLOP a token so, of sequences
            of 4096; 281 with all scores. NVIDIA's tables of 2025 (Megatron Bridge) are so, those of 2024 (NeMo) of all.
            For dense models the paper's table has less than it is here: 2448 for Llama 3 405B, here 2473; and 394 for a
            Qwen 72B, where the matrices of Qwen2.5 72B alone take 429.

    Source: Chowdhery et al. 2022, arXiv 2204.02311, appendix B, with matrices in place of 6 operations a parameter;
    causal, Zhao et al. 2025, arXiv 2505.09343, table 2.
    """
    h, tokens = shape.width, sequences * shape.context
    seen = shape.context / 2 if causal else shape.context
    return 6 * tokens * (sum(count * _used(kind, seen) for kind, count in shape.kinds()) + h * shape.vocabulary)


def _used(shape: Shape, seen: float) -> float:
    """The multiplications that a token needs in a block's forward, if it attends to `seen` tokens."""
    h = shape.width
    perceptron = _perceptron_weights(shape, shape.ffn_features)
    if shape.experts:
        perceptron = (shape.top_k + shape.shared_experts) * perceptron + h * shape.experts
    return _attention_weights(shape) + perceptron + (shape.query_width + shape.attention_width) * seen


def _perceptron_flops(shape: Shape, b: int) -> int:
    """The operations in one forward of a block's MLP, or of its experts and their router."""
    s, h, experts = shape.context, shape.width, shape.experts
    each = 2 * _perceptron_weights(shape, shape.ffn_features)
    if not experts:
        return b * s * each
    group = shape.group or s
    slots = b * s // group * experts * capacity(group, experts, shape.capacity_factor, shape.top_k)
    return (slots + b * s * shape.shared_experts) * each + 2 * b * s * h * experts


@as_declared
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
