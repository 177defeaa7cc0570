"""Experts: what a run's report says about a mixture of experts."""

from math import inf

from simdist.parallel.expert import routes
from simdist.trace import Trace
from simdist.training.trainer import Line

__all__ = ["experts_words"]


def experts_words(line: Line, trace: Trace) -> str:
    """The experts' auxiliary loss, and how even their loads are, if that is on the record.

    Args:
        line: the last of the log.
    """
    words = f"experts: auxiliary loss {line.auxiliary_loss:.4f} nats a byte, beside the loss"
    found = [routed for routed in routes(trace).values() if 0 < sum(routed.asked) < inf]  # of phantoms nan
    if found:
        most = max(max(routed.asked) * len(routed.asked) / sum(routed.asked) for routed in found)
        dropped = sum(sum(routed.dropped) for routed in found) / sum(sum(routed.asked) for routed in found)
        words += f"; the busiest is asked for {most:.2f} times its share, {dropped:.1%} of choices are dropped"
    return words
