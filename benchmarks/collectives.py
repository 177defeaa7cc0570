"""How fast the collectives are: every algorithm, beside MPI's own, gloo, and a memory copy.

    python -m benchmarks.collectives --quick
    python -m benchmarks.collectives --operations all_reduce broadcast --ranks 2 4 --out seen

All contenders of a job take turns, on arrays of float32, warm (the same ones each time) and cold (different ones, until
they are out of the caches); the time of a turn is that of the slowest rank. The limit is the time in which all ranks of
the same job copy the same number of bytes at once. MPI's own runs beside simdist, at the thread level that simdist
needs, and in a separate job at the other level, at which MPICH can use its own shared memory.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import simdist as sd
from benchmarks.race_pictures import race_bandwidth, race_over_limit
from benchmarks.rivals import GLOO, VENDOR, Settings, bind, copy_of, measure, vendor
from simdist.bench.measure import bus_bytes_per_s
from simdist.bench.race import COPY, OWN, Arrays, contenders, lane_of
from simdist.collectives import algorithms
from simdist.comm import Communicator
from simdist.environment import THREAD_VARIABLES
from simdist.launch.mpirun import find_mpirun
from simdist.plots.style import seconds, size

__all__ = ["Row", "main"]

_ROOT = Path(__file__).parent.parent
_TIMEOUT_S = 120.0  # that a rank may wait for another
_JOB_S = 3600.0
_VENDOR, _OTHER_LEVEL = "vendor, multiple", "serialized"
_QUICK = tuple(4**k << 10 for k in range(2, 8))
_SIZES = tuple(4**k << 10 for k in range(10))


class Row(NamedTuple):
    """One contender at one size.

    Attributes:
        cold: whether its arrays were in no cache.
        median, p10, p90: seconds.
        algbw, busbw: bytes a second, as nccl-tests counts them.
        over_limit: the time relative to the limit of the same job.
    """

    operation: str
    ranks: int
    num_bytes: int
    cold: bool
    contender: str
    median: float
    p10: float
    p90: float
    algbw: float
    busbw: float
    over_limit: float


def _ours(comm: Communicator, settings: Settings) -> list[dict[str, Any]]:
    """The rows of a job of simdist, with MPI's own beside."""
    mpi = import_module("mpi4py.MPI").COMM_WORLD
    comm.recorder.on = False
    bind(comm.rank)
    arrays, lane = Arrays(comm.empty, max(settings["sizes"])), lane_of(comm)

    def calls(operation: str, items: int, cold: bool) -> Any:
        own, other = (partial(arrays.of, pool, items, cold=cold) for pool in (arrays.own, arrays.other))
        names = ["auto", *(settings["algorithms"] or algorithms(operation))]
        return {
            **contenders(
                comm, operation, [n for n in names if n in ("auto", *algorithms(operation))], items, arrays, cold
            ),
            _VENDOR: lambda k: vendor(mpi, operation, own(k), other(k)),
            COPY: lambda k: copy_of(lane, own(k), other(k)),
        }

    rows = measure(settings, comm.size, lane, calls)
    return rows if comm.rank == 0 else []


# -- jobs ---------------------------------------------------------------------------------------------------


def _rival_vendor(ranks: int, settings: Settings) -> list[dict[str, Any]]:
    """MPI's own at the other thread level; empty if it does not end in time."""
    told = {**settings, "who": "vendor", "thread_level": _OTHER_LEVEL}
    with tempfile.TemporaryDirectory() as folder:
        words = find_mpirun().command(ranks, [sys.executable, "-m", "benchmarks.rivals", json.dumps(told)])
        return _said([subprocess.Popen(words, **_streams(find_mpirun().variables(ranks, Path(folder))))])


def _rival_gloo(ranks: int, settings: Settings) -> list[dict[str, Any]]:
    """Gloo, on the operations that it has."""
    with tempfile.TemporaryDirectory() as folder:
        told = {**settings, "who": "gloo", "ranks": ranks, "store": str(Path(folder) / "store")}
        told["operations"] = [operation for operation in settings["operations"] if operation in GLOO]
        words = [sys.executable, "-m", "benchmarks.rivals"]
        return _said([subprocess.Popen([*words, json.dumps({**told, "rank": r})], **_streams()) for r in range(ranks)])


def _streams(variables: dict[str, str] | None = None) -> dict[str, Any]:
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    return {**quiet, "text": True, "cwd": _ROOT, "env": variables, "start_new_session": True}


def _said(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """The rows that one of the processes prints; all processes have ended afterwards, also after an error."""
    end_s, rows = time.monotonic() + _JOB_S, []
    try:
        for process in processes:
            text, _ = process.communicate(timeout=max(0.0, end_s - time.monotonic()))
            if process.returncode == 0 and text.strip():
                rows += json.loads(text)
    except subprocess.TimeoutExpired:
        print("a rival did not end in time, and is left out", file=sys.stderr)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()
    return rows


def _finished(rows: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of one job, beside its own limit."""
    limit = {_case(row): row["median"] for row in rows if row["contender"] == COPY}
    found = []
    for row in rows:
        algbw = row["num_bytes"] / row["median"]
        busbw = bus_bytes_per_s(row["operation"], row["ranks"], row["num_bytes"], row["median"])
        found.append(Row(**row, algbw=algbw, busbw=busbw, over_limit=row["median"] / limit[_case(row)]))
    return found


def _case(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["operation"], row["ranks"], row["num_bytes"], row["cold"]


# -- output -------------------------------------------------------------------------------------------------


def _print(rows: Sequence[Row]) -> None:
    """A table for each operation and number of ranks."""
    for operation, ranks, cold in dict.fromkeys((r.operation, r.ranks, r.cold) for r in rows):
        part = [r for r in rows if (r.operation, r.ranks, r.cold) == (operation, ranks, cold)]
        print(f"\n{operation} on {ranks} ranks, {'cold' if cold else 'warm'} arrays")
        head = f"{'size':>9}  {'contender':<24}{'median':>10}{'p10':>10}{'p90':>10}"
        print(f"{head}{'algbw GB/s':>12}{'busbw GB/s':>12}{'× limit':>9}{'× vendor':>10}")
        for num_bytes in dict.fromkeys(r.num_bytes for r in part):
            at = sorted((r for r in part if r.num_bytes == num_bytes and r.contender != COPY), key=lambda r: r.median)
            theirs = next((r.median for r in at if r.contender == _VENDOR), math.nan)
            for i, r in enumerate(at):
                print(
                    f"{'' if i else size(num_bytes):>9}  {r.contender:<24}{seconds(r.median):>10}{seconds(r.p10):>10}"
                    f"{seconds(r.p90):>10}{r.algbw / 1e9:>12.3g}{r.busbw / 1e9:>12.3g}{r.over_limit:>9.2f}"
                    f"{theirs / r.median:>10.2f}"
                )


def verdicts(rows: Sequence[Row]) -> list[str]:
    """The speed of simdist relative to each rival, as geometric means over ranges of sizes."""
    time_s = {(*r[:4], r.contender): r.median for r in rows}
    rivals = sorted({r.contender for r in rows if r.contender.startswith(("vendor", "gloo"))})
    lines = []
    for operation, ranks, cold in dict.fromkeys((r.operation, r.ranks, r.cold) for r in rows):
        for mine in ("direct", "direct" + OWN, "ring", "auto", "auto" + OWN):
            for rival in rivals:
                told = []
                for low, high in ((1 << 14, 1 << 14), (1 << 16, 1 << 19), (1 << 20, 1 << 26)):
                    ratios = {
                        n: time_s[key] / time_s[operation, ranks, n, cold, mine]
                        for n in {r.num_bytes for r in rows}
                        if low <= n <= high and (key := (operation, ranks, n, cold, rival)) in time_s
                        if (operation, ranks, n, cold, mine) in time_s
                    }
                    if ratios:
                        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
                        least, most = min(ratios), max(ratios)
                        told.append(f"{mean:.2f} {size(least)}{f' to {size(most)}' if most > least else ''}")
                if told:
                    where = f"{operation}, {ranks} ranks, {'cold' if cold else 'warm'}"
                    lines.append(f"{where}: {mine} is × {rival}: {'; '.join(told)}")
    return lines


def _arguments() -> Namespace:
    parser = ArgumentParser(description="Speed of the collectives on this machine.")
    parser.add_argument("--operations", nargs="+", choices=VENDOR, default=["all_reduce"], help="(all_reduce)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of ranks (2 4)")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="BYTES", help="(1 KiB to 256 MiB, by factors of 4)")
    parser.add_argument("--algorithms", nargs="+", metavar="NAME", help="of simdist, besides auto (all)")
    parser.add_argument("--quick", action="store_true", help="16 KiB to 16 MiB, warm arrays, a tenth of the turns")
    parser.add_argument("--no-rivals", action="store_true", help="only simdist's jobs")
    parser.add_argument(
        "--out", type=Path, default=Path("collectives"), help="folder for JSON and pictures (collectives)"
    )
    return parser.parse_args()


def main() -> int:
    """Run the benchmark."""
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that no rival outlives this
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")  # for the ranks, which start later
    settings: Settings = {
        "operations": args.operations,
        "sizes": args.sizes or (_QUICK if args.quick else _SIZES),
        "cold": [False] if args.quick else [False, True],
        "budget_s": 0.3 if args.quick else 3.0,
        "algorithms": args.algorithms,
    }
    rows: list[Row] = []
    for ranks in args.ranks:
        run = sd.run(_ours, ranks, world="mpi", args=(settings,), timeout_s=_TIMEOUT_S, record=False)
        rows += _finished(run.results[0])
        if not args.no_rivals:
            rows += _finished(_rival_vendor(ranks, settings))
            if find_spec("torch"):
                rows += _finished(_rival_gloo(ranks, settings))
    _print(rows)
    print("", *verdicts(rows), sep="\n")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "collectives.json").write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    for operation in args.operations:
        part = [row for row in rows if row.operation == operation]
        race_bandwidth(part).savefig(args.out / f"{operation}-bandwidth.png")
        race_over_limit(part).savefig(args.out / f"{operation}-limit.png")
    print(f"\nfigures and pictures are in {args.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
