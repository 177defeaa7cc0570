"""Parts: the pieces of a GPT for the ranks of a mesh."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from simdist.arrays import Array, partition
from simdist.comm import Mesh
from simdist.errors import require_known
from simdist.nn import Layer, Loss, Parameter, Parts, Shape
from simdist.nn.layers import Dropout, Gelu, LatentHeads, QKNorm, Rotary, Sequence, SwiGLU
from simdist.nn.parts import attention_layer, mixture
from simdist.parallel.even import check_even
from simdist.parallel.expert import AllToAllExchange, check_experts
from simdist.parallel.sequence import Even, RingAttention, Split, UlyssesAttention, Zigzag
from simdist.parallel.spread import Spread
from simdist.parallel.tensor import (
    ColumnParallelExperts,
    ColumnParallelLinear,
    Entrance,
    Overlapped,
    Region,
    Replicated,
    RowParallelExperts,
    RowParallelLinear,
    Sharded,
    VocabularyParallelCrossEntropy,
    VocabularyParallelEmbedding,
    VocabularyParallelTiedLinear,
)

__all__ = ["ATTENTIONS", "MeshParts", "check_cut"]

_SPLITS: dict[str, type[Split]] = {"ring": Zigzag, "even-ring": Even, "ulysses": Even}
ATTENTIONS = tuple(_SPLITS)
"""The attention over texts that are cut along sp: see `simdist.parallel.sequence`."""

# The axes over which a gradient may have to be summed: of parameters that all ranks have, and of experts; then the same
# for parameters of which the ranks on tp compute different parts of the gradient.
_SUMS = (("ep", "sp"), ("sp",), ("ep", "sp", "tp"), ("sp", "tp"))


def check_cut(
    shape: Shape, sizes: Mapping[str, int], *, sequence_parallel: bool = False, attention: str = "ring"
) -> None:
    """Raise ArgumentError, which lists the possible sizes, if axes of these sizes cannot share a GPT.

    Args:
        sizes: by axis; 1 where not given.
        sequence_parallel, attention: as of `MeshParts`.
    """
    tp, sp, ep = (sizes.get(axis, 1) for axis in ("tp", "sp", "ep"))
    check_even("heads", shape.heads, "tp", tp)
    if shape.num_kv_heads < shape.heads:
        check_even("heads of keys and values", shape.num_kv_heads, "tp", tp)
    for kind, _ in shape.kinds():
        check_even("features inside a perceptron", kind.ffn_features, "tp", tp)
    padded = -(-shape.vocabulary // (128 * tp)) * 128 * tp
    remedy = f"Megatron-LM would pad the vocabulary to {padded}, a multiple of 128 tp"
    check_even("entries of the vocabulary", shape.vocabulary, "tp", tp, remedy=remedy)
    if attention == "ulysses":
        what = "heads" if shape.num_kv_heads == shape.heads else "heads of keys and values"
        check_even(f"{what} a rank of tp" if tp > 1 else what, shape.num_kv_heads // tp, "sp", sp)
    if sp > 1:
        check_even("tokens", shape.context, "sp", sp, _SPLITS[attention].runs)
    tokens = shape.context // sp
    if sequence_parallel:
        check_even("tokens a rank of sp" if sp > 1 else "tokens", tokens, "tp", tp)
        tokens //= tp
    check_experts(shape, ep, shape.context // tokens * (_SPLITS[attention].runs if sp > 1 else 1))


class MeshParts(Parts):
    """A GPT cut over the axes of a mesh.

        parts = MeshParts(mesh)
        model = gpt(shape, parts)
        method = DataParallel(model, mesh.dp, recipe, seed, spread=parts.spread())       # or ZeRO

        tp    heads, hidden features, also of experts, and the vocabulary: see `simdist.parallel.tensor`
        sp    the tokens of each text: `simdist.parallel.sequence`
        ep    experts; for all other layers it is a second data axis: `simdist.parallel.expert`
        dp    windows: this is up to the method

    Args:
        mesh: of all ranks that train together.
        sequence_parallel: whether activations between the layers that are split over tp are sharded along the
            sequence.
        tp_overlap: whether they then enter and leave those layers in runs, while products of other runs are computed:
            see `Overlapped`.
        attention: the attention over texts that are split along sp, one of `ATTENTIONS`.
        algorithm: of the collectives on tp: "ring", or "auto".
        all_to_all: the algorithm of the exchanges on ep and, of Ulysses, on sp.
        overlap_degree: of the exchanges on ep: see `AllToAllExchange`.

    Attributes:
        data: the ranks with different windows of each batch, along dp and ep: one from each group that shares windows.

    Cost per rank and block, of b sequences of s tokens and a width of h, in items, with t the size of tp:

        forward     2 all-reduces, each 2bsh(t-1)/t         sharded: 2 all-gathers, 2 reduce-scatters, each bsh(t-1)/t
        backward    2 all-reduces                           sharded: 2 reduce-scatters, 2 all-gathers, and 2
                                                            more all-gathers, of inputs kept only as shards
        both        8bsh(t-1)/t                             sharded: 10bsh(t-1)/t

    Full recomputation adds one more forward: 4bsh(t-1)/t. Outside the blocks, the embedding takes an all-reduce
    forward, the logits one backward, and the loss three numbers a token. In a mixture of experts, the slots on this
    rank, full or empty, pass through the region instead of an MLP's bs tokens; that is half of the above. In latent
    attention the latent vectors and the features that RoPE rotates enter the region in place of h features.

    Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3; Narayanan et al. 2021, arXiv 2104.04473, section 3.2;
    Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2 (which says that the extra gathers of backward are
    overlapped with computation).
    """

    def __init__(
        self,
        mesh: Mesh,
        *,
        sequence_parallel: bool = False,
        tp_overlap: bool = False,
        attention: str = "ring",
        algorithm: str = "auto",
        all_to_all: str = "auto",
        overlap_degree: int = 1,
    ) -> None:
        require_known("attention", attention, _SPLITS)
        self.mesh = mesh
        self.attention_kind = attention
        self.algorithm = algorithm
        self.all_to_all = all_to_all
        self.exchange = AllToAllExchange(mesh.ep, all_to_all, overlap_degree)
        self.data = mesh.group("dp", "ep")
        self.split = _SPLITS[attention](mesh.sp) if mesh.sp.size > 1 else None
        self.sequence_parallel = sequence_parallel and mesh.tp.size > 1
        kind: type[Region] = (Overlapped if tp_overlap else Sharded) if self.sequence_parallel else Replicated
        self.region = kind(mesh.tp, algorithm)
        self._names: set[str] = set()  # of all parameters
        self._cut: dict[str, set[str]] = {"ep": set(), "sp": set(), "tp": set()}  # along each axis
        self._partly: set[str] = set()  # whose gradients are the sum over tp of what each rank computes

    def check(self, shape: Shape) -> None:
        """See Parts."""
        check_cut(shape, self.mesh.sizes, sequence_parallel=self.sequence_parallel, attention=self.attention_kind)

    def padded(self, tokens: Array, shape: Shape) -> Array:
        """Padded to the whole context where ranks share it, so that each gets the same tokens as in training.

        No token sees the padding after it, but padding counts when experts drop second choices.
        """
        n, count = tokens.shape
        if count >= shape.context or not (self.split or self.sequence_parallel):
            return tokens
        padded = np.zeros_like(tokens, shape=(n, shape.context))
        padded[:, :count] = tokens
        return padded

    def tokens(self, count: int) -> Array:
        """The positions in their text of this rank's `count` tokens between the layers."""
        inside = count * self.mesh.tp.size if self.sequence_parallel else count
        numbers = self.split.own(inside * self.mesh.sp.size) if self.split else np.arange(inside)
        return numbers[self.region.tokens(count)]

    # -- the pieces -------------------------------------------------------------------------------------

    def embedding(self, name: str, vocabulary: int, places: int, width: int, std: float) -> Layer:
        """See Parts."""
        layer = VocabularyParallelEmbedding(name, vocabulary, places, width, std, self.region, self.split)
        return self.on_stream(layer)

    def dropout(self, name: str, share: float) -> Layer:
        """See Parts."""
        return Dropout(name, share, self.tokens)

    def column(
        self, name: str, in_features: int, out_features: int | tuple[int, int], std: float, bias: bool = True
    ) -> Layer:
        """See Parts."""
        return self._inside(ColumnParallelLinear(name, in_features, out_features, self.region, std=std, bias=bias))

    def row(self, name: str, in_features: int, out_features: int, std: float, bias: bool = True) -> Layer:
        """See Parts."""
        return self._inside(RowParallelLinear(name, in_features, out_features, self.region, std=std, bias=bias))

    def of_all_heads(self, name: str, width: int, features: int, std: float) -> Layer:
        """See Parts. All ranks on tp compute it, of their own tokens."""
        return Sequence([self.latent(name, width, features, std), Entrance(self.region)])

    def latent_heads(self, shape: Shape) -> Layer:
        """See Parts. A rank has some of the heads."""
        return LatentHeads(shape.heads // self.mesh.tp.size, shape.value_features, shape.rotary_features)

    def qk_norm(self, name: str, shape: Shape) -> Layer:
        """See Parts. All heads share the gains, of which each rank on tp finds the derivatives by its heads."""
        t = self.mesh.tp.size
        layer = QKNorm(name, shape.heads // t, shape.num_kv_heads // t, shape.head_features)
        self._partly.update(p.name for p in layer.parameters)
        return self._inside(layer)

    def rotary(self, shape: Shape) -> Layer:
        """See Parts. A rank has all tokens of the region and some of its heads."""
        split = self.split
        tokens = np.arange if split is None else lambda count: split.own(count * split.comm.size)
        t = self.mesh.tp.size
        groups, width, rotated = shape.num_kv_heads // t, shape.value_features, shape.rotary_features
        return Rotary(shape.heads // t, tokens, groups, shape.rope_base, width, rotated)

    def attention(self, name: str, shape: Shape) -> Layer:
        """See Parts."""
        t = self.mesh.tp.size
        own, groups = partition(shape.heads, t)[self.mesh.tp.rank], shape.num_kv_heads // t
        count, first, dropout, w = own.stop - own.start, own.start, shape.dropout, shape.value_features
        if (
            self.split is not None and self.attention_kind != "ulysses"
        ):  # keeps no probabilities: needs no recomputation
            return RingAttention(name, count, self.split, dropout, first, groups, value_width=w)
        again = shape.recompute == "selective"
        how: dict[str, Any] = {"groups": groups, "recompute": again, "flash": shape.flash, "value_width": w}
        if self.split is None:
            return attention_layer(name, count, dropout, first, **how)
        return UlyssesAttention(name, count, self.split, dropout, first, algorithm=self.all_to_all, **how)

    def experts(self, name: str, shape: Shape, std: float, residual_std: float) -> Layer:
        """See Parts. Routers are outside of the region; slots enter it at their experts."""
        exchange, perceptrons = self.exchange, None
        if self.mesh.tp.size > 1:
            h, own = shape.width, exchange.own(shape.experts)
            inside, count, gated = shape.ffn_features, shape.experts, shape.is_llama
            wide, region, bias = (2, inside) if gated else inside, self.region, not gated
            hidden = ColumnParallelExperts(f"{name}.hidden", count, h, wide, std, own, region, bias=bias)
            thought = RowParallelExperts(f"{name}.thought", count, inside, h, residual_std, own, region, bias=bias)
            perceptrons = Sequence([hidden, SwiGLU() if gated else Gelu(), thought])
            self._cut["tp"].update((hidden.w.name, thought.w.name))
            if hidden.b is not None:
                self._partly.add(hidden.b.name)
        layer = mixture(name, shape, std, residual_std, exchange, perceptrons)
        if self.sequence_parallel:
            self._partly.add(layer.router.name)
        return self._inside(layer, "ep")

    def logits(self, name: str, width: int, vocabulary: int, std: float) -> Layer:
        """See Parts."""
        return self._inside(ColumnParallelLinear(name, width, vocabulary, self.region, std=std, bias=False))

    def tied_logits(self, table: Parameter) -> Layer:
        """See Parts."""
        return VocabularyParallelTiedLinear(table, self.region)

    def loss(self) -> Loss:
        """See Parts."""
        return VocabularyParallelCrossEntropy(self.mesh.tp, self.split, self.algorithm)

    # -- how they are spread ---------------------------------------------------------------------------------

    def _inside(self, layer: Layer, axis: str = "tp") -> Layer:
        """A layer that sees all tokens of its region: what is not cut gets the same gradient on all ranks."""
        self._names.update(p.name for p in layer.parameters)
        self._cut[axis].update(p.name for p in layer.parameters if p.place.index)
        return layer

    def on_stream(self, layer: Layer) -> Layer:
        """A layer that, with sequence parallelism, sees only this rank's tokens.

        So that its gradients are summed over the ranks that see others, a subclass calls this for layers of its own:

            def norm(self, name, width):
                return Sequence([super().norm(name, width), self.on_stream(Scale(name, width))])
        """
        if self.sequence_parallel:
            self._partly.update(p.name for p in layer.parameters if not p.place.index)
        return self._inside(layer)

    def spread(self) -> Spread:
        """The `Spread` of a model of these parts; to call after the model is made, on all ranks of the mesh."""
        mesh = self.mesh
        model = mesh.group("pp", "ep", "sp", "tp")
        sums = []
        for axes in _SUMS:  # all ranks make the same groups, also those without such parameters
            group = mesh.group(*axes)
            names = frozenset(name for name in self._names if self._partial(name) == axes)
            if group.size > 1 and names:
                sums.append((group, names))
        whole = model if model.size > 1 else None
        return Spread(mesh.comm, whole, tuple(sums), self._counts, frozenset(self._names))

    def _partial(self, name: str) -> tuple[str, ...]:
        """The axes other than dp over which a parameter's gradient must be summed."""
        sees = {"ep": name not in self._cut["ep"], "sp": True, "tp": name in self._partly}
        return tuple(axis for axis in sees if sees[axis])

    def _counts(self, name: str) -> bool:
        """Whether this rank counts a parameter: it must be first on each axis along which the parameter is not cut."""
        return all(name in names or self.mesh.coordinates[axis] == 0 for axis, names in self._cut.items())
