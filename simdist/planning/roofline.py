"""Roofline: how much work it takes to hide the messages of each way to split a transformer.

    C  operations a device does in a second      f  features inside an MLP      i  bytes of an item
    W  bytes that reach it in a second           h  width of the model          p  ranks
    a  i/2 C/W: the operations for every two bytes that arrive, with 16-bit items C/W

    split                     each rank receives              while it does            hidden from
    data, sharded weights     w (p-1)/p weights               2 T w operations         T = a (p-1)/p tokens a rank
    an MLP's features         T h (p-1)/p numbers a map       2 T h f/p                f = a (p-1) features
    stages                    T h numbers                     2 T w                    w = a h weights a stage
    experts, nodes of n       T h (p-n)/p min(nk/p, 1)        2 T k h f/p              f = a (p-n)/k min(nk/p, 1)

These count the matrices of one forward pass, on a ring or on links to all others. Backward computes twice as much; it
sends twice as much for weights, which are gathered again, and their gradients, and no less for activations. With
experts T are the tokens of all ranks, and W is what reaches a node, where a token comes once for all of its k experts.
What can be hidden is hidden only while something else is computed. For ring attention see
`simdist.parallel.sequence.ring_attention_block`.

Source: Austin et al. 2025, "How to Scale Your Model", chapters on training and on GPUs; Tazi et al. 2025, "The
Ultra-Scale Playbook", appendix A3, which has i = 1.
"""

from math import inf, sqrt

from simdist.errors import as_declared, require_least, require_more

__all__ = [
    "data_parallel_tokens",
    "expert_parallel_width",
    "mixed_replicas",
    "mixed_tokens",
    "pipeline_weights",
    "tensor_parallel_ranks",
]


@as_declared
def data_parallel_tokens(
    flops_per_s: float, bytes_per_s: float, ranks: float = inf, *, sparsity: float = 1.0, itemsize: float = 2
) -> float:
    """i/2 C/W (p-1)/p E/k: the least tokens per rank with which data parallelism is limited by computation.

    An all-reduce of gradients during backward needs as many as the gathers and sums of sharded weights (ZeRO-3, FSDP).

        data_parallel_tokens(990e12, 8 * 50e9)          # 2475 on H100s; 1237 on two nodes, ranks=2

    Args:
        flops_per_s: C.
        bytes_per_s: W: of a device on one node; of its whole node, where the ranks of a node send for each other; of
            all the axes of a torus that the ranks lie along, both ways.
        ranks: p, or the number of nodes; many, if not given.
        sparsity: the weights for each one that a token uses, E/k where it goes to k of E experts.
        itemsize: i.

    Raises:
        ArgumentError: there is less than one rank or weight, or a number is not above 0.
    """
    require_least("ranks", ranks, 1)
    require_least("sparsity", sparsity, 1)
    return _intensity(flops_per_s, bytes_per_s, itemsize) * (1 - 1 / ranks) * sparsity


@as_declared
def tensor_parallel_ranks(ffn_width: float, flops_per_s: float, bytes_per_s: float, itemsize: float = 2) -> float:
    """2/i f W/C: the most ranks with which tensor parallelism is limited by computation, however many tokens there are.

    Exactly it is the most others, p - 1. Of Llama 3 70B, with f = 28,672, 13 on a node of H100s, and 11 on one axis of
    a torus of TPU v5p, of 180 GB/s both ways.

    Args:
        ffn_width: f.
        flops_per_s, bytes_per_s, itemsize: C, W and i, as of `data_parallel_tokens`.

    Raises:
        ArgumentError: a number is not above 0.
    """
    require_more("ffn_width", ffn_width, 0)
    return ffn_width / _intensity(flops_per_s, bytes_per_s, itemsize)


@as_declared
def expert_parallel_width(
    ranks: float,
    flops_per_s: float,
    bytes_per_s: float,
    top_k: float = 1,
    ranks_per_node: float = 8,
    itemsize: float = 2,
) -> float:
    """i/2 C/W (p-n)/k min(nk/p, 1): the least features inside an expert with which p ranks that share the experts are
    limited by computation, however many tokens there are.

    On many nodes of H100s it is nearly n C/W, 19,800, and that with ranks=inf. On few, where each has some of a token's
    experts, C/W (p-n)/k.

    Args:
        ranks: p, at least n.
        flops_per_s, itemsize: C and i, as of `data_parallel_tokens`.
        bytes_per_s: W, of a whole node to others.
        top_k, ranks_per_node: k and n.

    Raises:
        ArgumentError: a number is below these limits, or not above 0.
    """
    require_least("ranks_per_node", ranks_per_node, 1)
    require_least("ranks", ranks, ranks_per_node)
    require_least("top_k", top_k, 1)
    received = min(ranks_per_node * top_k * (1 - ranks_per_node / ranks), ranks - ranks_per_node)  # (p-n) min(nk/p, 1)
    return _intensity(flops_per_s, bytes_per_s, itemsize) * received / top_k


@as_declared
def pipeline_weights(width: float, flops_per_s: float, bytes_per_s: float, itemsize: float = 2) -> float:
    """i/2 C/W h: the least weights of a stage that computes for as long as the next micro-batch is on its way.

    Args:
        width: h.
        flops_per_s, bytes_per_s, itemsize: C, W and i, as of `data_parallel_tokens`.

    Raises:
        ArgumentError: a number is not above 0.
    """
    require_more("width", width, 0)
    return width * _intensity(flops_per_s, bytes_per_s, itemsize)


@as_declared
def mixed_tokens(
    ffn_width: float, flops_per_s: float, data_bytes_per_s: float, tensor_bytes_per_s: float, itemsize: float = 2
) -> float:
    """(i/2 C)² / (W₁ W₂ f): the least tokens per rank, if weights are sharded in both ways by `mixed_replicas`.

    With f = 32,768 on TPU v5p, two axes of the torus for weights and one for activations, 99; of weights alone on all
    three axes 850.

    Args:
        ffn_width, flops_per_s, itemsize: f, C and i, as of `tensor_parallel_ranks`.
        data_bytes_per_s: W₁, of the links that weights pass through.
        tensor_bytes_per_s: W₂, of those that activations pass through at the same time.

    Raises:
        ArgumentError: a number is not above 0.
    """
    most = tensor_parallel_ranks(ffn_width, flops_per_s, tensor_bytes_per_s, itemsize)
    return _intensity(flops_per_s, data_bytes_per_s, itemsize) / most


@as_declared
def mixed_replicas(
    tokens: float, ffn_width: float, ranks: float, data_bytes_per_s: float = 1.0, tensor_bytes_per_s: float = 1.0
) -> float:
    """√(B p W₁ / (f W₂)): of p ranks, how many split the batch and the weights; the others split the MLP's features.

    With these a layer's weights, fewer the more ranks split features, take as long as its activations, fewer the more
    split the batch.

    Args:
        tokens: B, of all ranks.
        ffn_width, ranks: f and p.
        data_bytes_per_s, tensor_bytes_per_s: W₁ and W₂, as of `mixed_tokens`; only their ratio counts.

    Raises:
        ArgumentError: there is less than one rank, or a number is not above 0.
    """
    require_least("ranks", ranks, 1)
    for name, value in (("tokens", tokens), ("ffn_width", ffn_width), ("data_bytes_per_s", data_bytes_per_s)):
        require_more(name, value, 0)
    require_more("tensor_bytes_per_s", tensor_bytes_per_s, 0)
    return sqrt(tokens * ranks * data_bytes_per_s / (ffn_width * tensor_bytes_per_s))


def _intensity(flops_per_s: float, bytes_per_s: float, itemsize: float) -> float:
    """The operations for every two bytes of an item."""
    for name, value in (("flops_per_s", flops_per_s), ("bytes_per_s", bytes_per_s), ("itemsize", itemsize)):
        require_more(name, value, 0)
    return itemsize / 2 * flops_per_s / bytes_per_s
