"""Your own pipeline schedule: written in a line, checked, simulated and executed, and its bubble measured.

mpirun -n 2 python -m simdist.examples.pipeline_bubble
"""

import numpy as np

import simdist as sd
from simdist.comm import Communicator, Mesh
from simdist.errors import require_least
from simdist.nn import Shape, gpt
from simdist.parallel import Recipe
from simdist.parallel.pipeline import (
    Action,
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Pipeline,
    Schedule,
    Times,
    executed,
    simulate,
    validate,
)
from simdist.training import gather_trace

__all__ = ["main", "schedules"]


def schedules(stages: int, micro_batches: int) -> list[Schedule]:
    """GPipe: all forwards, then all backwards. And the same with one line changed: the gradients of inputs,
    which other stages wait for, come before those of weights, which no stage waits for.
    """
    m = range(micro_batches)
    forwards: list[Action] = [Forward(i) for i in m]
    whole: list[Action] = [Backward(i) for i in m]
    halves: list[Action] = [*(BackwardInput(i) for i in m), *(BackwardWeight(i) for i in m)]
    return [
        Schedule("backward whole", [forwards + whole] * stages),
        Schedule("backward in halves", [forwards + halves] * stages),
    ]


def main(comm: Communicator, micro_batches: int = 4, rest_s: float = 0.02) -> list[tuple[str, float, float]]:
    """Execute both, with a GPT split into as many stages as there are ranks.

    Its layers take almost no time, so each rank sleeps for rest_s in every action, TF = TB = TW, as if an
    accelerator were computing. Returns on rank 0 for each schedule the share of the time that ranks were idle, as
    measured and as simulated.

    Raises:
        ArgumentError: there is one rank, which is never idle.
    """
    require_least("ranks", comm.size, 2)
    times = Times(rest_s, rest_s, rest_s)
    mesh = Mesh(comm, pp=comm.size)
    text = np.random.default_rng(0).integers(256, size=(micro_batches, 9), dtype=np.uint8)
    found = []
    for one in schedules(comm.size, micro_batches):
        validate(one)  # a wrong one is refused here, with its rows and the place marked
        method = Pipeline(gpt(Shape(comm.size, 16, 2, 8)), mesh, Recipe(), 0, one, times=times)
        method.train([text[i : i + 1] for i in range(micro_batches)], 1 / text.size, 0.1)
        trace = gather_trace(comm)
        if trace is not None:
            found.append((one.name, executed(one, trace).bubble_rate, simulate(one, times).bubble_rate))
    return found


if __name__ == "__main__":
    for name, measured, predicted in main(sd.world()):
        print(f"{name}: idle {measured:.1%} of the time, simulated {predicted:.1%}", flush=True)
