"""Verify: every algorithm of every collective against NumPy and against its own cost, as a table."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, TypeAlias

import numpy as np
from tqdm import tqdm

from simdist.arrays import Array, reductions
from simdist.bench.jobs import check_ranks, foretell, given_ranks, per_rank
from simdist.bench.trial import OPERATIONS, REDUCING, ROOTED, Traffic, Trial, outcome
from simdist.cluster import Cluster, preset
from simdist.collectives import Case, algorithms
from simdist.collectives.names import collective
from simdist.collectives.registry import find
from simdist.comm import Communicator
from simdist.errors import ArgumentError, WorldUnavailable, own_line, require_least
from simdist.launch import in_job

__all__ = ["add_arguments", "execute", "table"]

_HEAD = (
    f"{'collective':<15}{'algorithm':<22}{'ranks':>5}  {'largest error':>13}  "
    f"{'messages (cost)':>19}  {'bytes (cost)':>25}"
)
_LONG = 100_003
"""Items of the longest array: more than fit one eager message, and not a multiple of any number of ranks."""
_DURING = "while verify tried "
"""The beginning of the note that names the trial in which an error occurred."""
_SAME_BITS = ("all_reduce", "broadcast")
"""The operations that promise the same bits on all ranks."""

Found: TypeAlias = Array | Exception | None
"""The figures of one algorithm on each rank, what it raised instead, or None where another rank reports."""


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `simdist verify`."""
    parser.description = "Perform every collective by every algorithm and compare with NumPy and with its cost."
    parser.add_argument("operation", nargs="?", help="all_reduce, broadcast, … (all)")
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="which algorithms of the operation (all)")
    ranks = parser.add_mutually_exclusive_group()
    ranks.add_argument("--max-ranks", type=int, metavar="P", help="1 to P ranks (9; mpi: 4, under mpirun all)")
    ranks.add_argument("--ranks", type=int, nargs="+", metavar="P", help="exactly these numbers of ranks instead")
    worlds = "virtual ranks or real ones (virtual; under mpirun mpi)"
    parser.add_argument("--world", choices=["virtual", "mpi"], help=worlds)
    nodes = "virtual ranks on each node (0: all on one)"
    parser.add_argument("--ranks-per-node", type=int, default=0, metavar="K", help=nodes)


def execute(args: Namespace) -> int:
    """Print the table; returns 1 if a line has a fault."""
    operation, given = _asked(args)
    world = args.world or ("mpi" if in_job() else "virtual")
    most = args.max_ranks
    if most is None:
        most = 9 if world == "virtual" else (given_ranks(world) or [4])[0]
    require_least("--max-ranks", most, 1)
    require_least("--ranks-per-node", args.ranks_per_node, 0)
    if args.ranks_per_node and world == "mpi":
        raise ArgumentError(
            f"--ranks-per-node {args.ranks_per_node} is for virtual ranks: mpirun puts real ones on nodes"
        )
    counts = args.ranks or range(1, most + 1)
    if min(counts) < 1:
        raise ArgumentError(f"--ranks is {counts}; needs at least 1")
    faults = rows = 0
    for line, good in table(counts, world, operation, given, args.ranks_per_node):
        if not rows:
            print(_HEAD)
        print(line, flush=True)
        rows, faults = rows + 1, faults + (not good)
    if rows:
        told = f"lines with a fault: {faults or 'none'} of {rows}"
        print(f"{told}; messages and bytes are those of all ranks and all trials of a line")
    return int(faults > 0)


def _asked(args: Namespace) -> tuple[str | None, list[str]]:
    """The operation and the algorithms given; raises an error for those that do not exist."""
    if args.operation is None and args.algorithms:
        raise ArgumentError(f"--algorithms {' '.join(args.algorithms)}: needs the operation that they belong to")
    if args.operation is None:
        return None, []
    operation = collective(args.operation, OPERATIONS, "collective with a result")
    return operation, [find(operation, name).name for name in args.algorithms or ()]


def table(
    ranks: Iterable[int],
    where: str,
    operation: str | None = None,
    names: Sequence[str] | None = None,
    ranks_per_node: int = 0,
) -> Iterator[tuple[str, bool]]:
    """One line for each number of ranks and algorithm, and whether it is right.

    Args:
        operation: all if not given.
        names: of its algorithms; if not given all that support this number of ranks.
        ranks_per_node: of virtual ranks; 0 for one node.
    """
    operations = OPERATIONS if operation is None else [operation]
    cluster = preset("this-machine").with_(eager_bytes=0)  # every send waits for its receive, as long ones do under MPI
    cluster = cluster.with_(devices_per_node=ranks_per_node or cluster.devices_per_node)
    for p in ranks:
        check_ranks(p, where)
        pairs = [(of, name) for of in operations for name in names or algorithms(of) if names or _is_for(of, name, p)]
        every = [_trials(*pair, p) for pair in pairs]
        if where == "virtual":
            foretell([trial for trials in every for trial in trials], p)
        for trials, found in zip(every, _found(every, p, where, cluster), strict=True):
            if found is not None:
                yield _failure(trials[0], p, found) if isinstance(found, Exception) else _line(trials, found)


def _is_for(operation: str, name: str, p: int) -> bool:
    """Whether the algorithm supports this many ranks; also if its formula fails, so that its line reports that."""
    try:
        return find(operation, name).formula(Case(p, 0)).latencies < inf
    except Exception:
        return True


def _trials(operation: str, name: str, p: int) -> list[Trial]:
    """Lengths: zero, one, p - 1 and 10p + 3; all dtypes, ops and three roots; and one long array."""
    lengths = sorted({0, 1, p - 1, 10 * p + 3})
    roots = sorted({0, p // 2, p - 1}) if operation in ROOTED else [0]
    rounding = [("float64", "sum"), ("float32", "prod")]
    exact = [("int64" if op in ("sum", "prod") else "float32", op) for op in reductions()]
    kinds = [*rounding, *exact, ("bool", "lor")] if operation in REDUCING else [("float64", "sum")]
    short = [Trial(operation, name, n, dtype, op, root) for n in lengths for dtype, op in kinds for root in roots]
    return [*short, Trial(operation, name, _LONG // p if operation == "all_to_all" else _LONG)]


# -- the trials ---------------------------------------------------------------------------------------


def _found(every: list[list[Trial]], p: int, where: str, cluster: Cluster) -> Iterator[Found]:
    """The outcome of the trials of each algorithm, in turn.

    A job of real ranks takes a while to start: one job does all, and only if it fails each gets its own job.
    """
    if where == "mpi" and not in_job() and len(every) > 1:
        together = _tried([trial for trials in every for trial in trials], p, where, cluster)
        if isinstance(together, np.ndarray):
            yield from np.split(together, np.cumsum([len(trials) for trials in every])[:-1], axis=1)
            return
    for trials in every:
        yield _tried(trials, p, where, cluster)


def _tried(trials: list[Trial], p: int, where: str, cluster: Cluster) -> Found:
    """The outcome of these trials."""
    try:
        for known in dict.fromkeys(find(trial.operation, trial.algorithm) for trial in trials):
            known.cost(Case(p, 0))  # a fault of theirs is none of a trial
            known.formula(Case(p, 0))
        return _figures_of(trials, p, where, cluster)
    except WorldUnavailable:
        raise
    except Exception as error:
        if where == "mpi" and in_job():  # the job ends with this rank, so rank 0 cannot print its line
            sys.stderr.write(f"{_failure(trials[0], p, error)[0]}\n")
            raise
        return error


def _figures_of(trials: list[Trial], p: int, where: str, cluster: Cluster) -> Array | None:
    """The figures of each rank, shape (p, trials, 8); None on ranks other than 0 of an mpirun job."""
    args = [tuple(trial) for trial in trials]
    if where == "mpi":
        return per_rank(_figures, p, (args,), where)
    what = f"{trials[0].operation} {trials[0].algorithm}, {p} ranks"
    with tqdm(desc=what, total=len(trials), unit=" trials", leave=False, disable=None, delay=1) as bar:
        return per_rank(_figures, p, (args, bar.update), where, cluster=cluster)


def _figures(comm: Communicator, trials: list[tuple[Any, ...]], done: Callable[[], object] = lambda: None) -> Array:
    """For each trial: the error, whether it is too large, messages, bytes, both of them by `cost`, the first field of
    Traffic that differs (from 1; 0 for none), a fingerprint of the result.

    Args:
        done: called by rank 0 after each.
    """
    rows: list[tuple[Any, ...]] = []
    taken = [Trial(*each) for each in trials]
    for trial in taken:
        try:
            o = outcome(trial, comm)
        except Exception as error:
            off = [past.told() for past, row in zip(taken, rows, strict=False) if row[6]]
            before = f"; traffic was wrong in {off[0]}" if off else ""  # a message too many may be found only later
            error.add_note(f"{_DURING}{trial.operation} {trial.algorithm} on {comm.size} ranks: {trial.told()}{before}")
            raise
        bits = int(o.digest[:12] or "0", 16)  # as many as a float64 can hold
        kinds = [n for n, (a, b) in enumerate(zip(o.counted, o.promised, strict=True), start=1) if a != b]
        rows.append((o.error, o.error > o.limit, *o.counted[:2], *o.promised[:2], kinds[0] if kinds else 0, bits))
        if comm.rank == 0:
            done()
    return np.array(rows, dtype=np.float64)


# -- the lines ----------------------------------------------------------------------------------------


def _line(trials: list[Trial], figures: Array) -> tuple[str, bool]:
    error, wrong, messages, num_bytes, cost_messages, cost_bytes, differs, bits = np.moveaxis(figures, -1, 0)
    kinds = differs.T[differs.T > 0]  # in the order in which _first finds them
    bad = {"result": wrong, f"traffic, {Traffic._fields[int(kinds[0]) - 1]}" if kinds.size else "": differs}
    if trials[0].operation in _SAME_BITS and not wrong.any():
        bad["bits unlike rank 0's"] = bits != bits[0]
    faults = [f"{text} ({_first(where, trials)})" for text, where in bad.items() if where.any()]
    counts = [f"{n.sum():.0f}" for n in (messages, cost_messages, num_bytes, cost_bytes)]
    verdict = f"✗ {' and '.join(faults)}" if faults else "✓"
    return _row(trials[0], len(figures), f"{error.max():.1e}", counts, verdict), not faults


def _first(where: Array, trials: list[Trial]) -> str:
    """The first trial with a fault, and the first rank that has it there."""
    trial, rank = np.argwhere(where.T)[0]
    return f"{trials[trial].told()}, rank {rank}"


def _failure(of: Trial, p: int, error: Exception) -> tuple[str, bool]:
    """The line of an algorithm that did not finish."""
    what = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(_DURING)]
    where = "; ".join(filter(None, [*(note.rpartition(": ")[2] for note in notes[:1]), own_line(error)]))
    return _row(of, p, "–", "––––", f"✗ {what} ({where})" if where else f"✗ {what}"), False


def _row(of: Trial, p: int, error: str, counts: Sequence[str], verdict: str) -> str:
    messages, cost_messages, num_bytes, cost_bytes = counts
    traffic = f"{f'{messages} ({cost_messages})':>19}  {f'{num_bytes} ({cost_bytes})':>25}"
    return f"{of.operation:<15}{of.algorithm:<22}{p:>5}  {error:>13}  {traffic}  {verdict}"
