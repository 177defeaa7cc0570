"""How fast a GPT trains, compared with its matrix products alone and with PyTorch on the same number of ranks.

    python -m benchmarks.training [--out seen.json]

Every rank has one thread for its matrix library. Contenders take turns, those of simdist step by step in one job,
PyTorch (where it is installed) in jobs between; all figures are medians over the steps of all jobs.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

import simdist as sd
from simdist.arrays import Array
from simdist.arrays.memory import keep_freed_memory
from simdist.comm import Communicator
from simdist.environment import THREAD_VARIABLES
from simdist.nn import Model, Shape, gpt
from simdist.nn.formulas import matmul_flops
from simdist.parallel import DataParallel, Recipe, ZeRO
from simdist.parallel.method import GRADIENTS, Method
from simdist.trace import Trace

__all__ = ["main"]

_TIMEOUT_S = 60.0  # that a rank may wait for another
_JOB_S = 300.0  # that a job of PyTorch may take
_LONGEST = 1 << 40  # so that all gradients are one bucket
_LARGE = 1024  # rows and columns of matrices that multiply at the peak rate
_LARGE_PRODUCT, _PRODUCTS = f"a product of {_LARGE}² matrices", "matrix products alone"
_AFTER, _BUCKETS, _PYTORCH = "simdist, all-reduce after", "simdist, buckets during", "PyTorch DDP"
_ZERO = "simdist, ZeRO 1"  # each rank updates its part of the weights only
_ALONE, _TOGETHER = (_AFTER,), (_AFTER, _ZERO, _BUCKETS)  # what trains on one rank, and on several
_PARTS = ("forward", "backward", GRADIENTS, "update")


# -- a rank of simdist --------------------------------------------------------------------------------


def _products(model: Model, windows: Array) -> Callable[[], None]:
    """Replays the matrix products of one forward and backward, on the same arrays."""
    made: list[tuple[Array, Array, Array]] = []

    def matmul(x: Array, w: Array, *, multiply: Any = np.matmul, **options: Any) -> Array:
        made.append((x, w, multiply(x, w, **options)))
        return made[-1][2]

    with patch("numpy.matmul", matmul):
        model.backward(model.forward(windows)[1], 1.0)

    def again() -> None:
        for x, w, y in made:
            np.matmul(x, w, out=y)

    return again


def _train(comm: Communicator, shape: Shape, batch: int, steps: int) -> None:
    """Contenders in turns; each turn is a span of the contender's name."""
    keep_freed_memory()
    rng = np.random.default_rng(comm.rank)
    text = rng.integers(shape.vocabulary, size=(steps + 1, batch, shape.context + 1), dtype=np.uint8)
    scale, recipe = 1 / (comm.size * batch * shape.context), Recipe("adamw", weight_decay=0.1)
    square: Array = rng.normal(size=(3, _LARGE, _LARGE)).astype(np.float32)
    after = DataParallel(gpt(shape), comm, recipe, 0)
    products = _products(after.model, text[0])
    after.gradient[...] = 0
    methods: dict[str, Method] = {_AFTER: after}
    if comm.size > 1:
        methods[_ZERO] = ZeRO(gpt(shape), comm, recipe, 0, 1, bucket_bytes=_LONGEST)
        methods[_BUCKETS] = DataParallel(gpt(shape), comm, recipe, 0, bucket_bytes=1 << 20)

    def step(method: Method, windows: Array) -> None:
        method.backward(windows, scale)
        method.step(1e-4)

    for windows in text:
        turns: dict[str, Callable[[], Any]] = {
            _LARGE_PRODUCT: partial(np.matmul, square[0], square[1], out=square[2]),
            _PRODUCTS: products,
            **{name: partial(step, method, windows) for name, method in methods.items()},
        }
        for name, turn in turns.items():
            comm.barrier()
            with comm.span(name):
                turn()


# -- jobs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The work of every job."""

    ranks: int
    shape: Shape
    batch: int
    steps: int

    def simdist(self) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
        """Seconds of each step of every contender, and, of those that train, seconds of a step's parts."""
        run = sd.run(_train, self.ranks, world="mpi", args=(self.shape, self.batch, self.steps), timeout_s=_TIMEOUT_S)
        methods = _TOGETHER if self.ranks > 1 else _ALONE
        seconds = {name: self._seconds(run.trace, name) for name in (_LARGE_PRODUCT, _PRODUCTS, *methods)}
        return seconds, {name: self._parts(run.trace, name) for name in methods}

    def _seconds(self, trace: Trace, name: str) -> list[float]:
        """The time of each turn on the slowest rank; the first turn does not count."""
        by_rank = [[s.seconds for s in trace.spans if s.name == name and s.rank == r] for r in range(self.ranks)]
        return [max(turn) for turn in zip(*by_rank, strict=True)][1:]

    def _parts(self, trace: Trace, name: str) -> dict[str, float]:
        """Medians of the parts on rank 0's main stream."""
        mine = [s for s in trace.spans if s.rank == 0 and s.stream == "main"]
        turns = [s for s in mine if s.name == name][1:]
        found: dict[str, list[float]] = {part: [] for part in _PARTS}
        for turn in turns:
            for part in _PARTS:
                inside = (s for s in mine if s.name == part and turn.start_s <= s.start_s < turn.end_s)
                found[part].append(sum(s.seconds for s in inside))
        return {part: median(seconds) for part, seconds in found.items()}

    def pytorch(self) -> list[float]:
        """Seconds of each step on the slowest rank."""
        sizes = {name: getattr(self.shape, name) for name in ("layers", "width", "heads", "context", "vocabulary")}
        with tempfile.TemporaryDirectory() as folder:
            settings = {"ranks": self.ranks, "shape": sizes, "batch": self.batch, "steps": self.steps}
            settings["store"] = str(Path(folder) / "store")
            words = [sys.executable, "-m", "benchmarks.pytorch_ddp"]
            ranks = [
                subprocess.Popen(
                    [*words, json.dumps({**settings, "rank": rank})],
                    stdout=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    cwd=Path(__file__).parent.parent,
                )
                for rank in range(self.ranks)
            ]
            return [max(step) for step in zip(*map(json.loads, _outputs(ranks)), strict=True)]


def _outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    """The output of the processes, which have all ended afterwards, also after an error."""
    end_s = time.monotonic() + _JOB_S
    try:
        found = [process.communicate(timeout=max(0.0, end_s - time.monotonic()))[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return found


# -- the table ----------------------------------------------------------------------------------------


def measure(job: Job, rounds: int) -> dict[str, Any]:
    """Measure all contenders on job.ranks ranks; prints a table, and returns its content."""
    seconds: dict[str, list[float]] = {}
    parts: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        found, parts = job.simdist()
        if find_spec("torch"):
            found[_PYTORCH] = job.pytorch()
        for name, more in found.items():
            seconds.setdefault(name, []).extend(more)
    middle = {name: median(found) for name, found in seconds.items()}
    flops, tokens = matmul_flops(job.shape, job.batch), job.ranks * job.batch * job.shape.context
    peak = 2 * _LARGE**3 / middle.pop(_LARGE_PRODUCT)
    theirs = middle.get(_PYTORCH)
    rows = {
        name: {
            "step_s": step_s,
            "tokens_per_s": tokens / step_s,
            "of_products": _ratio(seconds[name], seconds[_PRODUCTS]),
            "of_peak": flops / step_s / peak,
            "of_pytorch": theirs / step_s if theirs else None,
        }
        for name, step_s in middle.items()
    }
    _print(job, rows, parts, peak)
    return {"ranks": job.ranks, "peak_flops_per_s": peak, "rows": rows, "parts": parts, "seconds": seconds}


def _ratio(seconds: list[float], others: list[float]) -> float:
    """The median over adjacent turns, so that other load on the machine affects both."""
    return median(one / other for one, other in zip(seconds, others, strict=True))


def _print(job: Job, rows: dict[str, Any], parts: dict[str, dict[str, float]], peak: float) -> None:
    title = f"{job.ranks} rank{'s' * (job.ranks > 1)}, {peak / 1e9:.0f} GFLOP/s each at most"
    print(f"{title:<42}{'ms a step':>10}{'tokens/s':>10}{'× products':>12}{'of peak':>9}{'× PyTorch':>11}")
    for name, row in rows.items():
        beside = f"{row['of_pytorch']:.2f}" if row["of_pytorch"] else "-"
        tokens = "-" if name == _PRODUCTS else f"{row['tokens_per_s']:,.0f}"
        print(
            f"  {name:<40}{row['step_s'] * 1e3:>10.1f}{tokens:>10}{row['of_products']:>12.2f}"
            f"{row['of_peak']:>9.0%}{'-' if name == _PRODUCTS else beside:>11}"
        )
    for name, found in parts.items():
        print(f"  {name}: " + ", ".join(f"{part} {s * 1e3:.1f} ms" for part, s in found.items()))
    if _PYTORCH not in rows:
        print("  PyTorch is not installed; with it (pip install torch, a CPU build) it has a row here")
    print(flush=True)


def _arguments() -> Namespace:
    parser = ArgumentParser(description="Speed of training a GPT in float32 with AdamW, one thread a rank.")
    for name, value, what in (
        ("layers", 4, "of the GPT"),
        ("width", 256, "of the GPT"),
        ("heads", 4, "of the GPT"),
        ("context", 128, "tokens of a window"),
        ("batch", 8, "windows a rank and step"),
        ("ranks", 2, "beside one"),
        ("steps", 10, "a job"),
        ("rounds", 3, "of jobs, in turns"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} ({value})")
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark."""
    args = _arguments()
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")  # for the ranks, which start later
    shape = Shape(args.layers, args.width, args.heads, args.context)
    found = [measure(Job(ranks, shape, args.batch, args.steps), args.rounds) for ranks in (1, args.ranks)]
    if args.out:
        args.out.write_text(json.dumps({"shape": asdict(shape), "batch": args.batch, "jobs": found}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
