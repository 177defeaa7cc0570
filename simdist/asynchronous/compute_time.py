"""Compute time: how long each rank works on each step, reproducible from a seed.

A time depends only on (seed, rank, step), not on the order of the calls. So ranks may run ahead of each other or
repeat a step, and runs under different consistency rules draw exactly the same times.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from statistics import NormalDist

from simdist.comm import Communicator
from simdist.errors import ArgumentError, as_declared, require_least

__all__ = ["ComputeTime", "Constant", "Exponential", "LogNormal", "Pausing", "Slowed"]

_SLOWEST = 1e12
_NORMAL = NormalDist()


class ComputeTime(ABC):
    """How long a rank works on a step; `rank` and `step` count from 0."""

    @abstractmethod
    def seconds(self, rank: int, step: int) -> float:
        """The time that this rank's step takes in addition to its actual computation."""

    def slowness(self, rank: int) -> float:
        """The factor by which this rank's actual computation is slower; 1 for a rank at full speed."""
        return 1.0

    def more_s(self, rank: int, step: int, worked_s: float = 0.0) -> float:
        """The extra time of a step whose actual computation on this rank took worked_s."""
        return self.seconds(rank, step) + (self.slowness(rank) - 1) * worked_s

    def spend(self, comm: Communicator, step: int, worked_s: float = 0.0, rank: int | None = None) -> None:
        """Let the extra time of this rank pass: on a virtual clock, or asleep under a real one.

        Args:
            worked_s: how long its actual computation for this step took.
            rank: whose times to take; the communicator's own rank if not given.
        """
        more_s = self.more_s(comm.rank if rank is None else rank, step, worked_s)
        if more_s > 0:
            comm.spend(more_s)


@dataclass(frozen=True)
class Constant(ComputeTime):
    """Always the same time; with 0 a step takes only its actual computation."""

    step_s: float = 0.0

    def __post_init__(self) -> None:
        _require(step_s=self.step_s)

    def seconds(self, rank: int, step: int) -> float:
        """See ComputeTime."""
        return self.step_s


@dataclass(frozen=True)
class Exponential(ComputeTime):
    """Times with P(T > least_s + t) = exp(-t / mean_s): the textbook model of stragglers, memoryless from least_s on.

    Args:
        mean_s: the mean of what they are longer than least_s.
        seed: at least 0, as are the others.
        least_s: the shortest time, of a step that nothing slows down.
    """

    mean_s: float = 1.0
    seed: int = 0
    least_s: float = 0.0

    def __post_init__(self) -> None:
        _require(mean_s=self.mean_s, seed=self.seed, least_s=self.least_s)

    def seconds(self, rank: int, step: int) -> float:
        """See ComputeTime."""
        return self.least_s - self.mean_s * math.log(_uniform(self.seed, rank, step))

    @as_declared
    def first_s(self, k: int, ranks: int) -> float:
        """The mean time until the first k of this many ranks have finished a step.

        least_s, and (1/n + 1/(n-1) + … + 1/(n-k+1)) mean_s, or (H_n - H_{n-k}) mean_s, for n ranks: while i of them are
        working, the next finishes after mean_s / i on average. Where work is coded so that any k of n parts suffice,
        each part is a k-th of it: then divide both times by k. Gradients are not linear in the data, so each rank works
        on s + 1 of n parts of a batch where any n - s ranks are to suffice: multiply by (s + 1) / n (gradient coding).

        Raises:
            ArgumentError: k is below 0 or above the number of ranks.

        Source: Lee, Lam, Pedarsani, Papailiopoulos, Ramchandran 2018, IEEE Trans. Information Theory 64(3), 1514-1529
        (coded work); Tandon, Lei, Dimakis, Karampatziakis 2017, ICML (gradient coding).
        """
        if not 0 <= k <= ranks:
            raise ArgumentError(f"the first {k} of {ranks} ranks; needs 0 to {ranks}")
        return self.least_s * (k > 0) + self.mean_s * sum(1 / i for i in range(ranks - k + 1, ranks + 1))

    @as_declared
    def next_s(self, k: int, ranks: int) -> float:
        """The mean time in which k more steps are finished, if no rank of n waits: k/n (least_s + mean_s).

        With k = 1 it is the asynchronous server's time from update to update; in the time of n of them, if least_s is
        0, a synchronous server does 1/H_n of a step. Where the k steps have to be of different ranks, they then take
        `first_s`: ranks that are still at work need as long, on average, as if they had just begun.

        Raises:
            ArgumentError: ranks is less than 1.

        Source: Dutta et al. 2018, arXiv 1803.01113, of K-batch-async SGD; K-async SGD is the other.
        """
        require_least("ranks", ranks, 1)
        return (self.least_s + self.mean_s) * k / ranks


@dataclass(frozen=True)
class LogNormal(ComputeTime):
    """Times whose logarithm is normal: most are near the median, a few are very long.

    Args:
        mean_s: the mean of the times themselves.
        sigma: the standard deviation of their logarithm.
        seed: at least 0, as are the others.
    """

    mean_s: float = 1.0
    sigma: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        _require(mean_s=self.mean_s, sigma=self.sigma, seed=self.seed)

    def seconds(self, rank: int, step: int) -> float:
        """See ComputeTime."""
        z = _NORMAL.inv_cdf(_uniform(self.seed, rank, step))
        return self.mean_s * math.exp(self.sigma * z - self.sigma**2 / 2)


@dataclass(frozen=True)
class Slowed(ComputeTime):
    """The times of `base`, with some ranks slower by a factor, in both the extra time and the actual computation.

    Args:
        base: the times at full speed.
        factors: rank -> its factor, above 0 and below 1e12; {2: 4.0} makes rank 2 take four times as long.
    """

    base: ComputeTime = field(default_factory=Constant)
    factors: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rank, factor in self.factors.items():
            _require(rank=rank)
            if not 0 < factor < _SLOWEST:
                raise ArgumentError(
                    f"rank {rank} cannot be slow by the factor {factor}; needs more than 0 and less than {_SLOWEST:g}"
                )

    def seconds(self, rank: int, step: int) -> float:
        """See ComputeTime."""
        return self.base.seconds(rank, step) * self.factors.get(rank, 1.0)

    def slowness(self, rank: int) -> float:
        """See ComputeTime."""
        return self.base.slowness(rank) * self.factors.get(rank, 1.0)


@dataclass(frozen=True)
class Pausing(ComputeTime):
    """The times of `base`, except that one rank pauses in one step, as for garbage collection.

    Args:
        pause_s: how much longer that step takes.
    """

    base: ComputeTime = field(default_factory=Constant)
    rank: int = 0
    step: int = 0
    pause_s: float = 1.0

    def __post_init__(self) -> None:
        _require(rank=self.rank, step=self.step, pause_s=self.pause_s)

    def seconds(self, rank: int, step: int) -> float:
        """See ComputeTime."""
        return self.base.seconds(rank, step) + (self.pause_s if (rank, step) == (self.rank, self.step) else 0.0)

    def slowness(self, rank: int) -> float:
        """See ComputeTime."""
        return self.base.slowness(rank)


def _uniform(seed: int, rank: int, step: int) -> float:
    """A number strictly between 0 and 1, from a hash of these three."""
    digest = blake2b(b"%d %d %d" % (seed, rank, step), digest_size=8).digest()
    return ((int.from_bytes(digest, "little") >> 11) + 0.5) / (1 << 53)


def _require(**numbers: float) -> None:
    """Raise ArgumentError unless these are finite and at least 0."""
    for name, value in numbers.items():
        require_least(name, value, 0)
        if value == math.inf:
            raise ArgumentError(f"{name} is {value!r}; needs at least 0, and less than infinity")
