"""The verb `plot`."""

import argparse
import sys
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simdist.cli import plot_schedule, plot_shards
from simdist.cli.picture_file import out_of, write
from simdist.collectives import algorithms
from simdist.collectives.watch import watched
from simdist.errors import ArgumentError, DataError, require_least, unknown_name
from simdist.parallel.pipeline import schedules
from simdist.plots import (
    Losses,
    attention_work,
    collective_steps,
    expert_load,
    loss_differences,
    timeline,
    timeline_page,
    traffic,
)
from simdist.plots.file import check_folder
from simdist.plots.style import PAGE
from simdist.trace import Trace
from simdist.training import history

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subject, the output file, and the options of each subject."""
    subjects = ("TRACE.json …", "collective OPERATION ALGORITHM …", "schedule NAME …", "shards …", "runs FOLDER …")
    parser.usage = "\n       ".join(f"simdist plot {subject}" for subject in subjects)
    parser.epilog = (
        "Draws a recorded run: simdist plot trace.json -o run.png; with --html, as an interactive page for a browser. "
        "Or a collective, step by step, executed on virtual ranks: "
        "simdist plot collective all_reduce ring --ranks 4 -o ring.png. "
        "Or a pipeline's schedule, simulated: simdist plot schedule zb-h1 --stages 4 --micro-batches 8. "
        f"Schedules: {', '.join(schedules())}, or a text file with one. "
        "Or the part of a GPT that each rank holds: simdist plot shards --tp 2 --dp 2. "
        "Or the losses of training runs in one picture, and their differences from the first run's: "
        "simdist plot runs runs/gpt-1rank runs/gpt-4ranks -o losses.png."
    )
    parser.add_argument(
        "subject",
        nargs="+",
        metavar="WHAT",
        help="a trace's file, or a run's folder with one, or the word collective, schedule, shards or runs",
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
    plot_schedule.add_arguments(groups["a schedule"])
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


def execute(args: argparse.Namespace) -> int:
    """Draw and write the picture."""
    _check_options(args)
    subject = args.subject[0]
    if args.html:
        _page(args)
    elif subject in _DRAWN:
        _DRAWN[subject](args)
    elif len(args.subject) == 1:
        _trace(args)
    else:
        raise unknown_name("subject", subject, _DRAWN)
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
    if args.html and args.width != PAGE:
        raise ArgumentError(
            f"--width is {args.width:g}, and --html a page as wide as its window; --width is for pictures"
        )


def _page(args: argparse.Namespace) -> None:
    """Write a recorded run as a page."""
    if len(args.subject) > 1 or args.kind != "timeline":
        raise ArgumentError(f"--html shows the timeline of a trace, not {' '.join(args.subject)} with {args.kind}")
    source = _source(args)
    out = args.out or source.parent / f"{source.stem}.html"
    if out.suffix.lower() != ".html":
        raise ArgumentError(f"cannot write {out}: with --html its name must end in .html")
    check_folder(out)
    timeline_page(Trace.load(source), start_s=args.start, end_s=args.end).save(out)
    print(f"written: {out}")


def _source(args: argparse.Namespace) -> Path:
    """The file of a trace: the subject, or that in it if it is a run's folder."""
    source = Path(args.subject[0])
    try:
        return source / "trace.json" if source.is_dir() else source
    except OSError as error:
        raise DataError(f"cannot read the trace {source}: {error.strerror}") from None


def _trace(args: argparse.Namespace) -> None:
    """Draw a recorded run."""
    source = _source(args)
    out = out_of(args, source.parent / f"{source.stem}-{args.kind}.png")
    write(_of_trace(Trace.load(source), args), out)


def _of_trace(trace: Trace, args: argparse.Namespace) -> Figure:
    if args.kind == "timeline":
        return timeline(trace, start_s=args.start, end_s=args.end, arrows=args.arrows, width=args.width)
    start_s, end_s = -inf if args.start is None else args.start, inf if args.end is None else args.end
    trace = Trace([s for s in trace if start_s <= s.start_s < end_s], trace.ranks)
    if not trace:
        raise ArgumentError(f"nothing begins from {start_s:g} s to {end_s:g} s in {args.subject[0]}")
    if args.kind == "traffic":
        return traffic(trace, width=args.width)
    if args.kind == "attention":
        return attention_work({Path(args.subject[0]).stem: trace}, width=args.width)
    return expert_load(trace, width=args.width)


def _collective(args: argparse.Namespace) -> None:
    """Execute a collective on virtual ranks, and draw its steps."""
    words = args.subject[1:]
    if len(words) != 2:
        of = words[0] if words else "all_reduce"
        found = f"those of {of}: {', '.join(algorithms(of))}"
        raise ArgumentError(f"plot collective takes an operation and an algorithm, not {words}; {found}")
    out = out_of(args, f"{words[0]}-{words[1]}-{args.ranks}.png")
    require_least("--ranks-per-node", args.ranks_per_node, 0)
    record = watched(words[0], words[1], args.ranks, root=args.root, ranks_per_node=args.ranks_per_node)
    write(collective_steps(record, width=args.width, steps=args.steps), out)


def _runs(args: argparse.Namespace) -> None:
    """Draw the losses of runs, by the folders that `simdist train` wrote, and how far each is from the first's."""
    out, folders = out_of(args, "runs.png"), args.subject[1:]
    if not folders or len(set(folders)) < len(folders):
        raise ArgumentError(f"plot runs takes the folders of different runs, not {folders}")
    names = [Path(folder).name for folder in folders]
    if len(set(names)) < len(names):
        names = folders
    runs = {}
    for name, folder in zip(names, folders, strict=True):
        lines, _ = history(folder, sys.maxsize)
        if not lines:
            raise DataError(f"no losses in {Path(folder) / 'metrics.jsonl'}")
        runs[name] = [Losses(line.step, line.train_loss, line.validation_loss) for line in lines]
    write(loss_differences(runs, width=args.width), out)


_DRAWN = {"collective": _collective, "schedule": plot_schedule.draw, "shards": plot_shards.draw, "runs": _runs}
"""By the first word; any other is the name of a trace's file."""
