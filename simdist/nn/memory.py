"""Memory: what a GPT keeps of a batch until backward, exactly, and as the paper counts it.

l  layers     h  width     a  heads     V  vocabulary     s  tokens of a sequence     b  sequences
f  features inside an MLP, 4h in the paper
t  ranks that share the layers     p  ranks that share the tokens
e  bytes of an activation          w  bytes of its working dtype: 4 where e is 2
n  pairs of tokens that attention scores, s² or fewer: `num_pairs(s)`
"""

from collections.abc import Iterable
from typing import NamedTuple

from simdist.nn.functional.dispatch import capacity
from simdist.nn.functional.heads import num_pairs
from simdist.nn.shape import Shape

__all__ = ["Cut", "Kept", "activation_bytes", "activations", "paper_activation_bytes", "peak_activation_bytes"]


class Kept(NamedTuple):
    """One array that a layer keeps, in this implementation and in the paper's.

    Attributes:
        layer: the layer whose context holds it, in each block if it begins with a dot.
        what: its contents.
        num_bytes: its size here.
        paper_bytes: its size in the paper, scaled from the paper's 2 bytes per activation to those here.
        why: the reason for the difference, if there is one.
        blocks: how many blocks hold one; 1 around the blocks.
    """

    layer: str
    what: str
    num_bytes: int
    paper_bytes: int
    why: str = ""
    blocks: int = 1


class Cut(NamedTuple):
    """How ranks share the activations of a model.

    Attributes:
        tensor: t, the number of ranks that share heads, hidden features and the vocabulary.
        sharded: whether they also share everything else, along the sequence.
        sequence: p, the number of ranks that share the tokens of each text.
        ring: whether these use ring attention; else each attends to whole texts with some of the heads.
    """

    tensor: int = 1
    sharded: bool = False
    sequence: int = 1
    ring: bool = False

    @property
    def inside(self) -> int:
        """The number of parts of activations between two layers that are cut over t."""
        return self.tensor * self.sequence

    @property
    def outside(self) -> int:
        """The number of parts of all other activations."""
        return self.inside if self.sharded else self.sequence


_WHOLE = Cut()
_NOTHING = "nothing is dropped"


def activations(shape: Shape, sequences: int, itemsize: int = 2, cut: Cut = _WHOLE) -> list[Kept]:
    """What forward keeps for backward, for a batch of full-length sequences: in a block of each kind, and around the
    blocks.

    An array that two layers keep is one entry. The targets, a byte per token, are left out, as they are in the ledger.

    Args:
        itemsize: of weights and activations, in bytes.
        cut: how ranks share the activations; entries are those of one rank.

    Source: the paper's bytes, Korthikanti et al. 2022, arXiv 2205.05198, sections 4.1 to 4.3; where texts are
    cut, for one rank's tokens.
    """
    b, e = sequences, itemsize
    blocks = [
        kept._replace(blocks=count)
        for kind, count in shape.kinds()
        for kept in _block(kind, b, e, shape.recompute, cut)
    ]
    return [*blocks, *_around(shape, b, e, cut)]


def _block(shape: Shape, b: int, e: int, recompute: str, cut: Cut) -> list[Kept]:
    """What one block keeps."""
    rows, wide = shape.context * b, max(e, 4)
    whole = e * rows * shape.width
    x, part = whole // cut.outside, whole // cut.inside
    if recompute == "full":
        paper = whole // cut.sequence
        return [Kept(".", "its input", x, paper, "" if x == paper else "a run of its tokens")]
    attended, queries = (part * width // shape.width for width in (shape.attention_width, shape.query_width))
    why_own = "heads have a width of their own"
    why_qkv = "heads share some" if queries == part else why_own
    qkv = queries + part * shape.key_value_width // shape.width
    mask, deviations = rows * shape.width // cut.outside, wide * rows // cut.outside
    scale = "one number a row, of the working dtype"
    return [
        Kept(".norm1", "normalized rows; the paper: its input", x, x),
        Kept(".norm1", "1 / deviation", deviations, 0, scale),
        Kept(".qkv", "its input", x, x),
        *(_latent(shape, e * rows, wide * rows, cut) if shape.kv_latent_width is not None else ()),
        *(_qk_norm(shape, queries, rows, wide, cut) if shape.qk_norm else ()),
        Kept(".attention", "queries, keys, values", qkv, 3 * part, "" if qkv == 3 * part else why_qkv),
        *_attention(shape, b, e, recompute, cut),
        Kept(".attended", "its input", attended, part, "" if attended == part else why_own),
        _mask(shape, ".dropout1", mask),
        Kept(".norm2", "normalized rows; the paper: its input", x, x),
        Kept(".norm2", "1 / deviation", deviations, 0, scale),
        *(_experts(shape, b, e, cut) if shape.experts else _perceptron(shape, x, part)),
        *(_shared(shape, part) if shape.shared_experts else ()),
        _mask(shape, ".dropout2", mask),
    ]


def _latent(shape: Shape, column: int, factors: int, cut: Cut) -> list[Kept]:
    """What latent attention keeps; column, factors: bytes of a number for each token, as stored and as worked with."""
    why, found = "the paper's models do not have this", []
    for layer, width in ((".q", shape.query_latent_width), (".kv", shape.kv_latent_width)):
        if width is not None:
            latent = column * width // cut.outside
            found += [
                Kept(f"{layer}.norm", "normalized latent vectors", latent, 0, why),
                Kept(f"{layer}.norm", "1 / root mean square", factors // cut.outside, 0, why),
                Kept(f"{layer}.up", "its input", latent, 0, why),
            ]
    return found


def _qk_norm(shape: Shape, queries: int, rows: int, wide: int, cut: Cut) -> list[Kept]:
    """What `QKNorm` keeps; `queries` are the bytes of all queries."""
    normalized, why = queries * (shape.heads + shape.num_kv_heads) // shape.heads, "the paper's models do not do this"
    factors = wide * rows * (shape.heads + shape.num_kv_heads) // cut.inside
    return [
        Kept(".qk_norm", "normalized queries and keys", normalized, 0, why),
        Kept(".qk_norm", "1 / root mean square", factors, 0, why),
    ]


def _perceptron(shape: Shape, x: int, part: int) -> list[Kept]:
    """What an MLP keeps; h features take `part` bytes."""
    why = "the paper's features are 4 times the width, without gates"
    inside = part * shape.ffn_features // shape.width
    return [Kept(".hidden", "its input", x, x), *_inside(shape, "", inside, 4 * part, why)]


def _shared(shape: Shape, part: int) -> list[Kept]:
    """What the experts that all tokens go to keep besides their input, which is that of the others."""
    inside = part * shape.shared_features // shape.width
    return _inside(shape, ".shared", inside, 0, "the paper's models do not have this")


def _inside(shape: Shape, name: str, inside: int, paper: int, why: str) -> list[Kept]:
    """What is kept of the features inside an MLP, which take `inside` bytes here and `paper` in the paper."""
    gate, slopes = ("swiglu", 2 * inside) if shape.is_llama else ("gelu", inside)
    return [
        Kept(f"{name}.hidden {gate}", "slope; the paper: its input", slopes, paper, "" if slopes == paper else why),
        Kept(f"{name}.thought", "its input", inside, paper, "" if inside == paper else why),
    ]


def _experts(shape: Shape, b: int, e: int, cut: Cut) -> list[Kept]:
    """What a mixture of experts keeps instead, which the paper does not cover.

    It assumes that all ranks that share the experts have equally many tokens, and that none are dropped.
    """
    rows, wide, k = shape.context * b // cut.outside, max(e, 4), shape.top_k
    group = shape.group or shape.context
    slots = rows // group * shape.experts * capacity(group, shape.experts, shape.capacity_factor, k)
    x, filled = e * rows * shape.width, e * slots * shape.width
    inside = e * slots * shape.ffn_features * cut.outside // cut.inside
    of_tokens = 4 * x * cut.outside // cut.inside
    why = "slots of all experts, full or empty, instead of tokens"
    return [
        Kept(".experts", "its input", x, x),
        Kept(".experts", "probabilities, and what is uneven", 2 * wide * rows * shape.experts, 0, "the router's"),
        Kept(".experts", "choices, and their weights", (8 + wide) * rows * k, 0, "the router's"),
        Kept(".experts", "who went where", 16 * rows * k, 0, "if nothing is dropped"),
        Kept(".experts.hidden", "its input", filled, 0, why),
        *_inside(shape, ".experts", inside, of_tokens, why),
        Kept(".experts", "what experts made of it", filled, 0, "its weight is to be learnt"),
    ]


def _attention(shape: Shape, b: int, e: int, recompute: str, cut: Cut) -> list[Kept]:
    """What attention keeps besides queries, keys, values, and the output as `.attended` takes it."""
    rows = shape.context * b
    if _by_tiles(shape, cut):
        why = "from it backward recomputes a tile's probabilities"
        found = [Kept(".attention", "log of each query's sum", max(e, 4) * rows * shape.heads // cut.inside, 0, why)]
    elif recompute == "selective":
        return []
    else:
        found = _scores(shape, b, e, cut)
    own = e * rows * shape.attention_width // cut.inside
    output = Kept(".attention", "its output", own, 0, "before it is exchanged")
    return [*found, *([output] if cut.sequence > 1 and not cut.ring else [])]


def _by_tiles(shape: Shape, cut: Cut) -> bool:
    """Whether attention keeps no scores in any case, and recomputes a tile of them at a time."""
    return shape.flash or cut.ring


def _scores(shape: Shape, b: int, e: int, cut: Cut) -> list[Kept]:
    """What selective recomputation recomputes: the arrays with an entry for each pair of tokens."""
    if _by_tiles(shape, cut):
        return []
    heads = b * shape.heads // cut.inside
    squares, pairs = heads * shape.context**2, heads * num_pairs(shape.context)
    again = "recomputed from the mask" if shape.dropout else _NOTHING
    return [
        Kept(".attention", "probabilities", e * pairs, e * squares, "" if pairs == squares else "no later keys"),
        _mask(shape, ".attention", squares),
        Kept(".attention", "probabilities after dropout", 0, e * squares, again),
    ]


def _mask(shape: Shape, layer: str, num_bytes: int) -> Kept:
    """What dropout keeps, a byte an item."""
    return Kept(layer, "mask", num_bytes if shape.dropout else 0, num_bytes, "" if shape.dropout else _NOTHING)


def _around(shape: Shape, b: int, e: int, cut: Cut) -> list[Kept]:
    """What is kept before and after the blocks."""
    s, h = shape.context, shape.width
    rows, wide = s * b, max(e, 4)
    x, mask = e * rows * h // cut.outside, rows * h // cut.outside
    probabilities = wide * rows * shape.vocabulary // cut.inside
    text = rows // cut.sequence if cut.sequence > 1 else b * (s + 1)
    return [
        Kept("embedding", "windows of text", text, 0, "a byte a token, and of whole texts the last target"),
        _mask(shape, "embedding.dropout", mask),
        Kept("norm", "normalized rows; the paper: its input", x, x),
        Kept("norm", "1 / deviation", wide * rows // cut.outside, 0, "one number a row, of the working dtype"),
        Kept("logits", "its input", x, x),
        Kept("loss", "probabilities", probabilities, probabilities),
    ]


def activation_bytes(shape: Shape, sequences: int, itemsize: int = 2, cut: Cut = _WHOLE) -> int:
    """The bytes kept at the end of forward, in all blocks and around them. Arguments as for `activations`."""
    return sum(kept.num_bytes * kept.blocks for kept in activations(shape, sequences, itemsize, cut))


def paper_activation_bytes(shape: Shape, sequences: int, itemsize: int = 2, cut: Cut = _WHOLE) -> tuple[int, int]:
    """The bytes that the paper's model keeps in a block, and around all blocks. Arguments as for `activations`.

    Of blocks of several kinds, which papers do not have, it is one of the last.
    """
    b, e = sequences, itemsize
    kinds = shape.kinds()
    block, around = _block(kinds[-1][0], b, e, shape.recompute, cut), _around(shape, b, e, cut)
    return sum(kept.paper_bytes for kept in block), sum(kept.paper_bytes for kept in around)


def peak_activation_bytes(shape: Shape, sequences: int, itemsize: int = 2, cut: Cut = _WHOLE) -> int:
    """The most bytes held at any moment of forward and backward. Arguments as for `activations`.

    Without recomputation the peak is at the end of forward. Recomputed arrays add to what is still kept when
    backward reaches the last block, or the last of those before it that are of another kind; the layers after it are
    free by then, and the loss:

        full          the inputs of the blocks up to this one, and all that it keeps without recomputation
        selective     the blocks up to this one's attention, and the scores; or the end of forward, if the rest of that
                      block and the layers after it hold more than the scores
    """
    b, e = sequences, itemsize
    peak = held = activation_bytes(shape, b, e, cut)
    if shape.recompute == "none" or not shape.layers:
        return peak
    held -= _total(kept for kept in _around(shape, b, e, cut) if kept.layer in ("norm", "logits", "loss"))
    for kind, count in reversed(shape.kinds()):
        block = _block(kind, b, e, shape.recompute, cut)
        peak = max(peak, held + _recomputed(kind, block, b, e, cut))
        held -= count * _total(block)
    return peak


def _recomputed(shape: Shape, block: list[Kept], b: int, e: int, cut: Cut) -> int:
    """The bytes that a block's backward adds to what was kept, at the most."""
    if shape.recompute == "full":
        return _total(_block(shape, b, e, "none", cut))
    # The input of `.attended` is attention's output.
    after = [kept.layer for kept in block].index(".dropout1")
    return _total(_scores(shape, b, e, cut)) - _total(block[after:])


def _total(kept: Iterable[Kept]) -> int:
    return sum(each.num_bytes for each in kept)
