"""Split: which tokens of a text are on which rank of the axis sp.

A causal query sees the keys up to its own place, so late tokens have more work than early ones. The work of each of
four ranks depends on the split.

               Even                     Zigzag
    tokens     0 0 1 1 2 2 3 3          0 1 2 3 3 2 1 0         the rank of each token; below, a
               # # # # # # # #          # # # # # # # #         row per key: the queries that see it
                 # # # # # # #            # # # # # # #
                   # # # # # #              # # # # # #
                     # # # # #                # # # # #
                       # # # #                  # # # #
                         # # #                    # # #
                           # #                      # #
                             #                        #
    work       1 : 3 : 5 : 7            1 : 1 : 1 : 1           of ranks 0 to 3; on the diagonal half a square
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from simdist.arrays import Array
from simdist.comm import Communicator
from simdist.errors import ArgumentError, as_declared, require_known
from simdist.parallel.even import check_even

__all__ = ["Even", "Split", "Zigzag", "causal_pairs"]


@dataclass(eq=False)
class Split(ABC):
    """Gives each rank runs of tokens of equal length, in the order of the text.

    Args:
        comm: the ranks.

    Attributes:
        runs: the number of runs per rank.
    """

    comm: Communicator

    runs: ClassVar[int]

    @abstractmethod
    def places(self, rank: int) -> tuple[int, ...]:
        """The runs of a rank, ascending, out of the `runs` * p of a text."""

    def work(self, rank: int) -> int:
        """The causal attention of a rank's queries, in halves of a block of scores between two runs; see above."""
        return sum(2 * place + 1 for place in self.places(rank))

    def runs_of(self, count: int, rank: int | None = None) -> list[tuple[slice, slice]]:
        """The runs of a rank, by default this one, in texts of `count` tokens: (place in its part, place in the text).

        Raises:
            ArgumentError: the tokens do not divide evenly.
        """
        check_even("tokens", count, "sp", self.comm.size, self.runs)
        length = count // (self.runs * self.comm.size)

        def run(i: int) -> slice:
            return slice(i * length, (i + 1) * length)

        places = self.places(self.comm.rank if rank is None else rank)
        return [(run(i), run(place)) for i, place in enumerate(places)]

    def own(self, count: int) -> Array:
        """The indices of this rank's tokens in texts of `count`: shape (count / p,)."""
        return np.concatenate([np.arange(there.start, there.stop) for _, there in self.runs_of(count)])

    def part(self, x: Array) -> Array:
        """This rank's tokens of whole texts: (n, count, …) to (n, count / p, …), a new array."""
        n, count, *rest = x.shape
        y = np.empty_like(x, shape=(n, count // self.comm.size, *rest))
        for here, there in self.runs_of(count):
            y[:, here] = x[:, there]
        return y

    def joined(self, parts: Array) -> Array:
        """Whole texts from every rank's tokens: (p, n, t, …) to (n, p t, …)."""
        p, n, t, *rest = parts.shape
        x = np.empty_like(parts, shape=(n, p * t, *rest))
        for rank in range(p):
            for here, there in self.runs_of(p * t, rank):
                x[:, there] = parts[rank, :, here]
        return x

    def parted(self, x: Array) -> Array:
        """Every rank's tokens of whole texts: (n, p t, …) to (p, n, t, …); the inverse of `joined`."""
        p, (n, count, *rest) = self.comm.size, x.shape
        parts = np.empty_like(x, shape=(p, n, count // p, *rest))
        for rank in range(p):
            for here, there in self.runs_of(count, rank):
                parts[rank, :, here] = x[:, there]
        return parts

    def place_of(self, token: int, count: int) -> tuple[int, int]:
        """The rank of a token in texts of `count`, and its place in that rank's part."""
        return next(
            (rank, here.start + token - there.start)
            for rank in range(self.comm.size)
            for here, there in self.runs_of(count, rank)
            if there.start <= token < there.stop
        )


class Even(Split):
    """One run of tokens per rank, in the order of ranks.

    In causal attention rank r has 2r + 1 half blocks of scores to compute.
    """

    runs = 1

    def places(self, rank: int) -> tuple[int, ...]:
        """One run, that of the rank's number."""
        return (rank,)


class Zigzag(Split):
    """Two runs per rank, the r-th from the front and the r-th from the back: equal work for all.

    Source: Llama Team 2024, arXiv 2407.21783 (context parallelism). For the imbalance of the even split and another
    remedy see Brandon et al. 2023, Striped Attention, arXiv 2311.09431.
    """

    runs = 2

    def places(self, rank: int) -> tuple[int, ...]:
        """One early run, one late run."""
        return rank, 2 * self.comm.size - 1 - rank


@as_declared
def causal_pairs(layout: str, tokens: int, ranks: int) -> npt.NDArray[np.int64]:
    """How many scores of causal attention are between queries of rank i and keys of rank j, shape (p, p).

    The sums of rows are the ranks' work, for "even" about 1 : 3 : 5 : 7 on four ranks. In step s of a ring, rank i
    computes the scores at [i, (i - s) % p]; the largest of these is, after the first step, a whole block under "even"
    and half of one under the others.

    Args:
        layout: "even" and "zigzag", as above; or "striped", where token t is on rank t mod p, which is not executed
            here.
        tokens: of a text; a multiple of p, for "zigzag" of 2p.
        ranks: p.

    Raises:
        UnknownNameError: there is no such layout.
        ArgumentError: the tokens do not divide evenly, or a number is less than 1.

    Source: striped, Brandon et al. 2023, arXiv 2311.09431, section 3.
    """
    runs = {"even": 1, "zigzag": 2, "striped": 1}
    require_known("layout", layout, runs)
    if ranks < 1 or tokens < 1 or tokens % (runs[layout] * ranks):
        raise ArgumentError(f"{tokens} tokens on {ranks} ranks; needs at least 1, and {runs[layout]} equal runs a rank")
    place = np.arange(tokens)
    run = place // (tokens // (runs[layout] * ranks))
    owner = {"even": run, "zigzag": np.minimum(run, 2 * ranks - 1 - run), "striped": place % ranks}[layout]
    holds = np.eye(ranks, dtype=np.int64)[owner]  # shape (tokens, p)
    pairs: npt.NDArray[np.int64] = holds.T @ np.cumsum(holds, axis=0)
    return pairs
