"""PowerSGD: each weight matrix's gradient is sent as the product of two thin matrices."""

import math
from collections.abc import Sequence

import numpy as np

from simdist.arrays import Array, charge, consecutive, kind_of, moved
from simdist.comm import Communicator
from simdist.errors import ArgumentError, require_least
from simdist.optim import Spans, largest
from simdist.parallel.compression.compressor import Compressor

__all__ = ["PowerSGD"]

Matrix = tuple[slice, tuple[int, ...]]


class PowerSGD(Compressor):
    """The sum of the ranks' n by m matrices M, projected on r directions, the same on all ranks.

        M    gradient + residual of a matrix        P    n by r        Q    m by r, from the last step

        P ← M orth(Q)    summed over ranks          one step of the power iteration towards
        P̂ ← orth(P)                                 the largest singular vectors of the sum
        Q ← Mᵀ P̂         summed over ranks
        sum ≈ P̂ Qᵀ       residual ← M - P̂ (Mᵀ P̂)ᵀ  with this rank's own M

    orth(P) are orthonormal columns that span P.

    Parameters that are not matrices, such as biases, are summed exactly, in the message of the Ps. If r is as large
    as n or m the sum is exact, up to rounding.

    A gradient counts as not finite, too, if its squares or its residual's have no finite sum, of float32 those from
    1.8e19 on: of what is longer, P, its columns' norms or Q may overflow.

    Args:
        like: as of `Compressor`.
        matrices: (slice of the gradient, shape) of each matrix to compress. With more than two axes, the
            first is the rows, and the others together are the columns.
        rank: r, at least 1; reduced to n or m where these are smaller.

    Attributes:
        state: "residual", of the length of the gradient; "q", all Qs end to end.

    Every rank computes P̂ and P̂ Qᵀ itself, so the bits are the same on all ranks of identical machines.

    Cost per rank: two all-reduces, one of the Ps and all that is not in a matrix, one of the Qs: (n + m) r items per
    matrix instead of n m.

    Source: Vogels, Karimireddy, Jaggi 2019, arXiv 1905.13727, algorithms 1 and 2.
    """

    name = "PowerSGD"

    def __init__(self, like: Array, matrices: Sequence[Matrix], rank: int = 2) -> None:
        require_least("rank", rank, 1)
        super().__init__(like)
        self._plans = [_Plan(span, shape, rank) for span, shape in matrices if math.prod(shape)]
        spans = Spans(span for span, _ in matrices)
        if len(spans) and list(spans)[-1].stop > len(like):
            raise ArgumentError(f"a matrix ends at {list(spans)[-1].stop}; the gradient has {len(like)} items")
        edges = [0, *(edge for span in spans for edge in (span.start, span.stop)), len(like)]
        self._others = [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
        self._p_shapes = [*((plan.n, plan.r) for plan in self._plans), *((_length(span),) for span in self._others)]
        self._q_shapes = [(plan.m, plan.r) for plan in self._plans]
        self.state = {"residual": np.zeros_like(like), "q": np.empty_like(like, shape=(_size(self._q_shapes),))}
        if kind_of(like) != "phantom":
            self.state["q"][...] = moved(np.random.default_rng(0).standard_normal(len(self.state["q"])), like)

    @property
    def ratio(self) -> float:
        """The items of the gradient divided by those that are summed: the paper's compression ratio.

        The bytes on the record also depend on the algorithms of the all-reduces, which depend on their lengths.
        """
        return math.prod(self._shape) / max(1, _size(self._p_shapes) + _size(self._q_shapes))

    def _reduce(self, x: Array, comm: Communicator) -> None:
        residual, qs = self.state["residual"], np.empty_like(self.state["q"])
        ps = np.empty_like(x, shape=(_size(self._p_shapes),))  # and all that is not in a matrix
        charge(sum(plan.flops for plan in self._plans), 10 * x.nbytes)
        if kind_of(x) == "phantom":
            self._all_reduce(ps, comm)
            self._all_reduce(qs, comm)
            return
        matrices = [residual[plan.span].reshape(plan.n, plan.m) for plan in self._plans]
        parts, each_q = _end_to_end(ps, self._p_shapes), _end_to_end(qs, self._q_shapes)
        each_p, others = parts[: len(matrices)], parts[len(matrices) :]
        if self._add_to_residual(x):
            for matrix, p, q in zip(matrices, each_p, _end_to_end(self.state["q"], self._q_shapes), strict=True):
                # Orthonormal, because a gradient of low rank leaves a Q that has lost directions.
                np.matmul(matrix, _orth(q), out=p)
            for span, part in zip(self._others, others, strict=True):
                part[...] = residual[span]
        else:
            ps[...] = np.nan
        self._all_reduce(ps, comm)
        if not math.isfinite(largest(ps)):  # the same on all ranks
            x[...] = np.nan
            return
        p_hats = [_orth(p) for p in each_p]
        for matrix, p_hat, q in zip(matrices, p_hats, each_q, strict=True):
            np.matmul(matrix.T, p_hat, out=q)
            matrix -= p_hat @ q.T
        self._all_reduce(qs, comm)
        self.state["q"][...] = qs
        for plan, p_hat, q in zip(self._plans, p_hats, each_q, strict=True):
            np.matmul(p_hat, q.T, out=x[plan.span].reshape(plan.n, plan.m))
        for span, part in zip(self._others, others, strict=True):
            x[span], residual[span] = part, 0

    def _add_to_residual(self, x: Array) -> bool:
        """Add x to the residual, if the squares of that then have a finite sum. No step makes it longer after that, so
        it cannot keep others from being added for ever.
        """
        residual = self.state["residual"]
        short = _norm(residual) + _norm(x) <= math.sqrt(np.finfo(x.dtype).max)
        if short:
            np.add(residual, x, out=residual)
        return short


class _Plan:
    """One matrix: its slice, n rows, m columns, r directions."""

    __slots__ = ("m", "n", "r", "span")

    def __init__(self, span: slice, shape: tuple[int, ...], rank: int) -> None:
        self.span = span
        self.n = shape[0]
        self.m = math.prod(shape[1:])
        self.r = min(rank, self.n, self.m)
        if _length(span) != self.n * self.m:
            raise ArgumentError(f"{span} has {_length(span)} items; a matrix of shape {shape} has {self.n * self.m}")

    @property
    def flops(self) -> int:
        """Of four thin products and two QR decompositions."""
        return 8 * self.n * self.m * self.r + 4 * (self.n + self.m) * self.r**2


def _norm(x: Array) -> float:
    """The 2-norm of a vector, infinite where its square is."""
    with np.errstate(over="ignore"):
        return math.sqrt(x @ x)


def _orth(x: Array) -> Array:
    """Orthonormal columns that span x."""
    q: Array = np.linalg.qr(x)[0]
    return q


def _end_to_end(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Arrays of these shapes in `flat`, one after the other; they are views."""
    parts = consecutive(map(math.prod, shapes))
    return [flat[part].reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _size(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes))


def _length(span: slice) -> int:
    return int(span.stop - span.start)
