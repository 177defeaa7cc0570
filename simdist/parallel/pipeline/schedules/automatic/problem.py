"""Problem: the input of the automatic scheduler."""

from dataclasses import dataclass

from simdist.errors import ArgumentError
from simdist.parallel.pipeline.action import BackwardInput, BackwardWeight, Forward
from simdist.parallel.pipeline.memory import Memory
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.times import Clockwork, Times

__all__ = ["Problem", "problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """m micro-batches through p stages, within a memory limit.

    Attributes:
        p, m: stages and micro-batches.
        f, b, w: TF, TB and TW of each stage.
        down, up: Tcomm from each stage but the last to the next, and back.
        memory: M_B and M_W.
        limit: the most a stage may keep, in the unit of `memory`.
    """

    p: int
    m: int
    f: tuple[float, ...]
    b: tuple[float, ...]
    w: tuple[float, ...]
    down: tuple[float, ...]
    up: tuple[float, ...]
    memory: Memory
    limit: float

    def fits(self, level: float) -> bool:
        """Whether this level is within the limit, up to rounding."""
        return level <= self.limit * (1 + 1e-12)

    def most(self, first: float, each: float) -> int:
        """How many of the m fit at once, where the first takes `first` and every other `each`."""
        if not self.fits(first + (self.m - 1) * each):
            return 1 + int((self.limit * (1 + 1e-12) - first) / each)
        return self.m


def problem(stages: int, micro_batches: int, times: Times, memory: Memory, limit: float | None) -> Problem:
    """The problem for these times and this memory, by default with a limit of 2p M_B.

    Raises:
        ArgumentError: no micro-batch fits into the limit, M_B is 0, or `times` has another number of stages.
    """
    limit = 2 * stages * memory.backward if limit is None else limit
    if memory.backward == 0 or not limit >= max(memory.backward, memory.weight):
        raise ArgumentError(
            f"zb-auto within {limit} of memory, where M_B is {memory.backward} and M_W is {memory.weight}: needs a "
            "limit that holds one micro-batch, and M_B above 0"
        )
    clockwork = Clockwork(Schedule("zb-auto", [[]] * stages), times)
    f, b, w = (
        tuple(clockwork.of(r, kind(0)) for r in range(stages)) for kind in (Forward, BackwardInput, BackwardWeight)
    )
    down = tuple(times.hop(s, s + 1) for s in range(stages - 1))
    up = tuple(times.hop(s + 1, s) for s in range(stages - 1))
    return Problem(stages, micro_batches, f, b, w, down, up, memory, float(limit))
