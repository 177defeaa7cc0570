"""Registry: every schedule by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from inspect import signature
from numbers import Integral
from typing import Any, TypeVar

from simdist.errors import ArgumentError, UnknownNameError, require_kind, require_known, unknown_name, wrong_return
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.text import load
from simdist.parallel.pipeline.validate import validate
from simdist.registry import Registry
from simdist.words import counted, meant

__all__ = [
    "FILES",
    "OTHER_NAMES",
    "close",
    "first_name",
    "maker",
    "named",
    "options",
    "schedule",
    "schedules",
    "unknown_schedule",
]

Maker = TypeVar("Maker", bound=Callable[..., Schedule])

FILES = ".txt"
"""The ending of names that are files, in the format of `simdist.parallel.pipeline.text`."""

# In arXiv 2007.01045, 2006.09503, 2104.04473, 2401.10241, 2405.15362, 2407.21783, 2410.19367 and 2412.19437.
OTHER_NAMES = {
    "dapple": "1f1b",
    "pipedream-flush": "1f1b",
    "1f1b-i": "interleaved-1f1b",
    "1f1b-int": "interleaved-1f1b",
    "interleaved": "interleaved-1f1b",
    "depth-first": "interleaved-1f1b",
    "dfs": "interleaved-1f1b",
    "bfs": "breadth-first",
    "looped-bfs": "breadth-first",  # PyTorch
    "vpp": "interleaved-1f1b",  # PaddlePaddle, as f-then-b
    "afab": "gpipe",
    "f-then-b": "gpipe",
    "2bw": "pipedream-2bw",
    "zb-1p": "zb-h1",
    "zb-2p": "zb-auto",
    "v-zb": "zb-v",
    "zbv-zero-bubble": "zb-v",  # PyTorch
}
"""Names of schedules in other papers, and those in simdist."""

_FUNCTIONS = {"seq1f1b": "seq1f1b", "terapipe": "terapipe_s", "bpipe": "formulas.bpipe_kept"}
"""What papers call schedules and is a function here: it is for parts of texts, or changes another schedule."""

_MAKERS = Registry[Callable[..., Schedule]]("schedule", OTHER_NAMES)
_COUNTS = ("stages", "micro_batches", "chunks", "group")
_MOST_ACTIONS = 1 << 24  # of forwards; more would take gigabytes


def named(name: str) -> Callable[[Maker], Maker]:
    """Register a function that makes a schedule from stages, micro-batches and any options. `schedule`,
    `simdist plot schedule` and `simdist train --schedule` then accept its name.

        @named("mine")
        def mine(stages, micro_batches):
            m = range(micro_batches)
            row = [*map(Forward, m), *map(BackwardInput, m), *map(BackwardWeight, m)]
            return Schedule("mine", [row] * stages)

    From the command line come `chunks`, the stages of a rank, and `times`, if the function takes them. A name of your
    own may be registered again.

    Raises:
        ArgumentError: there is no name, or it is one of simdist's own; or the function does not take both arguments.
    """
    return _MAKERS.registering(name, lambda maker: maker, stages=2, micro_batches=2)


def close() -> None:
    """Call what has been registered so far simdist's own."""
    _MAKERS.close()


def schedules() -> list[str]:
    """The names of all schedules."""
    return list(_MAKERS)


def first_name(name: str) -> str:
    """The name in simdist of a schedule given by another paper's name, or in another spelling: ZBV for zb-v."""
    return meant(name, _MAKERS, OTHER_NAMES) or name


def options(name: str) -> list[str]:
    """The options of a schedule besides stages and micro-batches.

    Raises:
        UnknownNameError: there is no such schedule; the message lists all.
    """
    return list(_options(maker(name)))


@cache
def _options(made_by: Callable[..., Schedule]) -> tuple[str, ...]:
    return tuple(each for each in signature(made_by).parameters if each not in ("stages", "micro_batches"))


def maker(name: str) -> Callable[..., Schedule]:
    """What makes the schedules of this name, now: a name may be registered again.

    Raises:
        UnknownNameError: there is no such schedule; the message lists all.
    """
    require_kind("name of a schedule", name, str, "'1f1b'")
    if name.endswith(FILES):
        return lambda stages, micro_batches: load(name)  # which may be for other numbers
    if (first := first_name(name)) not in _MAKERS:
        raise unknown_schedule(name, _MAKERS)
    return _MAKERS[first]


def unknown_schedule(name: str, known: Iterable[str]) -> UnknownNameError:
    """The error that no schedule has this name; it lists those that are known."""
    function = meant(name, _FUNCTIONS)
    if function is not None:
        return UnknownNameError(f"{name} is no schedule by name: see simdist.parallel.pipeline.{_FUNCTIONS[function]}")
    return unknown_name("schedule", name, known)


def _check_counts(name: str, numbers: Mapping[str, Any]) -> None:
    """Raise ArgumentError for counts that are not whole numbers from 1 on, or too large."""
    for what in _COUNTS:
        number = numbers.get(what, 1)
        if not isinstance(number, Integral):
            raise ArgumentError(f"{name} with {what}={number!r}; needs a whole number")
        if number < 1:
            raise ArgumentError(f"{name} with {what}={number}; needs at least 1")
    if (actions := numbers["stages"] * numbers["micro_batches"] * numbers.get("chunks", 1)) > _MOST_ACTIONS:
        raise ArgumentError(f"{name} with {dict(numbers)}: {actions:,} forwards; needs at most {_MOST_ACTIONS:,}")


def schedule(name: str, stages: int, micro_batches: int, **others: Any) -> Schedule:
    """The schedule of this name, or in this file, such as mine.txt. Other papers' names and spellings work too.

    Args:
        stages: the number of ranks, p; some schedules cut the model into more stages than that.
        micro_batches: m; it may be less than `stages`.
        others: options of the schedule: chunks, the stages of a rank; group, the micro-batches per update; times, for
            v-half, v-min and zb-auto; memory_limit and memory, for zb-auto.

    Raises:
        UnknownNameError: no such schedule or option; the message lists all.
        DataError: the file cannot be read.
        ScheduleError: the schedule in the file, or of a program's own, is invalid.
        ArgumentError: a number is below 1, too large, or not supported by the schedule; or the schedule made, or in
            the file, is for other numbers.
    """
    known = options(name)
    for option in others:
        require_known(f"option of {name}", option, known)
    numbers: dict[str, Any] = {"stages": stages, "micro_batches": micro_batches, **others}
    _check_counts(name, numbers)
    made = maker(name)(**numbers)
    if not isinstance(made, Schedule):
        raise wrong_return(f"what makes {name}", made, "a Schedule")
    if not _MAKERS.is_own(name):
        validate(made)
    if (made.num_ranks, made.num_micro_batches) != (stages, micro_batches):
        raise ArgumentError(
            f"{name} is a schedule of {counted(made.num_ranks, 'rank')} and "
            f"{counted(made.num_micro_batches, 'micro-batch')}; "
            f"{counted(stages, 'stage')} and {counted(micro_batches, 'micro-batch')} are asked for"
        )
    # A program's own may be made of a paper's, and named after it; but the paper's formulas are not for its rows.
    return replace(made, name=first_name(name)) if _MAKERS.is_own(made.name) and not _MAKERS.is_own(name) else made
