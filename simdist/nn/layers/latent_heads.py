"""LatentHeads: queries, keys and values put together for each head, in multi-head latent attention."""

from typing import NamedTuple

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.working import widened
from simdist.nn.layers.layer import Weightless
from simdist.nn.noise import Noise

__all__ = ["LatentHeads"]


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
