"""The command line: `simdist VERB …`, the same as `python -m simdist VERB …`.

Each verb is a module with two functions: `add_arguments(parser)` and `execute(args)`, which returns the exit
code. Only the module of the verb that was asked for is imported.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from simdist import __version__
from simdist.environment import place
from simdist.errors import ArgumentError, CheckpointError, DataError, WorldUnavailable, unknown_name

__all__ = ["VERBS", "Verb", "main"]


class Verb(NamedTuple):
    """What a verb does, in a line, and the module that does it."""

    help: str
    module: str


VERBS = {
    "train": Verb("train a model on text, its batches shared by all ranks", "simdist.cli.train"),
    "run": Verb("start a script on so many ranks", "simdist.cli.run"),
    "bench": Verb("time the collectives: measured, predicted, formula", "simdist.bench.sweep"),
    "verify": Verb("check every collective against NumPy, and its traffic against its cost", "simdist.bench.verify"),
    "plot": Verb("draw a trace, a collective or a pipeline's schedule", "simdist.cli.plot"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code: 2 for a command that cannot be carried out, 130 after
    Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0].startswith("-"):
        overview = _overview()
        overview.parse_args(words)
        overview.print_help()
        return 0
    if words[0] not in VERBS:
        print(f"simdist: {unknown_name('verb', words[0], VERBS)}", file=sys.stderr)
        return 2
    try:
        return _perform(*words)
    except (ArgumentError, CheckpointError, DataError, MemoryError, WorldUnavailable) as error:
        # These are the user's to mend; the rest shows where it arose.
        code, what = 2, f"out of memory: {error}" if isinstance(error, MemoryError) else error
    except KeyboardInterrupt:
        code, what = 130, "interrupted"
    who = place()
    # In one piece, so that the lines of several ranks do not run into each other.
    sys.stderr.write(f"simdist {words[0]}{f', rank {who[0]}' if who else ''}: {what}\n")
    return code


def _perform(name: str, *words: str) -> int:
    """Do what a verb does; returns the exit code."""
    verb = VERBS[name]
    module = import_module(verb.module)
    parser = argparse.ArgumentParser(
        f"simdist {name}", description=f"{verb.help[0].upper()}{verb.help[1:]}.", allow_abbrev=False
    )
    module.add_arguments(parser)
    code: int = module.execute(parser.parse_args(words))
    return code


def _overview() -> argparse.ArgumentParser:
    verbs = "\n".join(f"  {name:8} {verb.help}" for name, verb in VERBS.items())
    parser = argparse.ArgumentParser(
        "simdist",
        usage="simdist VERB …",
        description="Distributed training written out by hand, on real MPI ranks and on simulated clusters.",
        epilog=f"verbs:\n{verbs}\n\n`simdist VERB --help` tells what a verb takes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"simdist {__version__}")
    return parser
