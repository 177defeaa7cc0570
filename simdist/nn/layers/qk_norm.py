"""QKNorm: queries and keys normalized head by head, before they are rotated and compared."""

from typing import NamedTuple

from simdist.arrays import Array, charge
from simdist.arrays.qkv import split_groups
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["QKNorm"]


class _Normalized(NamedTuple):
    """The rows of `rms_norm`, and their factors: of queries (n, t, g, h/g, d), of keys (n, t, g, d)."""

    queries: Array
    query_factors: Array
    keys: Array
    key_factors: Array


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
        """On (n, t, (h + 2 g) * d) queries, keys and values, group by group."""
        y = _copied(x)
        queries, keys = self._parts(y)
        normal_q, z_q, r_q = f.rms_norm(_copied(queries), self.query_gain.data)
        normal_k, z_k, r_k = f.rms_norm(_copied(keys), self.key_gain.data)
        queries[...], keys[...] = normal_q, normal_k
        return y, _Normalized(z_q, r_q, z_k, r_k)

    def backward_input(self, context: _Normalized, dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        dx = _copied(dy)
        queries, keys = self._parts(dx)
        z_q, r_q, z_k, r_k = context
        queries[...] = f.rms_norm_backward_input(z_q, r_q, self.query_gain.data, _copied(queries))
        keys[...] = f.rms_norm_backward_input(z_k, r_k, self.key_gain.data, _copied(keys))
        return dx, dy

    def backward_weight(self, context: _Normalized, pending: Array) -> None:
        """Add the column sums, over all heads."""
        queries, keys = self._parts(pending)
        f.rms_norm_backward_weight(context.queries, _copied(queries), self.query_gain.gradient)
        f.rms_norm_backward_weight(context.keys, _copied(keys), self.key_gain.gradient)

    def _parts(self, x: Array) -> tuple[Array, Array]:
        """Views of x: queries (n, t, g, h/g, d) and keys (n, t, g, d)."""
        queries, keys, _ = split_groups(x, self.heads, self.groups)
        return queries.transpose(0, 3, 1, 2, 4), keys.transpose(0, 2, 1, 3)


def _copied(x: Array) -> Array:
    """A contiguous copy."""
    y: Array = x.copy()
    charge(0, 2 * x.nbytes)
    return y
