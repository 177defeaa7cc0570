"""Attention: what queries, keys and values go through, head by head. In latent attention they are put together first;
then queries and keys may be normalized, and rotated by the positions of their tokens; then each token attends.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.qkv import split_groups
from simdist.arrays.working import widened
from simdist.errors import require_share
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer, Weightless
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["Attention", "LatentHeads", "QKNorm", "Rotary"]

_Normalized = list[tuple[Array, Array]]


class _Parts(NamedTuple):
    """Views: queries (n, t, a, d + r), keys without their rotated features (n, t, a, d), values (n, t, a, d), and the
    rotated features of the keys, (n, t, r) for all heads or (n, t, a, r) for each.
    """

    queries: Array
    keys: Array
    values: Array
    rotary: Array


class LatentHeads(Weightless):
    """From what the maps of the latent vectors give to what `Attention` takes, head by head.

        a  heads     d  features of a value     r  features that are rotated, of a query or a key

        columns before    q0 q1 … | k0 v0 k1 v1 … | t        q  d + r wide     k, v  d wide     t  r wide, of all heads
        columns after     q0 k0 t v0 q1 k1 t v1 …

    Its backward sums the derivatives by t over the heads.

    Args:
        heads, width, rotary: a, d, r.

    Source: DeepSeek-AI 2024, DeepSeek-V2, arXiv 2405.04434, equations 9 to 19.
    """

    def __init__(self, heads: int, width: int, rotary: int) -> None:
        self.heads = heads
        self.width = width
        self.rotary = rotary

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, None]:
        """(n, t, a (3 d + r) + r) to (n, t, a (3 d + 2 r)); there is no context."""
        y = np.empty_like(x, shape=(*x.shape[:2], x.shape[-1] + (self.heads - 1) * self.rotary))
        (queries, keys, values, rotary), to = self._before(x), self._after(y)
        to.queries[...], to.keys[...], to.values[...] = queries, keys, values
        to.rotary[...] = rotary[:, :, None]
        charge(0, x.nbytes + y.nbytes)
        return y, None

    def backward_input(self, context: None, dy: Array) -> tuple[Array, None]:
        """The inverse, with a sum."""
        dx = np.empty_like(dy, shape=(*dy.shape[:2], dy.shape[-1] - (self.heads - 1) * self.rotary))
        (queries, keys, values, rotary), to = self._after(dy), self._before(dx)
        to.queries[...], to.keys[...], to.values[...] = queries, keys, values
        to.rotary[...] = widened(rotary).sum(axis=2)
        charge(rotary.size, dx.nbytes + dy.nbytes)
        return dx, None

    def _before(self, x: Array) -> _Parts:
        n, t, _ = x.shape
        a, d = self.heads, self.width
        end = a * (d + self.rotary)
        kv = x[:, :, end : end + 2 * a * d].reshape(n, t, a, 2, d)
        queries = x[:, :, :end].reshape(n, t, a, d + self.rotary)
        return _Parts(queries, kv[:, :, :, 0], kv[:, :, :, 1], x[:, :, end + 2 * a * d :])

    def _after(self, y: Array) -> _Parts:
        n, t, _ = y.shape
        d, e = self.width, self.width + self.rotary
        heads = y.reshape(n, t, self.heads, 2 * e + d)
        return _Parts(heads[..., :e], heads[..., e : e + d], heads[..., 2 * e :], heads[..., e + d : 2 * e])


class QKNorm(Layer):
    """RMSNorm of each head's query and key, so that scores stay bounded; values are unchanged.

        columns of a group      q0 q1 … k v   ->   norm(q0) norm(q1) … norm(k) v         each d wide

    All heads share one gain for queries and one for keys.

    Args:
        name: of the gains.
        heads: h, the number of heads in its input.
        groups: g, of heads that share keys and values; a divisor of the heads.
        width: d, the features of a head.

    Source: Henry, Dachapally, Pawar, Chen 2020, arXiv 2010.04245 (normalized queries and keys); as RMSNorm with
    gains, Yang et al. 2025, Qwen3, arXiv 2505.09388, section 2.
    """

    def __init__(self, name: str, heads: int, groups: int, width: int) -> None:
        self.heads = heads
        self.groups = groups
        self.query_gain = Parameter(f"{name}.query_gain", (width,), mean=1.0)
        self.key_gain = Parameter(f"{name}.key_gain", (width,), mean=1.0)
        self.parameters = (self.query_gain, self.key_gain)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Normalized]:
        """On (n, t, (h + 2 g) * d) queries, keys and values, group by group.

        The context is the scaled rows and their factors, of the queries and of the keys.
        """
        y, context = _copied(x), []
        for part, gain in self._parts(y):
            part[...], z, r = f.rms_norm(_copied(part), gain.data)
            context.append((z, r))
        return y, context

    def backward_input(self, context: _Normalized, dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        dx = _copied(dy)
        for (part, gain), (z, r) in zip(self._parts(dx), context, strict=True):
            part[...] = f.rms_norm_backward_input(z, r, gain.data, _copied(part))
        return dx, dy

    def backward_weight(self, context: _Normalized, pending: Array) -> None:
        """Add the column sums, over all heads."""
        for (part, gain), (z, _) in zip(self._parts(pending), context, strict=True):
            f.rms_norm_backward_weight(z, _copied(part), gain.gradient)

    def _parts(self, x: Array) -> list[tuple[Array, Parameter]]:
        """Views of x, each with its gain: queries (n, t, g, h/g, d) and keys (n, t, g, d)."""
        queries, keys, _ = split_groups(x, self.heads, self.groups)
        return [(queries.transpose(0, 3, 1, 2, 4), self.query_gain), (keys.transpose(0, 2, 1, 3), self.key_gain)]


def _copied(x: Array) -> Array:
    """A contiguous copy."""
    y = x.copy()
    charge(0, 2 * x.nbytes)
    return y


@dataclass(eq=False)
class Rotary(Weightless):
    """On queries, keys and values as `Attention` takes them, before it: see `simdist.nn.functional.rotary`.

    Args:
        heads: the number of heads in its input.
        tokens: tokens(count) -> the positions in the text of the `count` tokens of the input; if not given, from 0 on.
        groups: of heads that share keys and values; if not given, one per head.
        base: of the angles.
        value_width, rotary_features: as for `simdist.nn.functional.rotary`.
    """

    heads: int
    tokens: Callable[[int], Array] = np.arange
    groups: int | None = None
    base: float = f.ROPE_BASE
    value_width: int | None = None
    rotary_features: int | None = None

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, None]:
        """There is no context."""
        return self._rotated(x), None

    def backward_input(self, context: None, dy: Array) -> tuple[Array, None]:
        """Rotates dy back."""
        return self._rotated(dy, back=True), None

    def _rotated(self, x: Array, back: bool = False) -> Array:
        places = self.tokens(x.shape[1])
        return f.rotary(x, self.heads, places, back, self.groups, self.base, self.value_width, self.rotary_features)


class _Context(NamedTuple):
    qkv: Array
    y: Array
    saved: Any  # the probabilities, or with flash lse
    keep: Any  # dropout's mask


@dataclass(eq=False)
class Attention(Weightless):
    """Causal self-attention of some heads: queries, keys and values, (n, t, heads * e + groups * (e + w)), to
    (n, t, heads * w); see `simdist.nn.functional.groups`.

    It has no weights, but keeps up to t * t probabilities per head, which selective recomputation recomputes. With
    flash it keeps one number per query and head instead, and has the same masks.

    Args:
        name: unique in its model; dropout's masks depend on it.
        heads: the number of heads in its input.
        dropout: the share of the probabilities that is dropped.
        first_head: the number of the model's heads before these.
        groups: of heads that share keys and values; if not given, one per head.
        flash: whether to use `flash_attention` instead of `attention`.
        value_width: w, the features of a value; if not given, those of a query and of a key.
    """

    name: str
    heads: int
    dropout: float = 0.0
    first_head: int = 0
    groups: int | None = None
    flash: bool = False
    _: KW_ONLY
    value_width: int | None = None

    def __post_init__(self) -> None:
        require_share("dropout", self.dropout)

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Context]:
        """The context is the input, the output, and what backward needs of the probabilities and masks."""
        keep = None
        if noise is not None and self.dropout:
            own = replace(noise, first_head=noise.first_head + self.first_head)
            mask = own.tiles if self.flash else own.scores
            keep = mask(self.name, x, self.heads, self.dropout)
        attend = f.flash_attention if self.flash else f.attention
        y, saved = attend(x, self.heads, keep, self.dropout, self.groups, self.value_width)
        return y, _Context(x, y, saved, keep)

    def backward_input(self, context: _Context, dy: Array) -> tuple[Array, None]:
        """The whole of backward."""
        qkv, y, saved, keep = context
        attend_backward = f.flash_attention_backward if self.flash else f.attention_backward
        return attend_backward(qkv, y, saved, dy, keep, self.dropout, groups=self.groups or self.heads), None
