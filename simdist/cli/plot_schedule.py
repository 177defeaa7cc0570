"""Schedule: the subject of `simdist plot schedule`: pipeline schedules simulated, in figures and in a picture."""

import argparse
import sys
from pathlib import Path
from typing import Any

from simdist.cli.picture_file import out_of, write
from simdist.errors import ArgumentError
from simdist.parallel import pipeline
from simdist.parallel.pipeline.formulas import formula, has_formula
from simdist.parallel.pipeline.schedules import FILES, options
from simdist.parallel.pipeline.schedules.automatic import ZB_MEMORY, lower_bound
from simdist.parallel.pipeline.schedules.registry import first_name
from simdist.plots import pipeline_schedule

__all__ = ["add_arguments", "draw"]

_MANY = 100_000  # actions
_PER_S = 10_000


def add_arguments(group: Any) -> None:
    """Its size, its times, and the schedule to compare it with."""
    group.add_argument("--stages", type=int, metavar="P", help="number of pipeline ranks (4, or as in the file)")
    group.add_argument("--micro-batches", type=int, metavar="M", help="number of micro-batches (8, or as in the file)")
    group.add_argument("--chunks", type=int, metavar="V", help="stages per rank, if the schedule leaves it open (2)")
    group.add_argument(
        "--times",
        type=float,
        nargs=3,
        default=[1.0, 1.0, 1.0],
        metavar=("TF", "TB", "TW"),
        help="times of a forward, an input gradient and a weight gradient (1 1 1)",
    )
    group.add_argument("--communication", type=float, default=0.0, metavar="T", help="time of a message (0)")
    group.add_argument(
        "--overlapped", type=float, metavar="T", help="time of an overlapped forward and backward (their sum)"
    )
    group.add_argument(
        "--memory-limit", type=float, metavar="M", help="memory limit of zb-auto's search, in the unit of M_B (2p M_B)"
    )
    group.add_argument(
        "--memory-of",
        type=float,
        nargs=2,
        metavar=("M_B", "M_W"),
        help="memory of a micro-batch until its input gradient, and then until its weight gradient (1 1; for zb-auto 1 "
        "0.5)",
    )
    group.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="NAME",
        help="draw this schedule too, below, on the same axis; may be repeated",
    )
    group.add_argument("--memory", action="store_true", help="draw each rank's memory over time")
    group.add_argument("--text", action="store_true", help="print the schedule; draw it only with -o")


def draw(args: argparse.Namespace) -> None:
    """Simulate schedules, print their figures, and draw them."""
    if len(args.subject) != 2:
        given = " ".join(["plot", *args.subject])
        raise ArgumentError(f"{given}: needs the name of one schedule; there are {', '.join(pipeline.schedules())}")
    names = [args.subject[1], *args.against]
    for name in args.against:
        if names.count(name) > 1:
            raise ArgumentError(f"--against is {name}, the same schedule; needs another")
    args.stages, args.micro_batches = _sizes(names, args)
    out = out_of(args, f"{Path(names[0]).stem}-{args.stages}-{args.micro_batches}.png")
    forward, backward_input, backward_weight = args.times
    times = pipeline.Times(forward, backward_input, backward_weight, args.communication, args.overlapped)
    memory = _memory_of(names, args)
    runs = []
    made = [_schedule_of(name, names, args, times, memory) for name in names]  # all, before any is simulated
    for name, schedule in zip(names, made, strict=True):
        if (actions := sum(map(len, schedule.rows))) > _MANY:
            sys.stderr.write(f"{name}: {actions:,} actions, which take about {actions / _PER_S:,.0f} s\n")
        report = pipeline.validate(schedule, memory)
        runs.append(pipeline.simulate(schedule, times))
        if args.text:
            print(pipeline.to_text(schedule), end="")
        _print_figures(runs[-1], report, args, memory)
    took = f"a forward {forward:g}, an input gradient {backward_input:g}, a weight gradient {backward_weight:g}"
    print(f"times: {took}, for a p-th of the model; see --times")
    if args.out or not args.text:
        own = [run.schedule.name for run in runs]
        labels = own if len(set(own)) == len(own) else names
        traces = {label: run.trace() for label, run in zip(labels, runs, strict=True)}
        drawn = memory if args.memory else None
        write(pipeline_schedule(traces, memory=drawn, arrows=args.arrows, unit="", width=args.width), out)


def _sizes(names: list[str], args: argparse.Namespace) -> tuple[int, int]:
    """The number of stages and micro-batches of all schedules compared: as given, or as in a file."""
    files = [pipeline.load(name) for name in names if name.endswith(FILES)]
    stages, micro_batches = (files[0].num_ranks, files[0].num_micro_batches) if files else (4, 8)
    return (
        stages if args.stages is None else args.stages,
        micro_batches if args.micro_batches is None else args.micro_batches,
    )


def _memory_of(names: list[str], args: argparse.Namespace) -> pipeline.Memory:
    """The memory of a micro-batch, the same for all schedules compared."""
    if args.memory_of:
        return pipeline.Memory(*args.memory_of)
    return ZB_MEMORY if "zb-auto" in map(first_name, names) else pipeline.Memory()


def _schedule_of(
    name: str, names: list[str], args: argparse.Namespace, times: pipeline.Times, memory: pipeline.Memory
) -> pipeline.Schedule:
    """The schedule of this name, or in this file; it is one of `names`."""
    takes = options(name)
    given: dict[str, Any] = {"times": times, "memory": memory}
    others = {option: value for option, value in given.items() if option in takes}
    for option in ("chunks", "memory_limit"):
        value = getattr(args, option)
        for_other = any(option in options(other) for other in names)
        if value is not None and (option in takes or not for_other):  # an option that none takes is an error
            others[option] = value
    return pipeline.schedule(name, stages=args.stages, micro_batches=args.micro_batches, **others)


def _print_figures(
    run: pipeline.Simulation, report: pipeline.ScheduleCosts, args: argparse.Namespace, memory: pipeline.Memory
) -> None:
    """A schedule's bubble and memory, as simulated, beside its paper's formula or the bounds of its search."""
    schedule, beside = run.schedule, "formula"
    own = [run.own_bubble, run.own_bubble_rate, *report.memory]
    said: list[float | None] = [None] * len(own)
    shape: dict[str, Any] = {"stages": args.stages, "micro_batches": args.micro_batches, "memory": memory}
    if schedule.name == "zb-auto":
        least, beside = lower_bound(**shape, memory_limit=args.memory_limit, times=run.times), "bound"
        limit = 2 * args.stages * memory.backward if args.memory_limit is None else args.memory_limit
        bubble = max(0.0, least - run.busy(0))
        said = [bubble, bubble / least if least else 0.0, *[limit] * args.stages]
    elif has_formula(schedule.name):
        found = formula(schedule.name, times=run.times, **shape, chunks=len(schedule.placement[0]))
        idle = (found.bubble, found.bubble_rate) if found.filled else (None, None)
        said = [*idle, *found.memory]
    print(f"{schedule.name}: makespan {run.makespan:.6g}, idle {run.bubble_rate:.4f} of it")
    print(f"  {'':40} {'simulated':>10} {beside:>10}")
    what = "micro-batches" if memory == pipeline.Memory() else f"memory ({memory.backward:g}, then {memory.weight:g})"
    words = ["bubble of the longest rank's own span", "bubble rate of that span"]
    words += [f"peak {what} of rank {rank}" for rank in range(schedule.num_ranks)]
    for word, value, formula_says in zip(words, own, said, strict=True):
        print(f"  {word:40} {value:10.4f} {'-' if formula_says is None else f'{formula_says:.4f}':>10}")
    if args.communication and has_formula(schedule.name):
        print("  formula: the paper's, for messages that take no time")
