"""Verify: every algorithm of every collective against NumPy and against its own cost, as a table."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from simdist.arrays import Array, reductions
from simdist.bench.jobs import given_ranks, per_rank
from simdist.bench.trial import REDUCING, ROOTED, Trial, outcomes
from simdist.collectives import algorithms
from simdist.collectives.registry import find
from simdist.comm import Communicator
from simdist.errors import ArgumentError, unknown_name

__all__ = ["add_arguments", "execute", "table"]

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "scatter", "gather")

_HEAD = (
    f"{'collective':<15}{'algorithm':<22}{'ranks':>5}  {'largest error':>13}  "
    f"{'messages (cost)':>19}  {'bytes (cost)':>25}"
)


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `simdist verify`."""
    parser.description = "Perform every collective by every algorithm and compare with NumPy and with its cost."
    parser.add_argument("operation", nargs="?", help="all_reduce, broadcast, … (all)")
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="which of the operation's (all)")
    parser.add_argument("--max-ranks", type=int, metavar="P", help="1 to P ranks (9; mpi: 4, under mpirun all)")
    parser.add_argument("--ranks", type=int, nargs="+", metavar="P", help="these numbers of ranks instead")
    parser.add_argument("--world", choices=["virtual", "mpi"], default="virtual", help="virtual ranks or real ones")


def execute(args: Namespace) -> int:
    """Print the table; 1 where a line has a fault."""
    _check(args)
    most = args.max_ranks
    if most is None:
        most = 9 if args.world == "virtual" else (given_ranks(args.world) or [4])[0]
    if most < 1:
        raise ArgumentError(f"--max-ranks is {most}; needs at least 1")
    counts = args.ranks or range(1, most + 1)
    if min(counts) < 1:
        raise ArgumentError(f"--ranks is {counts}; needs at least 1")
    faults = rows = 0
    for line, good in table(counts, args.world, args.operation, args.algorithms):
        if not rows:
            print(_HEAD)
        print(line, flush=True)
        rows, faults = rows + 1, faults + (not good)
    if rows:
        verdict = f"{faults} of {rows} lines have a fault" if faults else f"all {rows} lines are right"
        print(f"{verdict}; messages and bytes are those of all ranks and all trials of a line")
    return int(faults > 0)


def _check(args: Namespace) -> None:
    """Refuse operations and algorithms that there are not."""
    if args.operation is None and args.algorithms:
        raise ArgumentError(f"--algorithms {' '.join(args.algorithms)}: needs the operation that they perform")
    if args.operation not in (None, *OPERATIONS):
        raise unknown_name("collective with a result", args.operation, OPERATIONS)
    for name in args.algorithms or ():
        find(args.operation, name)


def table(
    ranks: Iterable[int], where: str, operation: str | None = None, names: Sequence[str] | None = None
) -> Iterator[tuple[str, bool]]:
    """One line for each number of ranks and algorithm, and whether it is right.

    Args:
        operation: all where not given.
        names: of its algorithms; all that are for so many ranks where not given.
    """
    operations = OPERATIONS if operation is None else [operation]
    for p in ranks:
        every = [(of, name) for of in operations for name in names or algorithms(of, p)]
        trials = {pair: _trials(*pair, p) for pair in every}
        flat = [tuple(trial) for of_pair in trials.values() for trial in of_pair]
        found = per_rank(_figures, p, (flat,), where)
        if found is None:  # another rank's business
            continue
        start = 0
        for pair, of_pair in trials.items():
            figures = found[:, start : start + len(of_pair)].reshape(-1, 7)
            start += len(of_pair)
            yield _line(*pair, p, figures)


def _trials(operation: str, name: str, p: int) -> list[Trial]:
    """None, one and fewer items than ranks, and an awkward number; the dtypes and ops in turn; two roots."""
    lengths = sorted({0, 1, p - 1, 10 * p + 3})
    roots = sorted({0, p - 1}) if operation in ROOTED else [0]
    rounding = [("float64", "sum"), ("float32", "prod")]
    exact = [("int64" if op in ("sum", "prod") else "float32", op) for op in reductions()]
    kinds = [*rounding, *exact, ("bool", "lor")] if operation in REDUCING else [("float64", "sum")]
    return [Trial(operation, name, n, dtype, op, root) for n in lengths for dtype, op in kinds for root in roots]


def _figures(comm: Communicator, trials: list[tuple[Any, ...]]) -> Array:
    """Of each trial: error, whether it is too large, messages, bytes, those of `cost`, whether all traffic agrees."""
    return np.array(
        [
            (o.error, o.error > o.limit, *o.counted[:2], *o.promised[:2], o.counted == o.promised)
            for o in outcomes(comm, trials)
        ],
        dtype=np.float64,
    ).reshape(-1, 7)


def _line(operation: str, name: str, p: int, figures: Array) -> tuple[str, bool]:
    _, wrong, messages, num_bytes, cost_messages, cost_bytes, agree = figures.sum(axis=0)
    faults = [text for text, bad in (("result", wrong), ("traffic", agree < len(figures))) if bad]
    counts = f"{f'{messages:.0f} ({cost_messages:.0f})':>19}  {f'{num_bytes:.0f} ({cost_bytes:.0f})':>25}"
    verdict = f"✗ {' and '.join(faults)}" if faults else "✓"
    line = f"{operation:<15}{name:<22}{p:>5}  {figures[:, 0].max():>13.1e}  {counts}  {verdict}"
    return line, not faults
