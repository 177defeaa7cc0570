r"""Bound: a lower bound of the longest span of any stage, for all schedules.

    stage i    F F F F        B . .    .      B . . . W      head: before its first B, a stage can only do F's, at most
                 \            /             /                 as many as the limit holds
    stage j        F    . . B           B   . . .            tail: when the last B leaves stage j, it has done all its
                                        |                    F's and B's, and all W's but those that the limit holds

A stage's span is from its first F to its last W.
"""

from itertools import combinations

from simdist.parallel.pipeline.schedules.automatic.problem import Problem

__all__ = ["first_back", "lower_bound"]


def lower_bound(given: Problem) -> float:
    """The longest span cannot be shorter than this; there may be no schedule that reaches it.

    It is the largest of: a stage's work; its work with a head, a tail, or both; and the sum of memory times duration
    over all micro-batches, of M_B from F to B and M_W during W, divided by the limit.
    """
    p, m, kept = given.p, given.m, given.memory
    pending = min(given.most(kept.weight, kept.weight), given.most(kept.backward, kept.weight))
    before_b = given.most(kept.backward, kept.backward)  # how many F's a stage can do before its first B
    spans: list[float] = []
    last_b: list[float] = []  # for each stage, when its last B ends, from its first F on
    for i, (f, b, w) in enumerate(zip(given.f, given.b, given.w, strict=True)):
        back = first_back(given, i)
        f_and_b = max(m * (f + b), back + (m - before_b) * f + m * b)
        last_b.append(f_and_b + (m - pending) * w)
        area = kept.backward * (back + b) + kept.weight * w
        spans += [m * (f + b + w), f_and_b + m * w, m * area / given.limit]
    down = [sum(given.f[:i]) + sum(given.down[:i]) for i in range(p)]  # from stage 0 to stage i
    up = [sum(given.b[:i]) + sum(given.up[:i]) for i in range(p)]
    spans += [down[j] - down[i] + last_b[j] + up[j] - up[i] + given.w[i] for i, j in combinations(range(p), 2)]
    return max(spans)


def first_back(given: Problem, i: int) -> float:
    """The time from the start of a stage's first F until it can begin its first B."""
    return sum(given.f[i:]) + sum(given.b[i + 1 :]) + sum(given.down[i:]) + sum(given.up[i:])
