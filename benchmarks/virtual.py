"""How fast the virtual world is: messages per second, with the port model, and whether its clock is right.

    python -m benchmarks.virtual

Each line compares the virtual time with the closed form of the algorithm on the same cluster. The last line is the
limit: the time of Python, NumPy and greenlet for a ring's messages alone, without ranks, network or clock.
"""

import resource
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

import simdist as sd
from simdist.arrays import Array, phantom
from simdist.cluster import Cluster, preset
from simdist.collectives import all_reduce, cost, formula
from simdist.comm import Communicator

__all__ = ["main", "measure"]

_HEAD = (
    f"{'all_reduce':<20}{'ranks':>6}{'arrays':>9}{'record':>8}{'bytes':>7}{'messages':>11}{'wall s':>8}{'a s':>9}"
    f"{'CPU s':>8}{'a s':>9}{'virtual ms':>12}{'closed form':>13}{'difference':>12}{'peak MiB':>10}"
)


def measure(
    name: str,
    ranks: int,
    num_bytes: int,
    arrays: str = "numpy",
    record: bool = False,
    cluster: Cluster | None = None,
    closed: Callable[[Cluster, int, int], float] | None = None,
    **options: str,
) -> float:
    """One all-reduce of num_bytes a rank: prints a line, returns messages per wall-clock second.

    Args:
        arrays: "numpy", or "phantom", which hold no numbers.
        record: whether the run is recorded.
        cluster: the modelled cluster; by default this machine's cores.
        closed: (cluster, ranks, num_bytes) -> the closed form in seconds; by default the algorithm's formula.
        options: of the algorithm.
    """
    cluster = cluster or preset("this-machine")

    def program(comm: Communicator) -> None:
        x: Array = phantom(num_bytes // 4) if arrays == "phantom" else np.ones(num_bytes // 4, np.float32)
        all_reduce(x, comm, algorithm=name, **options)

    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run = sd.run(program, ranks, cluster=cluster, record=record, check=False)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    case: dict[str, Any] = {"ranks": ranks, "num_bytes": num_bytes, "itemsize": 4, **options}
    case["ranks_per_node"] = cluster.devices_per_node
    messages = ranks * cost("all_reduce", name, **case).messages
    if closed is None:
        closed_s = formula("all_reduce", name, **case).on(cluster, ranks)
    else:
        closed_s = closed(cluster, ranks, num_bytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<20}{ranks:>6}{arrays:>9}{'on' if record else 'off':>8}{num_bytes:>7}{messages:>11,}"
        f"{wall_s:>8.2f}{messages / wall_s:>9,.0f}{cpu_s:>8.2f}{messages / cpu_s:>9,.0f}"
        f"{run.elapsed_s * 1e3:>12.6g}{closed_s * 1e3:>13.6g}{run.elapsed_s / closed_s - 1:>+12.1e}{peak:>10.0f}",
        flush=True,
    )
    return messages / wall_s


def limit(ranks: int) -> float:
    """Messages per second of bare greenlets in a ring, of one item each: prints a line.

    A message consists of one switch, slicing, copying and assigning its chunk, and in the first half of an all-reduce
    the addition. The result is not the sum, because the first of the ring takes chunks that are a round old.
    """
    mail: list[Any] = [np.ones(1, np.float32)] * ranks
    chunks, hub = [slice(i, i + 1) for i in range(ranks)], getcurrent()

    def body(rank: int) -> None:
        x: Array = np.ones(ranks, np.float32)
        y, after = np.empty_like(x[:1]), ring[(rank + 1) % ranks]
        hub.switch()
        for step in range(2 * (ranks - 1)):
            mail[rank] = x[chunks[(rank - step) % ranks]].copy()
            y[...] = mail[rank - 1]
            if step < ranks - 1:
                take = x[chunks[(rank - 1 - step) % ranks]]
                take[...] = np.add(take, y)  # faster than in place, for one item
            after.switch()

    ring = [greenlet(body) for _ in range(ranks)]
    for rank, fiber in enumerate(ring):
        fiber.switch(rank)
    start_s = time.perf_counter()
    ring[0].switch()
    wall_s, messages = time.perf_counter() - start_s, 2 * ranks * (ranks - 1)
    print(f"{'bare greenlets':<20}{ranks:>6}{'numpy':>9}{'':>8}{4 * ranks:>7}{messages:>11,}{wall_s:>8.2f}", end="")
    print(f"{messages / wall_s:>9,.0f}", flush=True)
    return messages / wall_s


def by_phases(cluster: Cluster, ranks: int, num_bytes: int) -> float:
    """The closed form of the hierarchical all-reduce with recursive doubling between nodes: each phase on its link."""
    k, rate = cluster.devices_per_node, cluster.device.reduced_bytes_per_s
    half = formula("reduce_scatter", "ring", ranks=k, num_bytes=num_bytes, itemsize=4)
    between = formula("all_reduce", "recursive_doubling", ranks=ranks // k, num_bytes=num_bytes // k, itemsize=4)
    other_half = formula("all_gather", "ring", ranks=k, num_bytes=num_bytes, itemsize=4)
    inside_s = half.seconds(cluster.inside, rate) + other_half.seconds(cluster.inside, rate)
    return inside_s + between.seconds(cluster.between, rate)


def main() -> int:
    """Run the benchmarks."""
    parser = ArgumentParser(description="Speed of the virtual world.")
    parser.add_argument("--ranks", type=int, default=1024, help="of the ring (1024)")
    parser.add_argument("--many", type=int, default=65536, help="ranks of recursive doubling (65536); 0 leaves it out")
    parser.add_argument(
        "--nodes", type=int, default=2048, help="nodes of eight of the hierarchical one (2048); 0 leaves it out"
    )
    args = parser.parse_args()
    print(_HEAD)
    measure("ring", args.ranks, 4 * args.ranks)
    measure("ring", args.ranks, 4 * args.ranks, "phantom")
    measure("ring", args.ranks // 4, args.ranks, record=True)
    if args.nodes:
        ranks = 8 * args.nodes
        measure("hierarchical", ranks, 1024, cluster=preset("h100"), closed=by_phases, all_reduce="recursive_doubling")
    if args.many:
        measure("recursive_doubling", args.many, 64)
    limit(args.ranks)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
