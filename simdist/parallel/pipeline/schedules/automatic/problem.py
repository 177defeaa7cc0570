r"""Problem: the input of the automatic scheduler, and a lower bound of the longest span of any stage for all schedules.

    stage i    F F F F        B . .    .      B . . . W      head: before its first B, a stage can only do F's, at most
                 \            /             /                 as many as the limit holds
    stage j        F    . . B           B   . . .            tail: when the last B leaves stage j, it has done all its
                                        |                    F's and B's, and all W's but those that the limit holds

A stage's span is from its first F to its last W.
"""

from dataclasses import dataclass
from itertools import combinations

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

    def first_back(self, i: int) -> float:
        """The time from the start of a stage's first F until it can begin its first B."""
        return sum(self.f[i:]) + sum(self.b[i + 1 :]) + sum(self.down[i:]) + sum(self.up[i:])

    @property
    def lower_bound(self) -> float:
        """The longest span cannot be shorter than this; there may be no schedule that reaches it.

        It is the largest of: a stage's work; its work with a head, a tail, or both; and the sum of memory times
        duration over all micro-batches, of M_B from F to B and M_W during W, divided by the limit.
        """
        p, m, kept = self.p, self.m, self.memory
        pending = min(self.most(kept.weight, kept.weight), self.most(kept.backward, kept.weight))
        before_b = self.most(kept.backward, kept.backward)  # how many F's a stage can do before its first B
        spans: list[float] = []
        last_b: list[float] = []  # for each stage, when its last B ends, from its first F on
        for i, (f, b, w) in enumerate(zip(self.f, self.b, self.w, strict=True)):
            back = self.first_back(i)
            f_and_b = max(m * (f + b), back + (m - before_b) * f + m * b)
            last_b.append(f_and_b + (m - pending) * w)
            area = kept.backward * (back + b) + kept.weight * w
            spans += [m * (f + b + w), f_and_b + m * w, m * area / self.limit]
        down = [sum(self.f[:i]) + sum(self.down[:i]) for i in range(p)]  # from stage 0 to stage i
        up = [sum(self.b[:i]) + sum(self.up[:i]) for i in range(p)]
        spans += [down[j] - down[i] + last_b[j] + up[j] - up[i] + self.w[i] for i, j in combinations(range(p), 2)]
        return max(spans)


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
