"""How fast the virtual world is: messages a second, with the port model on, and whether its clock is right.

    python -m benchmarks.virtual

Each line compares the virtual seconds with the closed form of the algorithm on the same cluster.
"""

import resource
import time
from argparse import ArgumentParser

import numpy as np

import simdist as sd
from simdist.arrays import Array, phantom
from simdist.cluster import preset
from simdist.collectives import all_reduce, cost, formula
from simdist.comm import Communicator

__all__ = ["main", "measure"]

_HEAD = (
    f"{'all_reduce':<20}{'ranks':>6}{'arrays':>9}{'bytes':>9}{'messages':>11}{'wall s':>8}{'messages/s':>12}"
    f"{'virtual ms':>12}{'closed form':>13}{'difference':>12}{'peak MiB':>10}"
)


def measure(name: str, ranks: int, num_bytes: int, arrays: str) -> float:
    """One all-reduce of num_bytes a rank: prints a line, returns messages per wall-clock second.

    Args:
        arrays: "numpy", or "phantom", which hold no numbers.
    """
    cluster = preset("this-machine")

    def program(comm: Communicator) -> None:
        x: Array = phantom(num_bytes // 4) if arrays == "phantom" else np.ones(num_bytes // 4, np.float32)
        all_reduce(x, comm, algorithm=name)

    start_s = time.perf_counter()
    run = sd.run(program, ranks, cluster=cluster, record=False, check=False)
    wall_s = time.perf_counter() - start_s
    messages = ranks * cost("all_reduce", name, ranks=ranks, num_bytes=num_bytes, itemsize=4).messages
    closed_s = formula("all_reduce", name, ranks=ranks, num_bytes=num_bytes, itemsize=4).on(cluster, ranks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<20}{ranks:>6}{arrays:>9}{num_bytes:>9}{messages:>11,}{wall_s:>8.2f}{messages / wall_s:>12,.0f}"
        f"{run.elapsed_s * 1e3:>12.6g}{closed_s * 1e3:>13.6g}{run.elapsed_s / closed_s - 1:>+12.1e}{peak:>10.0f}",
        flush=True,
    )
    return messages / wall_s


def main() -> int:
    """Run the benchmarks."""
    parser = ArgumentParser(description="Speed of the virtual world.")
    parser.add_argument("--ranks", type=int, default=1024, help="of the ring (1024)")
    parser.add_argument("--many", type=int, default=65536, help="ranks of recursive doubling (65536); 0 leaves it out")
    args = parser.parse_args()
    print(_HEAD)
    for arrays in ("numpy", "phantom"):
        measure("ring", args.ranks, 4 * args.ranks, arrays)
    if args.many:
        measure("recursive_doubling", args.many, 64, "numpy")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
