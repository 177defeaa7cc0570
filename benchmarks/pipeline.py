"""The bubble of every pipeline schedule on real ranks, beside its prediction and its paper's formula.

    python -m benchmarks.pipeline [--ranks 2] [--micro-batches 8] [--detail zb-h1] [--out seen.json]
    python -m benchmarks.pipeline --ranks 4 --rest 0.02

A GPT is cut into stages by the times of its layers, measured on all ranks at once, and trained for some steps; every
rank has one thread for its matrix library. The table shows the fastest step, which other programs disturbed least. Its
prediction is the simulation of the schedule with the mean times of that step's actions, as the zero-bubble paper
profiles them, and with messages that take no time. With --rest a rank sleeps in each action, as if an accelerator
computed, so there can be more ranks than cores; then the simulation uses these times.
"""

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import simdist as sd
from simdist.arrays import Ledger, recorded
from simdist.arrays.memory import keep_freed_memory
from simdist.comm import Communicator, Mesh
from simdist.environment import THREAD_VARIABLES
from simdist.nn import Shape, gpt
from simdist.parallel import Recipe
from simdist.parallel.pipeline import (
    PipeDream,
    Pipeline,
    Schedule,
    Simulation,
    Taken,
    Times,
    compare,
    executed,
    footprints,
    mean_memory,
    measured_costs,
    paper,
    predicted_taken,
    schedule,
    schedules,
    simulate,
    split,
    taken,
)
from simdist.parallel.pipeline.formulas import Formula
from simdist.parallel.pipeline.memory import Memory

__all__ = ["main"]

_TIMEOUT_S = 60.0  # that a rank may wait for another
_GOAL = 0.1  # largest difference of a measured bubble from its prediction


class Job(NamedTuple):
    """The work of the ranks."""

    shape: Shape
    windows: int
    steps: int
    rest: Times | None
    costs: list[float]


def _measure(comm: Communicator, shape: Shape, windows: int) -> list[float]:
    """The seconds of each layer, while all ranks run it."""
    keep_freed_memory()
    model = gpt(shape)
    size = model.parameters.size
    model.parameters.bind(np.empty(size, np.float32), np.zeros(size, np.float32))
    model.parameters.initialize(0)
    text = np.random.default_rng(0).integers(256, size=(windows, shape.context + 1), dtype=np.uint8)
    comm.barrier()
    return [cost.total for cost in measured_costs(model, text, repeats=9)]


def _train(comm: Communicator, one: Schedule, job: Job) -> tuple[float, ...]:
    """Train job.steps + 1 steps; in the first, memory and caches are cold."""
    keep_freed_memory()
    rng, m = np.random.default_rng(0), one.num_micro_batches
    text = rng.integers(256, size=(m, job.windows, job.shape.context + 1), dtype=np.uint8)
    scale, mesh = 1 / (text.size - m * job.windows), Mesh(comm, pp=comm.size)
    kind = Pipeline if one.weights.policy == "flush" else PipeDream
    with recorded(ledger := Ledger(comm.clock)):
        method = kind(gpt(job.shape), mesh, Recipe(), 0, one, costs=job.costs, times=job.rest)
        for _ in range(job.steps + 1):
            comm.barrier()
            if isinstance(method, PipeDream):
                method.train([*text], scale, 1e-3)
                continue
            for i in range(m):
                method.backward(text[i], scale, last=i == m - 1)
            method.step(1e-3)
    return tuple(taken(method, ledger))


class Seen(NamedTuple):
    """One schedule's steps, each beside its prediction, and the resources of its ranks."""

    one: Schedule
    measured: list[Simulation]
    predicted: list[Simulation]
    took: list[Taken]

    @classmethod
    def of(cls, one: Schedule, job: Job) -> "Seen":
        """Run it."""
        run = sd.run(_train, one.num_ranks, world="mpi", args=(one, job), timeout_s=_TIMEOUT_S)
        measured = [executed(one, run.trace, run=step) for step in range(1, job.steps + 1)]
        predicted = [simulate(one, job.rest or step.times) for step in measured]
        return cls(one, measured, predicted, [Taken(*mine) for mine in run.results])

    @property
    def best(self) -> tuple[Simulation, Simulation]:
        """The quickest step, measured and predicted."""
        return min(zip(self.measured, self.predicted, strict=True), key=lambda step: step[0].makespan)

    def paper(self, memory: Memory | None = None) -> Formula | None:
        """The paper's formula for these times, with memory in micro-batches or as given."""
        return paper(self.one, self.best[1].times, memory)


# -- tables -------------------------------------------------------------------------------------------


def _table(seen: Sequence[Seen]) -> bool:
    """Print one line per schedule; returns whether all are within _GOAL of their predictions."""
    print(f"{'schedule':<26}{'of the makespan':^31}{'of the longest rank':^31}{'formula':>9}{'step, ms':>11}")
    head = f"{'measured':>11}{'predicted':>11}{'points':>9}"
    print(f"{'':<26}{head}{head}")
    near = True
    for one in seen:
        line, (quickest, simulated) = f"{one.one.name:<26}", one.best
        near &= abs(quickest.bubble_rate - simulated.bubble_rate) <= _GOAL
        for measured, predicted in (
            (quickest.bubble_rate, simulated.bubble_rate),
            (quickest.own_bubble_rate, simulated.own_bubble_rate),
        ):
            line += f"{measured:>11.1%}{predicted:>11.1%}{100 * (measured - predicted):>+9.1f}"
        paper = one.paper()
        rate = None if paper is None else paper.bubble_rate
        line += f"{'-' if rate is None else f'{rate:.1%}':>9}{1e3 * quickest.makespan:>11.1f}"
        print(line)
    print(f"every bubble of the makespan within {100 * _GOAL:.0f} points of its prediction: {'yes' if near else 'NO'}")
    return near


def _detail(seen: Seen, job: Job) -> None:
    """Print all figures of one schedule's quickest step."""
    one = seen.one
    stages = footprints(
        gpt(job.shape), split(job.costs, one.num_stages), job.windows, job.shape.context + 1, np.dtype(np.float32)
    )
    rows = compare(
        *seen.best,
        seen.took,
        predicted_taken(one, stages),
        seen.paper(),
        seen.paper(mean_memory(stages, one.num_ranks)),
    )
    print(f"\n{one.name:<40}{'measured':>14}{'predicted':>14}{'formula':>14}")
    for row in rows:
        formula_text = "-" if row.formula is None else f"{row.formula:,.4g}"
        if row.formula is not None and row.formula >= 1e4:
            formula_text = f"{row.formula:,.0f}"
        measured, predicted = (f"{x:,.0f}" if x >= 1e4 else f"{x:.4g}" for x in (row.measured, row.predicted))
        print(f"  {row.what:<38}{measured:>14}{predicted:>14}{formula_text:>14}")


def _arguments() -> Namespace:
    parser = ArgumentParser(description="Bubbles of pipeline schedules: measured, predicted, and by formula.")
    for name, value, what in (
        ("ranks", os.cpu_count() or 1, "in the pipeline"),
        ("micro-batches", 8, "of a step"),
        ("steps", 5, "that are measured"),
        ("layers", 8, "of the GPT"),
        ("width", 128, "of the GPT"),
        ("heads", 4, "of the GPT"),
        ("context", 64, "tokens of a window"),
        ("windows", 4, "of a micro-batch"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} ({value})")
    parser.add_argument("--schedules", nargs="+", default=schedules(), help="which (all)")
    parser.add_argument("--rest", type=float, help="TF = TB = TW in seconds, for ranks that sleep instead of computing")
    parser.add_argument("--detail", nargs="*", default=[], help="schedules to print in detail")
    parser.add_argument("--out", type=Path, help="write all results to this JSON file")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark; the exit code is 1 if a bubble is too far from its prediction."""
    args = _arguments()
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")  # for the ranks, which start later
    shape = Shape(args.layers, args.width, args.heads, args.context, tied=False)
    rest = None if args.rest is None else Times(args.rest, args.rest, args.rest)
    found = sd.run(_measure, args.ranks, world="mpi", args=(shape, args.windows), timeout_s=_TIMEOUT_S).results
    job = Job(shape, args.windows, args.steps, rest, [median(layer) for layer in zip(*found, strict=True)])
    seen = []
    for name in args.schedules:
        try:
            one = schedule(name, stages=args.ranks, micro_batches=args.micro_batches)
        except sd.ArgumentError as error:
            print(f"{name}: {error}")
            continue
        seen.append(Seen.of(one, job))
    near = _table(seen)
    for each in seen:
        if each.one.name in args.detail:
            _detail(each, job)
    if args.out:
        args.out.write_text(json.dumps([_as_json(each) for each in seen], indent=1))
    return 0 if near else 1


def _as_json(seen: Seen) -> dict[str, Any]:
    """Everything of a schedule."""
    paper = seen.paper()
    return {
        "schedule": seen.one.name,
        "measured": [[step.makespan, step.bubble_rate, step.own_bubble_rate] for step in seen.measured],
        "predicted": [[step.makespan, step.bubble_rate, step.own_bubble_rate] for step in seen.predicted],
        "formula": None if paper is None else paper.bubble_rate,
        "ranks": [mine._asdict() for mine in seen.took],
    }


if __name__ == "__main__":
    raise SystemExit(main())
