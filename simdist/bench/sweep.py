"""Sweep: a collective over sizes and numbers of ranks; measured beside predicted beside formula."""

import csv
import io
import json
import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import asdict, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from simdist.bench.jobs import check_ranks, given_ranks
from simdist.bench.machine import measured_cluster
from simdist.bench.measure import measure_machine, rows
from simdist.bench.trial import OPERATIONS
from simdist.bench.tune import SIZES, tune
from simdist.cluster import Cluster, Tuned, find_cluster, preset, presets
from simdist.cluster.file import as_toml
from simdist.collectives import algorithms
from simdist.collectives.names import collective
from simdist.collectives.registry import find
from simdist.collectives.segments import SEGMENT_BYTES
from simdist.environment import crowding
from simdist.errors import ArgumentError
from simdist.launch import command_words, in_job
from simdist.plots import Crossover, Measurement, crossovers, sweep
from simdist.plots.file import check_folder, check_format, save, writing
from simdist.plots.style import seconds, size
from simdist.plots.sweep import in_words, lines_of
from simdist.words import counted

__all__ = ["add_arguments", "execute", "fastest"]

_SOURCES = ("measured", "predicted", "formula")
_MOST_BYTES = 1 << 50
_SIZES = tuple(4**k * 1024 for k in range(7))
_MEASURED = "measured"


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `simdist bench`."""
    parser.description = "Time a collective: measured, predicted by the virtual world, and by its formula."
    add = parser.add_argument
    add("operation", nargs="?", help="all_reduce, broadcast, … (all_reduce)")
    add("--ranks", type=int, nargs="+", metavar="P", help="numbers of ranks (2 4; under mpirun all)")
    add("--sizes", type=_size, nargs="+", metavar="BYTES", help="such as 512 64K 4M 1e8 (1K to 4M)")
    add("--algorithms", nargs="+", metavar="NAME", help="which algorithms (all)")
    add("--world", choices=["mpi", "virtual"], default="mpi", help="mpi measures; virtual predicts only (mpi)")
    machine = f"machine to predict for: {_MEASURED}, by ping-pong (mpi); {', '.join(presets())} (this-machine); a .toml"
    add("--cluster", metavar="NAME", help=machine)
    add("--repeats", type=int, metavar="N", help="number of measurements; the median counts (20)")
    add("--out", type=Path, metavar="FILE", help="write all figures to FILE, as JSON; as .csv their rows")
    add("--picture", type=Path, metavar="FILE", help="draw them to FILE: .png, .svg or .pdf")
    add("--tune", action="store_true", help="find the fastest algorithms of all collectives, which `auto` then uses")
    described = "measure products, memory and links of as many ranks (2), for --cluster FILE.toml of plan and predict"
    add("--machine", type=Path, metavar="FILE", help=described)


def _size(text: str) -> int:
    short = re.sub("(?<=[kmg])ib$", "", text.lower())
    unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(short[-1:], 1)
    try:
        number = Decimal(short if unit == 1 else short[:-1])
    except InvalidOperation:
        number = Decimal("nan")
    if number.is_finite() and number > _MOST_BYTES / unit:
        raise ArgumentTypeError(f"{text} are too many bytes; at most {_MOST_BYTES >> 30}G can be timed")
    if not number.is_finite() or number < 0 or number * unit % 1:
        raise ArgumentTypeError(f"{text!r} is not a size: give bytes, or a number with K, M or G")
    return int(number * unit)


def execute(args: Namespace) -> int:
    """Measure and print, one table for each number of ranks."""
    if args.tune:
        return _tune(args)
    if args.machine is not None:
        return _machine(args)
    asked = "all_reduce" if args.operation is None else args.operation
    operation = collective(asked, OPERATIONS, "collective with a size")
    repeats = 20 if args.repeats is None else args.repeats
    given = [find(operation, name).name for name in args.algorithms or ()]
    _check_files(args)
    counts = args.ranks or given_ranks(args.world) or [2, 4]
    if min(counts) < 1 or repeats < 1:
        raise ArgumentError(f"--ranks {counts} and --repeats {repeats} need to be at least 1")
    for ranks in counts:
        check_ranks(ranks, args.world)
    source = (_MEASURED if args.world == "mpi" else "this-machine") if args.cluster is None else args.cluster
    known = None if source == _MEASURED else find_cluster(source)
    found: list[Measurement] = []
    written: list[dict[str, Any]] = []
    for ranks in counts:
        cluster = known or measure_machine(ranks)
        model = cluster or preset("this-machine")
        names = given or algorithms(operation, ranks)
        table = rows(operation, names, ranks, args.sizes or _SIZES, args.world, model, repeats)
        if cluster is not None and table is not None:  # otherwise rank 0 of this job prints
            print(_report(table, cluster), end="\n\n", flush=True)
            written.append(_as_json(table, cluster))
            found += table
    if args.out is not None and written:
        every = {"operation": operation, "world": args.world, "runs": written}
        as_csv = args.out.suffix.lower() == ".csv"
        with writing(args.out):
            args.out.write_text(_as_csv(found) if as_csv else json.dumps(every, indent=1) + "\n")
        print(f"figures written to {args.out}")
    if args.picture is not None and found:
        save(sweep(found), args.picture)
        print(f"picture drawn to {args.picture}")
    return 0


def _check_files(args: Namespace) -> None:
    """Check, before anything is measured, that the output files can be written."""
    if args.picture is not None:
        check_format(args.picture)
    if args.out is not None:
        check_folder(args.out)


def _tune(args: Namespace) -> int:
    """Measure, write the table for this user, and print it."""
    _check_alone(args, "--tune", "all collectives here", ("algorithms", "cluster", "picture", "repeats", "machine"))
    _check_files(args)
    counts = args.ranks or [2, 4]
    if min(counts) < 2:
        raise ArgumentError(f"--ranks {counts}: tuning needs at least 2")
    path = args.out or Tuned.path()
    table = tune(counts, args.sizes or SIZES)
    table.save(path)
    for (operation, ranks), picks in sorted(table.picks.items()):
        told = [f"{size(a.num_bytes)} {a.shared}{'' if a.own == a.shared else f' ({a.own})'}" for a in picks]
        print(f"{operation:<15} {ranks:>3} ranks  {', '.join(told)}")
    print(f"in parentheses: the fastest for arrays in a rank's private memory; written to {path}")
    return 0


def _machine(args: Namespace) -> int:
    """Measure, and write the cluster that is this machine."""
    without = ("sizes", "algorithms", "cluster", "picture", "repeats", "out")
    _check_alone(args, "--machine", "what training needs", without)
    if args.machine.suffix != ".toml":
        raise ArgumentError(f"--machine {args.machine}: a cluster's file is TOML, and its name ends in .toml")
    check_folder(args.machine)
    ranks = args.ranks or [2]
    if len(ranks) > 1:
        raise ArgumentError(f"--ranks {ranks} with --machine: a file is for one number of ranks, which share cores")
    check_ranks(ranks[0], args.world)
    cluster = measured_cluster(ranks[0])
    with writing(args.machine):
        args.machine.write_text(as_toml(cluster))
    device, link = cluster.device, cluster.inside
    rates = device.memory_bytes_per_s, device.bfloat16_memory_bytes_per_s, device.float16_memory_bytes_per_s
    passes = " / ".join(f"{rate / 1e9:.3g}" for rate in rates)
    print(
        f"each of {counted(ranks[0], 'rank')}: products of float32 {device.flops_per_s / 1e9:.3g} GFLOP/s, of float64 "
        f"{device.float64_flops_per_s / 1e9:.3g}; operations between them {passes} GB/s (float32 / bfloat16 / "
        f"float16); messages alpha {seconds(link.latency_s)}, 1/beta {link.bytes_per_s / 1e9:.3g} GB/s"
    )
    if crowded := crowding(ranks[0]):
        print(crowded)
    told = f"--cluster {shlex.quote(str(args.machine))} --ranks {ranks[0]} --model gpt"
    print(f"written to {args.machine}; predict a step, then measure it:")
    print(f"  {shlex.join([*command_words(), 'predict'])} {told}")
    print(f"  {shlex.join([*command_words(), 'train', '--ranks', str(ranks[0]), '--model', 'gpt', '--steps', '10'])}")
    return 0


def _check_alone(args: Namespace, option: str, what: str, options: Sequence[str]) -> None:
    """Refuse what cannot be given beside an option that measures everything itself."""
    if args.world != "mpi" or in_job():
        raise ArgumentError(f"{option} starts jobs of real ranks itself: leave out --world and mpirun")
    given = [] if args.operation is None else [args.operation]
    given += [f"--{name}" for name in options if getattr(args, name) is not None]
    if given:
        raise ArgumentError(f"{given[0]} with {option}, which measures {what}: leave out one of them")


def fastest(table: Sequence[Measurement], source: str) -> list[Crossover]:
    """Which algorithm is fastest from which size on, by a source: "measured", "predicted" or "formula"."""
    return crossovers(lines_of(table, source))


def _report(table: Sequence[Measurement], cluster: Cluster) -> str:
    first = table[0]
    link, gamma = cluster.link(first.ranks), cluster.device.reduced_bytes_per_s
    lines = [
        f"{first.operation} on {counted(first.ranks, 'rank')} of {cluster.name}: alpha {seconds(link.latency_s)}, "
        f"1/beta {link.bytes_per_s / 1e9:.3g} GB/s, 1/gamma {gamma / 1e9:.3g} GB/s",
        f"{'size':>10}  {'algorithm':<20}{'measured':>11}{'predicted':>11}{'formula':>11}{'busbw GB/s':>12}",
    ]
    for row in table:
        head = size(row.num_bytes) if row.algorithm == first.algorithm else ""
        times = [getattr(row, f"{source}_s") for source in _SOURCES]
        columns = "".join(f"{'–' if time_s is None else seconds(time_s):>11}" for time_s in times)
        lines.append(f"{head:>10}  {row.algorithm:<20}{columns}{row.bus_bytes_per_s / 1e9:>12.3g}")
    for source in _SOURCES:
        changes = fastest(table, source)
        if changes:
            lines.append(f"fastest, {source}: {in_words(changes)}")
    for name in dict.fromkeys(row.algorithm for row in table):
        if "segment_bytes" in find(first.operation, name).options:
            lines.append(f"{name}: in segments of {size(SEGMENT_BYTES)}; faster links need longer ones (segment_bytes)")
    if first.measured_s is not None and (crowded := crowding(min(first.ranks, cluster.devices_per_node))):
        lines.append(crowded)
    return "\n".join(lines)


def _as_csv(table: Sequence[Measurement]) -> str:
    """A line for each row, below the names of its fields."""
    text = io.StringIO()
    lines = csv.DictWriter(text, [field.name for field in fields(Measurement)], lineterminator="\n")
    lines.writeheader()
    lines.writerows(map(asdict, table))
    return text.getvalue()


def _as_json(table: Sequence[Measurement], cluster: Cluster) -> dict[str, Any]:
    link = cluster.link(table[0].ranks)
    return {
        "ranks": table[0].ranks,
        "cluster": cluster.name,
        "alpha_s": link.latency_s,
        "bytes_per_s": link.bytes_per_s,
        "reduced_bytes_per_s": cluster.device.reduced_bytes_per_s,
        "rows": [asdict(row) for row in table],
        "fastest": {source: [change._asdict() for change in fastest(table, source)] for source in _SOURCES},
    }
