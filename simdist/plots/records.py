"""Records: checks of the runs that a picture is given, by name."""

from collections.abc import Mapping, Sized

from simdist.errors import ArgumentError
from simdist.trace import Trace

__all__ = ["by_name", "require_each"]


def by_name(runs: Mapping[str, Trace]) -> Mapping[str, Trace]:
    """These traces, by name; raises ArgumentError if they are anything else."""
    given: object = runs
    if not isinstance(given, Mapping) or not all(isinstance(trace, Trace) for trace in given.values()):
        raise ArgumentError(
            f"runs is {runs!r:.60}; needs traces by name, such as {{'mine': run.trace}}, "
            "or {'mine': simulate(schedule).trace()}"
        )
    return runs


def require_each(runs: Mapping[str, Sized], what: str) -> None:
    """Raise ArgumentError unless there are runs, and each has some of what is to be drawn."""
    if not runs or not all(map(len, runs.values())):
        raise ArgumentError(f"no {what} to draw in {[name for name, found in runs.items() if not len(found)]}")
