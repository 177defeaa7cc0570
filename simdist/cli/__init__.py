"""The command line: `simdist VERB …`, the same as `python -m simdist VERB …`.

Each verb is a module with two functions: `add_arguments(parser)` and `execute(args)`, which returns the exit
code. Only the module of the verb at hand is imported.
"""

import argparse
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import NamedTuple

from simdist import __version__
from simdist.comm.guard import guard
from simdist.environment import place
from simdist.errors import (
    ArgumentError,
    CheckpointError,
    DataError,
    UnknownNameError,
    WorldUnavailable,
    own_line,
    require_known,
    unknown_name,
)
from simdist.launch import share_program
from simdist.words import OTHER_OPTIONS, meant

__all__ = ["VERBS", "Verb", "main"]


class Verb(NamedTuple):
    """A one-line description of a verb, and its module."""

    help: str
    module: str


VERBS = {
    "train": Verb("train a model on text, its batches split over all ranks", "simdist.cli.train"),
    "plan": Verb("find the fastest ways to train a model on a cluster that fit in memory", "simdist.cli.plan"),
    "predict": Verb("predict how long a step takes on a cluster, for one way to train, and why", "simdist.cli.predict"),
    "run": Verb("run a script on n ranks", "simdist.cli.run"),
    "bench": Verb("time the collectives: measured, predicted, formula", "simdist.bench.sweep"),
    "verify": Verb("check every collective against NumPy, and its traffic against its cost", "simdist.bench.verify"),
    "doctor": Verb("check what works on this machine, and say how to fix what does not", "simdist.cli.doctor"),
    "plot": Verb("draw a recorded run, a collective, a schedule, a model's shards, or losses", "simdist.cli.plot"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Execute the command line; returns the exit code: 2 for a command that cannot be executed, 130 after Ctrl-C,
    143 after SIGTERM, 141 if the reader of the output has closed it.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            if argv is None:
                _open_streams()
                _end_on_signals()
                share_program()
            return _perform(*words)
        finally:
            print(end="", flush=True)  # here, where a failure can be reported
    except (ArgumentError, CheckpointError, DataError, MemoryError, WorldUnavailable) as error:
        # The user can fix these; all others show a traceback.
        code, what = 2, f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)
        if own := own_line(error):
            what += f"\n  in {own}"
    except KeyboardInterrupt as asked:
        code, what = 130, "interrupted"
        if isinstance(asked, _Ended):
            code, what = 128 + asked.args[0], f"ended by {asked.args[0].name}"
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python has buffered, and writes when it exits
        if error.errno == errno.EPIPE:  # `simdist … | head`: exit like a process killed by SIGPIPE
            return 141
        code, what = 2, f"cannot write: {error.strerror}"
    verb = f" {words[0]}" if words and words[0] in VERBS else ""
    _say(f"simdist{verb}", f": {what}")
    return code


class _Ended(KeyboardInterrupt):
    """A signal that asks for the end, as Ctrl-C does: jobs that were started end, and their files are removed."""


def _end_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise, unless they are ignored; the ranks of a job are killed by them."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Ended(signal.Signals(number))

    for number in (signal.SIGTERM, signal.SIGHUP):
        if place() is None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _say(verb: str, what: str) -> None:
    """Print an error after the verb and, under mpirun, the rank, unless the error names one.

    What is the same on several ranks of a node is printed once.
    """
    who = place()
    if who is None:
        sys.stderr.write(f"{verb}{what}\n")
    else:
        named = re.search(r"\brank \d", what)
        guard().tell(what, f"{verb}{what}" if named else f"{verb}, rank {who[0]}{what}")


def _open_streams() -> None:
    """Let standard streams that were closed, as by `2>&-`, lead nowhere, here and in the ranks that are started.

    Characters that the terminal cannot show, such as a model's, are printed as "?", instead of failing.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _perform(*words: str) -> int:
    """Execute a verb; returns the exit code."""
    if words[:1] == ("help",):
        words = (*words[1:2], "--help")
    if not words or words[0].startswith("-"):
        overview = _overview()
        overview.parse_args(words)
        overview.print_help()
        return 0
    name, *rest = words
    require_known("verb", name, VERBS)
    verb = VERBS[name]
    module = import_module(verb.module)
    parser = argparse.ArgumentParser(
        f"simdist {name}", description=f"{verb.help[0].upper()}{verb.help[1:]}.", allow_abbrev=False
    )
    module.add_arguments(parser)
    args, others = parser.parse_known_args(rest)
    if others:
        raise _not_known(others[0].partition("=")[0], parser)
    _require_values(args, parser)
    code: int = module.execute(args)
    return code


def _require_values(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse `--option=--`, of which argparse makes an empty list, or a value in newer Pythons."""
    for name, value in vars(args).items():
        if name in ("command", "module") or value == parser.get_default(name):
            continue
        values = value if isinstance(value, list) else [value]
        if not values or any(x == [] or str(x) == "--" for x in values):
            raise ArgumentError(f"--{name.replace('_', '-')} is '--'; needs a value")


def _not_known(word: str, parser: argparse.ArgumentParser) -> ArgumentError:
    """The error for a word of the command line that the parser does not know."""
    if not word.startswith("--"):
        return ArgumentError(f"unexpected {word!r}\n{parser.format_usage().rstrip()}")
    known = set(re.findall(r"(?<!\S)--[a-z0-9-]+", parser.format_help()))
    if (other := f"--{meant(word, (), OTHER_OPTIONS)}") in known:
        return UnknownNameError(f"unknown option {word!r}; did you mean {other!r}?")
    return unknown_name("option", word, known)


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "simdist",
        usage="simdist VERB …",
        description="Distributed training written out by hand, on real ranks\n(MPI processes) and simulated clusters.",
        epilog="Begin with `simdist train --ranks 4`, which trains a small\nmodel on text, or "
        "`simdist plot collective all_reduce ring`,\nwhich draws how four ranks add up their arrays.\n"
        "`simdist VERB --help` lists the options of a verb.\nPuzzles with instant verdicts:\n"
        "python -c 'from simdist.puzzles import puzzles; puzzles()'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, verb in VERBS.items():
        verbs.add_parser(name, help=verb.help)
    parser.add_argument("--version", action="version", version=f"simdist {__version__}")
    return parser
