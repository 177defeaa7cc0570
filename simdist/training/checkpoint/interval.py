"""Interval: how long to work between two checkpoints, where devices fail.

    δ  seconds that a checkpoint takes      M  mean seconds from failure to failure; of N devices an N-th of one's
    τ  seconds of work between two          R  seconds until a job that failed is at work again, from its last one

         |--- τ ---|δ|--- τ ---|δ|--- τ -x  R  |--- τ ---|δ|            x  a failure: the work since the last is lost

The rarer the checkpoints, the more work each failure costs; the more frequent, the more time they take themselves.
Failures are independent: t seconds pass without one with probability exp(-t/M).

Source: Young 1974, CACM 17(9), 530-531; Daly 2006, Future Generation Computer Systems 22(3), 303-312.
"""

from math import exp, expm1, inf, sqrt

from simdist.errors import as_declared, require_more

__all__ = ["daly_interval_s", "expected_s", "goodput", "young_interval_s"]


@as_declared
def young_interval_s(checkpoint_s: float, failure_s: float) -> float:
    """√(2 δ M): the τ that loses the least time, if failures are rare: M is much longer than δ.

    Args:
        checkpoint_s, failure_s: δ and M.

    Raises:
        ArgumentError: δ is below 0, or M not above 0.
    """
    require_more("failure_s", failure_s, 0)
    return sqrt(2 * checkpoint_s * failure_s)


@as_declared
def daly_interval_s(checkpoint_s: float, failure_s: float) -> float:
    """√(2 δ M) (1 + ⅓ √(δ/2M) + δ/18M) - δ, or M from δ = 2M on: very nearly the τ for which `expected_s` is least.

    Checkpoints of 5 minutes every 117, 57 and 9.1 minutes, if something fails every 24 hours, 6 hours and 15 minutes.

    Args:
        checkpoint_s, failure_s: δ and M.

    Raises:
        ArgumentError: as of `young_interval_s`.
    """
    first = young_interval_s(checkpoint_s, failure_s)
    share = checkpoint_s / (2 * failure_s)
    return first * (1 + sqrt(share) / 3 + share / 9) - checkpoint_s if share < 1 else failure_s


@as_declared
def expected_s(
    work_s: float, interval_s: float, checkpoint_s: float, failure_s: float, restart_s: float = 0.0
) -> float:
    """M e^(R/M) (e^((τ+δ)/M) - 1) T/τ: how long T seconds of work take on average; restarts may fail, too.

    The last part of the work ends with a checkpoint, as all others. Infinity, where it is too long for a number.

    Args:
        work_s: T, a multiple of τ; nearly the same for any T much longer than it.
        interval_s, checkpoint_s, failure_s, restart_s: τ, δ, M and R.

    Raises:
        ArgumentError: τ or M is not above 0, or another time below 0.
    """
    require_more("failure_s", failure_s, 0)
    require_more("interval_s", interval_s, 0)
    try:
        each = failure_s * exp(restart_s / failure_s) * expm1((interval_s + checkpoint_s) / failure_s)
    except OverflowError:
        each = inf
    return each * work_s / interval_s if work_s else 0.0


@as_declared
def goodput(interval_s: float, checkpoint_s: float, failure_s: float, restart_s: float = 0.0) -> float:
    """T divided by `expected_s`: the share of the time that is work and not lost, or effective training time ratio.

    It is nearly (1 - (R + τ/2)/M) / (1 + δ/τ), if failures are rare.

        failure_s = 1000 * 86400 / 6.5 / 2048       # 6.5 a day of 1000 nodes: of 16,384 GPUs every 1.8 hours
        goodput(young_interval_s(60, failure_s), 60, failure_s, restart_s=300)          # 0.83

    Args:
        interval_s, checkpoint_s, failure_s, restart_s: τ, δ, M and R, as of `expected_s`.

    Raises:
        ArgumentError: as of `expected_s`.

    Source: Kokolis et al. 2025, HPCA, arXiv 2410.21680 (the approximation, and these failures).
    """
    return interval_s / expected_s(interval_s, interval_s, checkpoint_s, failure_s, restart_s)
