"""Formulas: how much smaller rounded numbers are, the noise that rounding adds, how few items are sent at first, how
sums of few items fill and what they send, and how few numbers make a gradient.
"""

from math import log2, pow, sqrt

from simdist.collectives import Formula
from simdist.errors import ArgumentError, as_declared, require_known, require_least

__all__ = [
    "blockwise_bits",
    "factor_elements",
    "qsgd_bits",
    "qsgd_nonzeros",
    "qsgd_variance",
    "quantization_ratio",
    "sparse_formula",
    "sparse_sum_nonzeros",
    "warmup_share",
]


@as_declared
def quantization_ratio(levels: int, bits: int = 32, warmup: float = 0.0) -> float:
    """bits / lg(levels): the size of an item divided by that of one of its levels, without scales.

    Signs have 2 levels (32 times smaller than 32 bits), TernGrad 3 (20.2 times), 8 bits 256 (4 times).

    Args:
        levels: how many values an item can be rounded to, at least 2.
        bits: of an item before.
        warmup: w, the share of a run's first steps that send items as they are. Over all steps the ratio r is then
            1 / (w + (1-w)/r): of 1-bit Adam in 16 bits 4.9, if 15% of the steps warm up.

    Raises:
        ArgumentError: levels is less than 2, bits less than 1, or warmup is not from 0 to 1.

    Source: Seide et al. 2014, Interspeech (signs); Wen et al. 2017, arXiv 1705.07878 (TernGrad); Tang et al. 2021,
    arXiv 2102.02888 (1-bit Adam).
    """
    require_least("levels", levels, 2)
    require_least("bits", bits, 1)
    if not 0 <= warmup <= 1:
        raise ArgumentError(f"warmup is {warmup}; needs from 0 to 1")
    return 1 / (warmup + (1 - warmup) * log2(levels) / bits)


@as_declared
def blockwise_bits(bits: float, *scales: tuple[float, float]) -> float:
    """bits + Σ s / b: the size of an item of a block whose items share a scale, that of the scale included.

        blockwise_bits(8, (2048, 32))                   # 8.02: a moment of 8-bit Adam
        blockwise_bits(4, (64, 8), (64 * 256, 32))      # 4.13: a weight in QLoRA, scales in blocks of 256 themselves
        blockwise_bits(4, (32, 8))                      # 4.25: MXFP4; NVFP4 has (16, 8), and so 4.5

    Args:
        bits: of an item.
        scales: pairs (b, s): b items share one of s bits.

    Raises:
        ArgumentError: a block has less than one item.

    Source: Dettmers et al. 2022, arXiv 2110.02861; Dettmers et al. 2023, QLoRA, arXiv 2305.14314, section 3 (double
    quantization); Open Compute Project 2023, Microscaling Formats (MX).
    """
    for pair in scales:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(f"scales has {pair!r:.60}; needs pairs of items and bits, such as (2048, 32)")
        require_least("block", pair[0], 1)
        require_least("scale", pair[1], 0)
    return bits + sum(scale / block for block, scale in scales)


@as_declared
def qsgd_variance(items: int, levels: int) -> float:
    """min(n/s², √n/s): the most variance that QSGD's rounding adds, in units of ‖v‖².

    An item of v is rounded at random, without bias, to one of the multiples of ‖v‖/s around it.

    Args:
        items: n, that share a norm: a bucket.
        levels: s, above zero; a sign comes on top.

    Raises:
        ArgumentError: items or levels is less than 1.

    Source: Alistarh et al. 2017, arXiv 1610.02132, section 3: with 4 bits and buckets of 512 it is at most 1.41.
    """
    _check(items, levels)
    return min(items / levels**2, sqrt(items) / levels)


@as_declared
def qsgd_nonzeros(items: int, levels: int) -> float:
    """min(n, s (s + √n)): the most items that QSGD's rounding leaves above or below zero, on average.

    At most s² are ‖v‖/s long or longer. A shorter one of length x is rounded away from zero with probability s x / ‖v‖,
    and the lengths of n items sum to √n ‖v‖ at most. With s = 1, a sign each for 1 + √n items are sent.

    Args, Raises: as of `qsgd_variance`.

    Source: Alistarh et al. 2017, arXiv 1610.02132, lemma 3.1.
    """
    _check(items, levels)
    return min(items, levels * (levels + sqrt(items)))


@as_declared
def qsgd_bits(items: int, levels: int) -> float:
    """(3 + 3/2 lg(2 (s² + n) / (s (s + √n)))) s (s + √n) + 32: the bits of QSGD's rounded items, at most, on average.

    Each item above or below zero is sent as its distance from the last one, a sign and a level, as integers in Elias's
    code, whose o(1) is left out; the norm takes 32 bits. Where s = √n, no distances are sent, and 2.8n + 32 are enough:
    11 times fewer than 32n, for a second moment at most twice as large.

    Args, Raises: as of `qsgd_variance`.

    Source: Alistarh et al. 2017, arXiv 1610.02132, theorem 3.2 and corollary 3.3.
    """
    _check(items, levels)
    if levels**2 == items:
        return 2.8 * items + 32
    sent = levels * (levels + sqrt(items))
    return (3 + 1.5 * log2(2 * (levels**2 + items) / sent)) * sent + 32


@as_declared
def warmup_share(epoch: int, epochs: int = 4, share: float = 0.001) -> float:
    """share^((e+1)/(E+1)): the share of the items that is sent in epoch e, from 0, if the first E warm up; then share.

    So 25, 6.3, 1.6 and 0.4% are sent before 0.1%: gradients change fast at first, and each epoch leaves out as large a
    part of what the one before sent.

    Args:
        epoch, epochs: e and E.
        share: above 0 and at most 1, as of `TopK`.

    Raises:
        ArgumentError: an epoch is below 0, or share not above 0 and at most 1.

    Source: Lin, Han, Mao, Wang, Dally 2018, arXiv 1712.01887 (Deep Gradient Compression), section 3.3.
    """
    if min(epoch, epochs) < 0 or not 0 < share <= 1:
        told = f"epoch {epoch}, {epochs} to warm up, and share {share}"
        raise ArgumentError(f"{told}; needs at least 0, at least 0, and more than 0 and at most 1")
    return pow(share, min(epoch + 1, epochs + 1) / (epochs + 1))


@as_declared
def sparse_sum_nonzeros(items: int, kept: float, ranks: int) -> float:
    """n (1 - (1 - k/n)^p): the items of a sum in which any rank has a part, on average, if each has k at random.

    Nearly p k at first, and ever further below it, as more ranks have the same items. Of 0.1% each it is 6.2% on 64
    ranks, and half of all items on 693: with an index as long as its value, these take as many bytes as the array.

    Args:
        items, kept: n and k, of each rank.
        ranks: p.

    Raises:
        ArgumentError: items or ranks is less than 1, or kept is not from 0 to items.

    Source: Renggli, Ashkboos, Aghagolzadeh, Alistarh, Hoefler 2019, SC19, arXiv 1802.08021 (SparCML).
    """
    if min(items, ranks) < 1 or not 0 <= kept <= items:
        told = f"{kept} of {items} items on {ranks} ranks"
        raise ArgumentError(f"{told}; needs at least 1 item and 1 rank, and from 0 items to all")
    return items * (1 - (1 - kept / items) ** ranks)


@as_declared
def sparse_formula(algorithm: str, items: int, kept: float, ranks: int, itemsize: float = 4) -> Formula:
    """The published time of a sum of which each rank sends k of n items, as pairs of a value and its index.

        all-gather           lg p α         + 2k (p-1) β            every rank adds up p lists, as `TopK` does
        recursive-doubling   lg p α         + (s₁ + s₂ + s₄ + …) β  sums of 1, 2, 4, … ranks are exchanged
        split                (p + 2 lg p)α  + (2k + s) (p-1)/p β    each adds up a p-th of the items; all are gathered
        gtop-k               2 lg p α       + 4k lg p β             along a tree, only the k largest of a sum go on
        ok-topk              (2p + 2 lg p)α + 6k (p-1)/p β at most  split evenly; the k largest sums are gathered

    Here s_i is twice the `sparse_sum_nonzeros` of i ranks, those of places drawn at random, or n if that is less, and s
    is that of all p. In any case recursive doubling, for p a power of two, has from 2k lg p elements, where all have
    the same items, to 2k (p-1); split from 4k (p-1)/p to (2k + n)(p-1)/p; no algorithm less than 2k (p-1)/p.

        sparse_formula("ok-topk", 133_000_000, 1_330_000, 256).bytes        # a per cent of BERT: 3% of all its bytes

    Args:
        algorithm: one of these.
        items, kept, ranks: n, k and p.
        itemsize: the bytes of a value, and of an index.

    Raises:
        UnknownNameError: there is no such algorithm.
        ArgumentError: as of `sparse_sum_nonzeros`.

    Source: Li, Hoefler 2022, PPoPP, arXiv 2201.07598, table 1; recursive doubling and split, Renggli et al. 2019, arXiv
    1802.08021 (SparCML); gtop-k, Shi et al. 2019, arXiv 1901.04359.
    """
    gathered = min(2 * sparse_sum_nonzeros(items, kept, ranks), items)
    sums = [min(2 * sparse_sum_nonzeros(items, kept, 1 << i), items) for i in range((ranks - 1).bit_length())]
    steps, share = log2(ranks), (ranks - 1) / ranks
    found = {
        "all-gather": (steps, 2 * kept * (ranks - 1)),
        "recursive-doubling": (steps, sum(sums)),
        "split": (ranks + 2 * steps, (2 * kept + gathered) * share),
        "gtop-k": (2 * steps, 4 * kept * steps),
        "ok-topk": (2 * ranks + 2 * steps, 6 * kept * share),
    }
    require_known("algorithm", algorithm, found)
    latencies, elements = found[algorithm]
    return Formula(latencies, elements * itemsize)


@as_declared
def factor_elements(samples: float, in_features: float, out_features: float, ranks: int) -> float:
    """K (h + f) (p-1): what a rank sends, and receives, if all send their samples' factors of a gradient.

    The gradient of y = x @ w is xᵀ dy: K rows of h and f numbers instead of hf, exactly. To gather those of all ranks
    takes less than to add up gradients, 2hf (p-1)/p, if p K (h + f) < 2hf: for wide layers, few samples and few ranks.

    Args:
        samples: K, the rows of x on a rank.
        in_features, out_features: h and f.
        ranks: p.

    Raises:
        ArgumentError: ranks is less than 1.

    Source: Xie et al. 2015, arXiv 1511.08486 (sufficient factor broadcasting); Zhang et al. 2017, arXiv 1706.03292
    (Poseidon), which counts both ways: 3.7 million for 32 samples, 4096 features each and 8 ranks, and 58.7 by servers.
    """
    require_least("ranks", ranks, 1)
    return samples * (in_features + out_features) * (ranks - 1)


def _check(items: int, levels: int) -> None:
    """Raise ArgumentError if there are no items or levels."""
    if items < 1 or levels < 1:
        raise ArgumentError(f"{items} items in {levels} levels; needs at least 1 of each")
