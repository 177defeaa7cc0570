"""The verb `plot`."""

import argparse
from pathlib import Path
from typing import Any

from simdist.collectives.watch import watched
from simdist.errors import ArgumentError, DataError, unknown_name
from simdist.plots import collective_steps, timeline, traffic
from simdist.plots.style import PAGE
from simdist.trace import Trace

__all__ = ["add_arguments", "execute"]

_FORMATS = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to draw, and where to."""
    parser.usage = "simdist plot (TRACE.json | collective OPERATION ALGORITHM) [-o FILE] [options]"
    parser.epilog = (
        "Draws a recorded run: simdist plot trace.json -o run.png. "
        "Or a collective, step by step, as it is executed on virtual ranks: "
        "simdist plot collective all_reduce ring --ranks 4 -o ring.png."
    )
    parser.add_argument(
        "subject", nargs="+", metavar="WHAT", help="a file that Trace.save wrote, or the word collective"
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="ends in .png, .svg or .pdf (named after WHAT, .png)"
    )
    parser.add_argument("--width", type=float, default=PAGE, metavar="INCHES", help=f"of the picture ({PAGE:g})")
    trace = parser.add_argument_group("of a trace")
    trace.add_argument("--kind", choices=["timeline", "traffic"], default="timeline", help="(timeline)")
    trace.add_argument("--start", type=float, metavar="SECONDS", help="leave out what was before")
    trace.add_argument("--end", type=float, metavar="SECONDS", help="leave out what came after")
    trace.add_argument("--arrows", action="store_true", help="from each send to its receive")
    collective = parser.add_argument_group("of a collective")
    collective.add_argument("--ranks", type=int, default=4, metavar="N", help="1 to 16 (4)")
    collective.add_argument("--root", type=int, default=0, metavar="RANK", help="of a rooted one (0)")
    collective.add_argument("--steps", type=int, nargs="+", metavar="K", help="0 is the start (all, or 16 of more)")
    collective.add_argument("--ranks-per-node", type=int, default=0, metavar="N", help="(all on one)")


def execute(args: argparse.Namespace) -> int:
    """Draw and write the picture."""
    words = args.subject
    if words[0] == "collective":
        if len(words) != 3:
            raise ArgumentError(f"plot collective takes an operation and an algorithm, not {words[1:]}")
        out = args.out or Path(f"{words[1]}-{words[2]}-{args.ranks}.png")
        _require_format(out)
        record = watched(words[1], words[2], args.ranks, root=args.root, ranks_per_node=args.ranks_per_node)
        figure = collective_steps(record, width=args.width, steps=args.steps)
    elif len(words) == 1:
        source = Path(words[0])
        out = args.out or source.with_name(f"{source.stem}-{args.kind}.png")
        _require_format(out)
        figure = _of_trace(Trace.load(source), args)
    else:
        raise unknown_name("subject", words[0], ["collective"])
    try:
        figure.savefig(out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from error
    print(f"drawn: {out}")
    return 0


def _of_trace(trace: Trace, args: argparse.Namespace) -> Any:
    if args.kind == "traffic":
        return traffic(trace, width=args.width)
    return timeline(trace, start_s=args.start, end_s=args.end, arrows=args.arrows, width=args.width)


def _require_format(out: Path) -> None:
    if out.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"cannot write {out}: its name must end in {', '.join(_FORMATS)}")
