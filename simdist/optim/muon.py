"""Muon: momentum whose matrices are made orthogonal before each step."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simdist.arrays import Array, charge
from simdist.arrays.matmul import vecdot
from simdist.errors import ArgumentError, as_declared, require_least, require_share
from simdist.nn.functional.matrix import product
from simdist.optim.adamw import AdamW
from simdist.optim.matrices import Matrices, Matrix

__all__ = ["Muon", "muon_overhead", "orthogonalized"]


class Muon(AdamW):
    """A matrix moves along an orthogonal matrix near its momentum: about as far in each of its directions.

        m ← momentum · m + (1 - momentum) · g
        u ← orthogonalized(momentum · m + (1 - momentum) · g)
        w ← (1 - learning_rate · weight_decay) · w - learning_rate · 0.2 √max(rows, columns) · u

    This step is about as large as one of AdamW, whose learning rate and decay therefore suit it (small models train
    faster with five to ten times that rate). Weights in none of the chosen matrices are updated by AdamW. Of a
    parameter of more than two axes the first counts rows; of one of experts it counts matrices.

    Ranks with shards of a matrix each gather it before it is orthogonalized, and keep their part of the result
    (algorithm 1 of Liu et al.): they repeat each other's work, the more the more ranks share a layer. One rank for each
    matrix, which sends the others their parts of the result, would not.

    Args:
        like, betas, epsilon, weight_decay: as in `AdamW`.
        matrices: of the vector; they decay.
        chosen: those of `matrices.known` to orthogonalize.
        momentum: at least 0 and below 1.

    Attributes:
        state: "m", the momentum, or of AdamW the mean gradient, one per weight; "v", end to end, only of weights in
            none of the chosen matrices. It also takes u, of the weights' length, as working space.

    Raises:
        ArgumentError: an argument is outside its limits, or ranks have other rows or columns of a chosen matrix.

    Cost per step and weight in a chosen matrix: 7 operations, 8 with weight decay, and those of `orthogonalized`;
    weights, m and u are read and written, the gradient is read. For all others as `AdamW`. On p ranks with shards, for
    each of ZeRO's units with such matrices, of n items of the weights' dtype: an all-gather, n(p-1)/p items sent.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv 2502.16982, sections 2.2
    (decay and scale) and 2.3 (shards).
    """

    def __init__(
        self,
        like: Array,
        matrices: Matrices,
        chosen: Sequence[Matrix],
        *,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        require_share("momentum", momentum)
        for matrix in chosen:
            axes = slice(int(_of_experts(matrix)), None)
            if matrix.shape[axes] != matrix.of[axes]:
                raise ArgumentError(f"{matrix.name} has shape {matrix.shape} of {matrix.of}; Muon needs whole matrices")
        self.momentum = momentum
        self._matrices, self._chosen = matrices, chosen
        edges = [0, *(end for matrix in chosen for end in (matrix.own.start, matrix.own.stop)), len(like)]
        self._rest = [slice(*ends) for ends in zip(edges[::2], edges[1::2], strict=True)]
        super().__init__(like, betas=betas, epsilon=epsilon, weight_decay=weight_decay, decay=matrices)

    def _zeros(self, like: Array) -> dict[str, Array]:
        """The initial state."""
        rest = sum(span.stop - span.start for span in self._rest)
        return {"m": np.zeros_like(like), "v": np.zeros_like(like, shape=(rest,))}

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        m, u, momentum = self.state["m"], np.empty_like(weights), self.momentum
        for block, place in self._places():
            g, spare = self._read(gradient, block, scale), u[block]
            self._move(weights[block], m[block], self.state["v"][place], g, spare, rate, block)
            charge(13 * g.size, 6 * spare.nbytes + gradient[block].nbytes)
        for block in (block for matrix in self._chosen for block in self._within(matrix.own)):
            g, spare = self._read(gradient, block, scale), self._spare[0][: block.stop - block.start]
            np.subtract(g, m[block], out=u[block])
            np.multiply(u[block], 1 - momentum, out=spare)
            np.add(m[block], spare, out=m[block])
            np.multiply(u[block], momentum**2, out=spare)
            np.subtract(g, spare, out=u[block])
            charge(5 * g.size, 3 * spare.nbytes + gradient[block].nbytes)
        keep = 1 - rate * self.weight_decay
        for matrix, items, held in self._matrices.whole(u, self._chosen):
            w, x = weights[matrix.own], orthogonalized(items.reshape(_as_matrices(matrix)))
            change = x.reshape(-1)[held] * (rate * 0.2 * math.sqrt(max(x.shape[-2:])))
            if keep != 1:
                np.multiply(w, keep, out=w)
            np.subtract(w, change, out=w)
            charge((2 + (keep != 1)) * w.size, 3 * w.nbytes)

    def _within(self, span: slice) -> Iterator[slice]:
        """A stretch of the vector in blocks."""
        step = self._blocks[0].stop if self._blocks else 1
        return (slice(i, min(i + step, span.stop)) for i in range(span.start, span.stop, step))

    def _places(self) -> Iterator[tuple[slice, slice]]:
        """The weights in no chosen matrix, in blocks, each with its place in v."""
        at = 0
        for block in (block for span in self._rest for block in self._within(span)):
            yield block, slice(at, at + block.stop - block.start)
            at += block.stop - block.start

    def vectors(self) -> dict[str, Array]:
        """m, and v with zeros for the weights that have none."""
        v = np.zeros_like(self.state["m"])
        for block, place in self._places():
            v[block] = self.state["v"][place]
        return self.state | {"v": v}

    def restore(self, vectors: Mapping[str, Array], num_steps: int) -> None:
        """As in `Optimizer`."""
        self._check_vectors(vectors, self.state)
        self.state["m"][...] = vectors["m"]
        for block, place in self._places():
            self.state["v"][place] = vectors["v"][block]
        self.num_steps = num_steps


def _of_experts(matrix: Matrix) -> bool:
    return len(matrix.shape) > 2 and "experts" in matrix.name.split(".")


def _as_matrices(matrix: Matrix) -> tuple[int, int, int]:
    """How many matrices it is, and their rows and columns."""
    count, rows = matrix.shape[:2] if _of_experts(matrix) else (1, matrix.shape[0])
    return count, rows, math.prod(matrix.shape) // (count * rows)


def orthogonalized(x: Array) -> Array:
    """Matrices with the singular vectors of x, and singular values of about 1: all from 0.7 to 1.2 but the tiniest.

        x ← x / ‖x‖
        x ← a x + (b x xᵀ + c (x xᵀ)²) x        five Newton-Schulz steps, in each of which s becomes a s + b s³ + c s⁵

    The coefficients are those that raise small s fastest. The papers compute it in bfloat16; here it is in x's dtype.

    Args:
        x: shape (count, rows, columns).

    Cost: with r the smaller and c the larger of rows and columns, 5 (4 r² c + 2 r³ + 2 r c + 3 r²) + 3 r c operations.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon.
    """
    if x.shape[-2] > x.shape[-1]:
        return orthogonalized(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    rows = x.reshape(len(x), -1)
    x = x / np.maximum(np.sqrt(vecdot(rows, rows)), 1e-7)[:, None, None]
    charge(3 * x.size, 3 * x.nbytes)
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        gram = product(x, x.swapaxes(-1, -2))
        step = product(b * gram + c * product(gram, gram), x)
        x = a * x + step
        charge(2 * x.size + 3 * gram.size, 3 * x.nbytes + 3 * gram.nbytes)
    return x


@as_declared
def muon_overhead(width: float, batch_tokens: float, steps: int = 5) -> float:
    """T m / B: the most operations that Muon adds, as a share of those of forward and backward.

    For a matrix of m x n, m <= n, T Newton-Schulz steps take 2 T (2 m² n + m³), at most 6 T m² n, and training on B
    tokens takes 6 m n B. It is 0.5% for Llama 3 405B, with a width of 16,384 and batches of 16 million tokens. Ranks
    that share a batch and not this work all do it: for each the share is of its own tokens.

    Args:
        width, batch_tokens, steps: m, B and T.

    Raises:
        ArgumentError: width is below 1, or batch_tokens or steps.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon (runtime analysis).
    """
    for name, number in (("width", width), ("batch_tokens", batch_tokens), ("steps", steps)):
        require_least(name, number, 1)
    return steps * width / batch_tokens
