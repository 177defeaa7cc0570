"""The verb `plot`."""

import argparse
from math import inf
from pathlib import Path
from typing import Any

from simdist.cli import plot_shards
from simdist.cli.plot_runs import draw_runs
from simdist.collectives.watch import watched
from simdist.errors import ArgumentError, require_least, unknown_name
from simdist.parallel import pipeline
from simdist.parallel.pipeline.formulas import formula, has_formula
from simdist.parallel.pipeline.schedules import FILES, options
from simdist.parallel.pipeline.schedules.automatic import ZB_MEMORY, lower_bound
from simdist.plots import (
    attention_work,
    collective_steps,
    expert_load,
    pipeline_schedule,
    timeline,
    timeline_page,
    traffic,
)
from simdist.plots.file import check_format, save
from simdist.plots.style import PAGE
from simdist.trace import Trace

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subject, the output file, and the options of each subject."""
    parser.usage = (
        "simdist plot (TRACE.json | collective OPERATION ALGORITHM | schedule NAME | shards | runs FOLDER …) "
        "[-o FILE] [options]"
    )
    parser.epilog = (
        "Draws a recorded run: simdist plot trace.json -o run.png; with --html, as an interactive page for a browser. "
        "Or a collective, step by step, executed on virtual ranks: "
        "simdist plot collective all_reduce ring --ranks 4 -o ring.png. "
        "Or a pipeline's schedule, simulated: simdist plot schedule zb-h1 --stages 4 --micro-batches 8. "
        f"Schedules: {', '.join(pipeline.schedules())}, or a text file with one. "
        "Or the part of a GPT that each rank holds: simdist plot shards --tp 2 --dp 2. "
        "Or the losses of training runs in one picture, and their differences from the first run's: "
        "simdist plot runs runs/gpt-1rank runs/gpt-4ranks -o losses.png."
    )
    parser.add_argument(
        "subject",
        nargs="+",
        metavar="WHAT",
        help="a file written by Trace.save, or the word collective, schedule, shards or runs",
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="named .png, .svg or .pdf, or .html (default: after WHAT)"
    )
    parser.add_argument("--width", type=float, default=PAGE, metavar="INCHES", help=f"picture width ({PAGE:g})")
    parser.add_argument("--arrows", action="store_true", help="draw an arrow for each message (timeline, schedule)")
    groups = {
        name: parser.add_argument_group(f"for {name}") for name in ("a trace", "a collective", "a schedule", "shards")
    }
    _add_trace_arguments(groups["a trace"])
    _add_collective_arguments(groups["a collective"])
    _add_schedule_arguments(groups["a schedule"])
    plot_shards.add_arguments(groups["shards"])
    parser.set_defaults(groups=groups)


def _add_collective_arguments(collective: Any) -> None:
    collective.add_argument("--ranks", type=int, default=4, metavar="N", help="number of ranks, 1 to 16 (4)")
    collective.add_argument("--root", type=int, default=0, metavar="RANK", help="root of a rooted collective (0)")
    collective.add_argument("--steps", type=int, nargs="+", metavar="K", help="0 is the start (all, at most 16)")
    collective.add_argument("--ranks-per-node", type=int, default=0, metavar="N", help="0: all on one node (0)")


def _add_trace_arguments(trace: Any) -> None:
    trace.add_argument(
        "--kind",
        choices=["timeline", "traffic", "attention", "experts"],
        default="timeline",
        help="attention: the work of ring attention's ranks; experts: the load of each (timeline)",
    )
    trace.add_argument("--html", action="store_true", help="as a self-contained page: zoom, pan, hover")
    trace.add_argument("--start", type=float, metavar="SECONDS", help="leave out everything before")
    trace.add_argument("--end", type=float, metavar="SECONDS", help="leave out everything after")


def _add_schedule_arguments(schedule: Any) -> None:
    schedule.add_argument("--stages", type=int, metavar="P", help="number of pipeline ranks (4, or as in the file)")
    schedule.add_argument(
        "--micro-batches", type=int, metavar="M", help="number of micro-batches (8, or as in the file)"
    )
    schedule.add_argument("--chunks", type=int, metavar="V", help="stages per rank, if the schedule leaves it open (2)")
    schedule.add_argument(
        "--times",
        type=float,
        nargs=3,
        default=[1.0, 1.0, 1.0],
        metavar=("TF", "TB", "TW"),
        help="times of F, B, W (1 1 1)",
    )
    schedule.add_argument("--communication", type=float, default=0.0, metavar="T", help="time of a message (0)")
    schedule.add_argument(
        "--overlapped", type=float, metavar="T", help="time of an overlapped forward and backward (their sum)"
    )
    schedule.add_argument(
        "--memory-limit", type=float, metavar="M", help="memory limit for zb-auto's search, in units of M_B (2p M_B)"
    )
    schedule.add_argument(
        "--memory-of",
        type=float,
        nargs=2,
        metavar=("M_B", "M_W"),
        help="memory of a micro-batch until its B, and then until its W (1 1; for zb-auto 1 0.5)",
    )
    schedule.add_argument("--against", metavar="NAME", help="draw this schedule too, below, on the same axis")
    schedule.add_argument("--memory", action="store_true", help="draw each rank's memory over time")
    schedule.add_argument("--text", action="store_true", help="print the schedule; draw it only with -o")


def execute(args: argparse.Namespace) -> int:
    """Draw and write the picture."""
    words = args.subject
    _check_options(args)
    if args.html:
        return _page(args)
    if words[0] == "collective":
        if len(words) != 3:
            raise ArgumentError(f"plot collective takes an operation and an algorithm, not {words[1:]}")
        out = args.out or Path(f"{words[1]}-{words[2]}-{args.ranks}.png")
        check_format(out)
        require_least("--ranks-per-node", args.ranks_per_node, 0)
        record = watched(words[1], words[2], args.ranks, root=args.root, ranks_per_node=args.ranks_per_node)
        figure = collective_steps(record, width=args.width, steps=args.steps)
    elif words[0] == "schedule":
        return _schedule(args)
    elif words[0] in ("shards", "runs"):
        out = args.out or Path(f"{words[0]}.png")
        check_format(out)
        figure = draw_runs(words[1:], args.width) if words[0] == "runs" else plot_shards.draw(args)
    elif len(words) == 1:
        source = Path(words[0])
        out = args.out or source.parent / f"{source.stem}-{args.kind}.png"
        check_format(out)
        figure = _of_trace(Trace.load(source), args)
    else:
        raise unknown_name("subject", words[0], ["collective", "schedule", "shards", "runs"])
    _write(figure, out)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise ArgumentError if an option is given that only another subject takes."""
    subject = {"collective": "a collective", "schedule": "a schedule"}.get(args.subject[0], args.subject[0])
    if subject not in ("runs", *args.groups):
        if len(args.subject) > 1:
            return  # an unknown subject, which execute reports
        subject = "a trace"
    for name, group in args.groups.items():
        for option in group._group_actions:
            if name != subject and getattr(args, option.dest) != option.default:
                raise ArgumentError(f"{option.option_strings[0]} is for {name}, and this is {subject}")
    if args.arrows and (subject not in ("a trace", "a schedule") or args.html or args.kind != "timeline"):
        raise ArgumentError("--arrows is for pictures of a timeline or a schedule")


def _page(args: argparse.Namespace) -> int:
    """Write a recorded run as a page."""
    if len(args.subject) > 1 or args.kind != "timeline":
        raise ArgumentError(f"--html shows the timeline of a trace, not {' '.join(args.subject)} with {args.kind}")
    source = Path(args.subject[0])
    out = args.out or source.parent / f"{source.resolve().stem or 'trace'}.html"
    if out.suffix.lower() != ".html":
        raise ArgumentError(f"cannot write {out}: with --html its name must end in .html")
    timeline_page(Trace.load(source), start_s=args.start, end_s=args.end).save(out)
    print(f"written: {out}")
    return 0


def _write(figure: Any, out: Path) -> None:
    save(figure, out)
    print(f"drawn: {out}")


def _schedule(args: argparse.Namespace) -> int:
    """Simulate schedules, print their figures, and draw them."""
    if len(args.subject) != 2:
        raise ArgumentError(f"plot schedule takes the name of one schedule, not {args.subject[1:]}")
    if args.against == args.subject[1]:
        raise ArgumentError(f"--against is {args.against}, the same schedule; needs another")
    names = [args.subject[1], *([args.against] if args.against else [])]
    args.stages, args.micro_batches = _sizes(names, args)
    out = args.out or Path(f"{Path(names[0]).stem}-{args.stages}-{args.micro_batches}.png")
    check_format(out)
    forward, backward_input, backward_weight = args.times
    times = pipeline.Times(forward, backward_input, backward_weight, args.communication, args.overlapped)
    memory = _memory_of(names, args)
    runs = []
    for name in names:
        schedule = _schedule_of(name, args, times, memory)
        report = pipeline.validate(schedule, memory)
        runs.append(pipeline.simulate(schedule, times))
        if args.text:
            print(pipeline.to_text(schedule), end="")
        _print_figures(runs[-1], report, args, memory)
    if args.out or not args.text:
        own = [run.schedule.name for run in runs]
        labels = own if len(set(own)) == len(own) else names
        traces = {label: run.trace() for label, run in zip(labels, runs, strict=True)}
        _write(
            pipeline_schedule(
                traces, memory=memory if args.memory else None, arrows=args.arrows, unit="", width=args.width
            ),
            out,
        )
    return 0


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
    return ZB_MEMORY if "zb-auto" in names else pipeline.Memory()


def _schedule_of(
    name: str, args: argparse.Namespace, times: pipeline.Times, memory: pipeline.Memory
) -> pipeline.Schedule:
    """The schedule of this name, or in this file."""
    takes = options(name)
    given: dict[str, Any] = {"times": times, "memory": memory}
    others = {option: value for option, value in given.items() if option in takes}
    other = args.against if name == args.subject[1] else args.subject[1]
    for option in ("chunks", "memory_limit"):
        value = getattr(args, option)
        for_other = other in pipeline.schedules() and option in options(other)
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


def _of_trace(trace: Trace, args: argparse.Namespace) -> Any:
    if args.kind == "timeline":
        return timeline(trace, start_s=args.start, end_s=args.end, arrows=args.arrows, width=args.width)
    start_s, end_s = -inf if args.start is None else args.start, inf if args.end is None else args.end
    trace = Trace([s for s in trace if start_s <= s.start_s < end_s], trace.ranks)
    if args.kind == "traffic":
        return traffic(trace, width=args.width)
    if args.kind == "attention":
        return attention_work({Path(args.subject[0]).stem: trace}, width=args.width)
    return expert_load(trace, width=args.width)
