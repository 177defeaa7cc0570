"""Earliest: a lower bound on the time of a schedule, found without going through its rows in order.

rank 0    F0                                     B
rank 1       F0                               B           a rank waits for F of all earlier stages, does its work, and
rank 2          F0 |======== its work ======|             if that ends with a backward, those of earlier stages follow
"""

from itertools import accumulate

from simdist.parallel.pipeline.action import Backward, BackwardInput, Forward
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.times import Clockwork, Times

__all__ = ["earliest_ends"]


def earliest_ends(schedule: Schedule, times: Times) -> list[float]:
    """For each rank, a time before which it cannot have done its row, however fast messages are. The latest is exact
    for GPipe and 1F1B of equal stages, if messages take no time.

    Raises:
        ArgumentError: `times` has another number of stages.
    """
    clockwork, stages = Clockwork(schedule, times), range(schedule.num_stages)
    parts = (part for row in schedule.rows for action in row for part in action.parts)
    back = BackwardInput if any(isinstance(part, BackwardInput) for part in parts) else Backward
    down_s, up_s = ([0.0, *accumulate(clockwork.part(kind, stage) for stage in stages)] for kind in (Forward, back))
    ends_s, latest_s = list[float](), 0.0
    for rank, row in enumerate(schedule.rows):
        busy_s = sum(clockwork.of(rank, action) for action in row)
        ends_s.append(down_s[min(schedule.placement[rank])] + busy_s if row else 0.0)
        for part in row[-1].parts if row else ():
            if isinstance(part, (Backward, BackwardInput)):  # the ranks of earlier stages wait for it
                latest_s = max(latest_s, ends_s[-1] + up_s[schedule.stage(rank, part)])
    first = [rank for rank, own in enumerate(schedule.placement) if 0 in own]
    if len(first) == 1:
        ends_s[first[0]] = max(ends_s[first[0]], latest_s)
    return ends_s
