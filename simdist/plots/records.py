"""Records: the traces that a picture is given."""

from collections.abc import Mapping

from simdist.errors import ArgumentError
from simdist.trace import Trace

__all__ = ["by_name"]


def by_name(runs: Mapping[str, Trace]) -> Mapping[str, Trace]:
    """These traces, by name; raises ArgumentError if they are anything else."""
    given: object = runs
    if not isinstance(given, Mapping) or not all(isinstance(trace, Trace) for trace in given.values()):
        raise ArgumentError(
            f"runs is {runs!r:.60}; needs traces by name, such as {{'mine': run.trace}}, "
            "or {'mine': simulate(schedule).trace()}"
        )
    return runs
