"""Mixing: the weights with which ranks average with their neighbours.

    n   ranks                       W   shape (n, n); row i holds the weights with which rank i averages
    λ   the eigenvalues of W        1 = λ₁ ≥ λ₂ ≥ … ≥ λ_n ≥ -1

                 from 0   1   2   3
        rank 0  |    ⅓   ⅓   .   ⅓ |        every row sums to 1: averaging preserves what is equal on all
        rank 1  |    ⅓   ⅓   ⅓   . |        every column sums to 1: all count equally, the mean is preserved
        rank 2  |    .   ⅓   ⅓   ⅓ |        W = Wᵀ: the eigenvalues are real, and give the rate of convergence
        rank 3  |    ⅓   .   ⅓   ⅓ |

Where edges have a direction, W is not symmetric. Ranks may also use several such matrices in turn. With those of the
one-peer exponential graph 2^k ranks agree exactly after k steps, and send one message a step:

    step 0    0 ← 1, 1 ← 2, 2 ← 3, 3 ← 0            step 1    0 ← 2, 1 ← 3, 2 ← 0, 3 ← 1            each takes the mean

Source: Lian et al. 2017, arXiv 1705.09056, assumption 1; for the exponential graphs, Assran et al. 2019, arXiv
1811.10792, and Ying et al. 2021, arXiv 2110.13363.
"""

from collections.abc import Sequence
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from simdist.asynchronous.graphs import Graph
from simdist.errors import ArgumentError, as_declared, require_least

__all__ = ["Mixing", "circulant", "circulant_gap", "mean_pairwise", "metropolis", "one_peer_exponential"]

_TOLERANCE = 1e-12


class Mixing:
    """A symmetric, doubly stochastic matrix W; each rank uses its own row.

    Args:
        weights: W, shape (n, n); converted to float64.
        directed: whether W need not be symmetric.

    Attributes:
        weights: W, exactly symmetric unless it is directed.
        size: n.

    Raises:
        ArgumentError: W is no square matrix, has an entry that is negative or not finite, a row or a column that does
            not sum to 1 (within 1e-12), or is not symmetric; the message names the row and the fault.
    """

    def __init__(self, weights: Any, directed: bool = False) -> None:
        try:
            w = np.array(weights, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"the mixing matrix is {weights!r:.60}; needs rows of equally many numbers") from error
        if w.ndim != 2 or w.shape[0] != w.shape[1] or not w.size:
            raise ArgumentError(f"a mixing matrix of shape {w.shape}; needs to be square, at least 1 x 1")
        wrong = np.argwhere(~np.isfinite(w) | (w < 0))
        if len(wrong):
            i, j = map(int, wrong[0])
            raise ArgumentError(f"row {i} of the mixing matrix has {w[i, j]:g} in column {j}; needs at least 0")
        for line, sums in (("row", w.sum(axis=1)), ("column", w.sum(axis=0))):
            worst = int(np.abs(sums - 1).argmax())
            if abs(sums[worst] - 1) > _TOLERANCE:
                raise ArgumentError(f"{line} {worst} of the mixing matrix sums to {sums[worst]:.15g}; needs 1")
        i, j = map(int, np.unravel_index(np.abs(w - w.T).argmax(), w.shape))
        if not directed and abs(w[i, j] - w[j, i]) > _TOLERANCE:
            raise ArgumentError(
                f"the mixing matrix is not symmetric: row {i} has {w[i, j]:g} in column {j}, row {j} has {w[j, i]:g} "
                f"in column {i}"
            )
        self.weights: npt.NDArray[np.float64] = w if directed else (w + w.T) / 2  # exactly symmetric
        self.size = len(w)
        self._directed = directed

    def neighbours(self, rank: int) -> Sequence[int]:
        """The other ranks with a nonzero weight in this rank's average, in ascending order."""
        return [int(j) for j in np.flatnonzero(self.weights[rank]) if j != rank]

    def listeners(self, rank: int) -> Sequence[int]:
        """The other ranks in whose average this rank has a nonzero weight: its neighbours, if W is symmetric."""
        return [int(i) for i in np.flatnonzero(self.weights[:, rank]) if i != rank]

    @cached_property
    def graph(self) -> Graph:
        """The graph of nonzero weights, without directions."""
        return Graph.of(self.size, [(i, j) for i in range(self.size) for j in self.neighbours(i)])

    @cached_property
    def eigenvalues(self) -> npt.NDArray[np.float64] | npt.NDArray[np.complex128]:
        """The eigenvalues of W, largest first: λ₁ = 1, …, λ_n; if W is directed, complex, by their magnitudes."""
        if self._directed:
            found = np.linalg.eigvals(self.weights).astype(np.complex128)
            return found[np.argsort(-np.abs(found), kind="stable")]
        return np.linalg.eigvalsh(self.weights)[::-1].astype(np.float64)

    @property
    def contraction(self) -> float:
        """max(λ₂, -λ_n)²: an averaging leaves at most this share of Σ_i ‖x_i - x̄‖²; 0 for one rank.

        It leaves exactly this share if the ranks' weights are the components of that eigenvalue's eigenvector. If W is
        directed, it is σ₂², of the second singular value.
        """
        if self._directed:
            return float(np.linalg.norm(self.weights - 1 / self.size, 2) ** 2)
        return self._second**2

    @property
    def spectral_gap(self) -> float:
        """1 - max(λ₂, -λ_n): 0 if ranks never agree, as in a disconnected graph; 1 if they agree after one step.

        If W is directed, 1 - |λ₂|.
        """
        return 1.0 - self._second

    @property
    def _second(self) -> float:
        """The magnitude of the second eigenvalue; 0 for one rank."""
        return float(np.abs(self.eigenvalues[1:]).max(initial=0.0))


@as_declared
def circulant_gap(size: int, hops: Sequence[int]) -> float:
    """The spectral gap of a mean over a rank and those that are some hops after it, all with the same weight.

    λ_k is the mean of exp(2πikh/n) over the hops h, 0 among them; the gap is 1 - max |λ_k| over k > 0: that of
    `circulant`, for any number of ranks. Where rank i hears from i + 1, i + 2, i + 4, …, the static exponential graph,
    it is 2 / (1 + ceil(lg n)) for even n.

    Args:
        size: n.
        hops: 0 is always among them; those that lead to the same rank count once.

    Raises:
        ArgumentError: size is less than 1.

    Source: Ying et al. 2021, arXiv 2110.13363 (the static exponential graph).
    """
    return 1.0 - float(np.abs(np.fft.fft(_first_row(size, hops))[1:]).max(initial=0.0))


@as_declared
def circulant(size: int, hops: Sequence[int]) -> Mixing:
    """The directed mean over a rank and those that are some hops after it, all with the same weight.

    Args:
        size: n.
        hops: as of `circulant_gap`; 1, 2, 4, … for the static exponential graph.

    Raises:
        ArgumentError: size is less than 1.
    """
    row = _first_row(size, hops)
    return Mixing([np.roll(row, i) for i in range(size)], directed=True)


def _first_row(size: int, hops: Sequence[int]) -> npt.NDArray[np.float64]:
    """What rank 0 averages with which weight."""
    require_least("size", size, 1)
    if not isinstance(hops, Sequence) or not all(isinstance(hop, Integral) for hop in hops):
        raise ArgumentError(f"hops is {hops!r:.60}; needs a sequence of whole numbers, such as [1, 2, 4]")
    heard = {hop % size for hop in (0, *hops)}
    w = np.zeros(size)
    w[list(heard)] = 1 / len(heard)
    return w


@as_declared
def one_peer_exponential(size: int) -> list[Mixing]:
    """The matrices that ranks use in turn: in step k each averages with the one 2^k after it, half and half.

    For n a power of two their product, in any order, is the mean, exactly. For others, these ceil(lg n) steps leave a
    quarter of the consensus error's root at most, for as many messages as one step of the static exponential graph.

    Args:
        size: n.

    Raises:
        ArgumentError: size is less than 1.

    Source: Assran et al. 2019, arXiv 1811.10792; Ying et al. 2021, arXiv 2110.13363, lemma 1.
    """
    require_least("size", size, 1)
    return [circulant(size, [1 << k]) for k in range(max(1, (size - 1).bit_length()))]


def metropolis(graph: Graph) -> Mixing:
    """Metropolis weights: W_ij = 1 / (1 + max(d_i, d_j)) for neighbours i, j of degrees d; W_ii is the rest.

    Each rank needs only its neighbours' degrees. If all degrees are d, all weights are 1 / (d + 1): a third
    each on a ring, a fifth on a torus, and on a complete graph W = 11ᵀ/n, the mean.

    Source: Xiao, Boyd, Lall 2005, IPSN, "A scheme for robust distributed sensor fusion based on average consensus".
    """
    w = np.zeros((graph.size, graph.size))
    for i, j in graph.edges:
        w[i, j] = w[j, i] = 1 / (1 + max(graph.degree(i), graph.degree(j)))
    for i in range(graph.size):
        w[i, i] = 1 - w[i].sum()  # at least 1 / (1 + d_i)
    return Mixing(w)


@as_declared
def mean_pairwise(graph: Graph) -> Mixing:
    """The mean of the matrices of pairwise averaging: a rank drawn at random averages with a neighbour drawn at random.

    W_ij = (1/d_i + 1/d_j) / 2n for neighbours i, j of degrees d. Each averaging is a projection, so on average it
    leaves at most the share λ₂ of Σ_i ‖x_i - x̄‖², not its square: 1 - `spectral_gap` of this matrix. That is
    1 - 1/(n-1) on a complete graph and 1 - (1 - cos(2π/n))/n on a ring, for one message each way. `ad_psgd` draws
    active ranks alone.

    Raises:
        ArgumentError: a rank of several has no neighbour.

    Source: Boyd, Ghosh, Prabhakar, Shah 2006, IEEE Trans. Information Theory 52(6), 2508-2530; in AD-PSGD, Lian et al.
    2018, arXiv 1710.06952, assumption 1.
    """
    n, w = graph.size, np.zeros((graph.size, graph.size))
    alone = [rank for rank in range(n) if not graph.degree(rank)]
    if alone and n > 1:
        raise ArgumentError(f"rank {alone[0]} of {n} has no neighbour; needs at least 1")
    for i, j in graph.edges:
        w[i, j] = w[j, i] = (1 / graph.degree(i) + 1 / graph.degree(j)) / (2 * n)
    return Mixing(w + np.diag(1 - w.sum(axis=1)))
