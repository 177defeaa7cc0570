"""QKNorm: queries and keys normalized head by head, before they are rotated and compared."""

from simdist.arrays import Array, charge
from simdist.arrays.qkv import split_groups
from simdist.nn import functional as f
from simdist.nn.layers.layer import Layer
from simdist.nn.noise import Noise
from simdist.nn.parameters import Parameter

__all__ = ["QKNorm"]


_Context = list[tuple[Array, Array]]


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

    def forward(self, x: Array, noise: Noise | None = None) -> tuple[Array, _Context]:
        """On (n, t, (h + 2 g) * d) queries, keys and values, group by group.

        The context is the scaled rows and their factors, of the queries and of the keys.
        """
        y, context = _copied(x), []
        for part, gain in self._parts(y):
            part[...], z, r = f.rms_norm(_copied(part), gain.data)
            context.append((z, r))
        return y, context

    def backward_input(self, context: _Context, dy: Array) -> tuple[Array, Array]:
        """dy itself is pending."""
        dx = _copied(dy)
        for (part, gain), (z, r) in zip(self._parts(dx), context, strict=True):
            part[...] = f.rms_norm_backward_input(z, r, gain.data, _copied(part))
        return dx, dy

    def backward_weight(self, context: _Context, pending: Array) -> None:
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
