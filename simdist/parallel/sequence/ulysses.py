"""Ulysses: each rank computes attention for some heads of whole texts, between two all-to-alls.

    p   ranks      N   tokens of all texts      h   width

                heads 0 1 2 3                       heads 0 1 2 3
    tokens 0          # # # #   rank 0                    # . . .
           1          . . . .             all-to-all      # . . .       attention       all-to-all      as at first
           2          . . . .            ----------->     # . . .      ----------->    ----------->
           3          . . . .                             # . . .

Source: Jacobs et al. 2023, DeepSpeed-Ulysses, arXiv 2309.14509.
"""

from typing import Any

from simdist.arrays import Array
from simdist.collectives import all_to_all
from simdist.errors import as_declared, require_least
from simdist.nn import Noise
from simdist.nn.layers import Layer, Weightless
from simdist.nn.parts import attention_layer
from simdist.parallel.even import check_even
from simdist.parallel.sequence.split import Split

__all__ = ["UlyssesAttention", "ulysses_elements"]


class UlyssesAttention(Weightless):
    """Causal self-attention on the queries, keys and values of this rank's tokens, of shapes as of `Attention`.

    The result is that of `Attention` on the whole texts, with the same dropout masks. Recomputation covers only the
    attention between the all-to-alls, so it sends nothing again.

    Args:
        name, dropout, first_head: as of `Attention`.
        heads, groups: likewise, multiples of the ranks.
        split: which rank has which tokens.
        algorithm: of the all-to-all.
        options: recompute, flash and value_width, as of `attention_layer`.

    Cost per rank: forward, all-to-alls of 3Nh/p and Nh/p items, 4Nh/p in all, of which 1/p stays on the rank; backward
    the same in reverse. This holds for the algorithms that send each item once, "linear" and "pairwise". Shared keys
    and values make the first all-to-all smaller; with values of a width of their own the second has h w columns.

    Raises:
        ArgumentError: the ranks do not divide the groups evenly.
    """

    def __init__(
        self,
        name: str,
        heads: int,
        split: Split,
        dropout: float = 0.0,
        first_head: int = 0,
        *,
        groups: int | None = None,
        algorithm: str = "auto",
        **options: Any,
    ) -> None:
        p, groups = split.comm.size, groups or heads
        check_even("heads" if groups == heads else "heads of keys and values", groups, "sp", p)
        self.name = name
        self.split = split
        self.algorithm = algorithm
        own = heads // p
        first_head += split.comm.rank * own
        self.inner: Layer = attention_layer(name, own, dropout, first_head, groups=groups // p, **options)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, Any]:
        """The context is that of attention on this rank's heads."""
        y, context = self.inner.forward(self._to_heads(x), noise)
        return self._to_tokens(y), context

    def backward_input(self, context: Any, dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        dx, _ = self.inner.backward_input(context, self._to_heads(dy))
        return self._to_tokens(dx), None

    def _to_heads(self, x: Array) -> Array:
        """From all features of some tokens to some features of all: (n, t, w) to (n, p t, w / p)."""
        p, (n, t, width) = self.split.comm.size, x.shape
        if p == 1:
            return x
        parts = x.reshape(n, t, p, width // p).transpose(2, 0, 1, 3).copy()
        return self.split.joined(all_to_all(parts, self.split.comm, self.algorithm))

    def _to_tokens(self, x: Array) -> Array:
        """The inverse: (n, p t, w / p) to (n, t, w)."""
        p, (n, count, width) = self.split.comm.size, x.shape
        if p == 1:
            return x
        parts = all_to_all(self.split.parted(x), self.split.comm, self.algorithm)
        return parts.transpose(1, 2, 0, 3).reshape(n, count // p, p * width)


@as_declared
def ulysses_elements(tokens: float, width: float, ranks: int, kv_width: float | None = None) -> float:
    """4Nh/P: the elements of a rank's all-to-alls in a layer's forward; backward has as many.

    Of these (P-1)/P are sent. Megatron-LM's sequence parallelism has 4Nh: two all-gathers and two reduce-scatters.
    Both kinds can be combined on P = U R ranks (USP): U ranks exchange the heads of N/R tokens, ulysses_elements(N/R,
    h, U), and then R ranks the keys and values of these heads, `ring_attention_cost` of 2Nh/P items on R ranks.

    Args:
        tokens, width, ranks: N, of all texts; h; P, at most the number of heads.
        kv_width: of a token's keys, and of its values; h if not given.

    Raises:
        ArgumentError: there are no ranks.

    Source: Jacobs et al. 2023, arXiv 2309.14509, section 3.2; Fang, Zhao 2024, arXiv 2405.07719 (USP).
    """
    require_least("ranks", ranks, 1)
    return tokens * (2 * width + 2 * (width if kv_width is None else kv_width)) / ranks
