"""Noise: the numbers that dropout's masks depend on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from simdist.arrays import Array
from simdist.errors import ArrayError
from simdist.nn import functional as f

__all__ = ["Noise"]


@dataclass(frozen=True, eq=False)
class Noise:
    """Identifies elements among all those of a run, whichever rank holds them.

    A mask depends only on these and on the layer's name. So a batch, its micro-batches, and any part of it by tokens or
    heads get the same masks, on any rank and in any order.

    Args:
        seed, step: of the run; at least 0.
        samples: the number of each of these samples in the global batch, shape (samples,).
        first_token, first_head: the number of the first token, and of the first head, of this part.
        first_key: in attention, the number of the first key; `first_token` is then that of the first query.
    """

    seed: int
    step: int
    samples: Array
    first_token: int = 0
    first_head: int = 0
    first_key: int = 0

    def part(self, which: slice) -> "Noise":
        """The noise of some of the samples."""
        return replace(self, samples=self.samples[which])

    def features(self, layer: str, x: Array, share: float, tokens: Array | None = None) -> Array:
        """Which activations a layer keeps: booleans of the shape of x, (samples, tokens, features), or without tokens.

        Args:
            tokens: the number of each token in its text, shape (tokens,); from `first_token` on, if not given.
        """
        self.check(x)
        if tokens is None:
            tokens = np.arange(self.first_token, self.first_token + x.shape[1])
        return f.kept(x.shape, x, self._key(layer), (self.samples, tokens)[: x.ndim - 1], 0, share)

    def scores(self, layer: str, x: Array, heads: int, share: float, keys: int | None = None) -> Array:
        """Which of a layer's attention probabilities stay: booleans of shape (samples, heads, keys, queries).

        Args:
            x: the layer's input, shape (samples, tokens, features), of the queries.
            keys: the number of keys; that of the queries, if not given.
        """
        self.check(x)
        n, t, _ = x.shape
        keys = t if keys is None else keys
        rows = self.samples, np.arange(self.first_head, self.first_head + heads), np.arange(keys) + self.first_key
        return f.kept((n, heads, keys, t), x, self._key(layer), rows, self.first_token, share)

    def tiles(self, layer: str, x: Array, heads: int, share: float) -> Callable[[slice, slice, slice], Array]:
        """`scores` a tile at a time: a function of slices of these samples, keys and queries."""
        self.check(x)

        def keep(samples: slice, keys: slice, queries: slice) -> Array:
            first_token, first_key = self.first_token + queries.start, self.first_key + keys.start
            there = replace(self.part(samples), first_token=first_token, first_key=first_key)
            return there.scores(layer, x[samples, queries], heads, share, keys.stop - keys.start)

        return keep

    def check(self, x: Array) -> None:
        """Raise ArrayError unless x has these samples."""
        if len(self.samples) != x.shape[0]:
            raise ArrayError(f"noise for {len(self.samples)} samples and activations of {x.shape[0]}")

    def _key(self, layer: str) -> int:
        return int.from_bytes(sha256(f"{self.seed} {self.step} {layer}".encode()).digest()[:8], "little")
