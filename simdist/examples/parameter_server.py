"""A parameter server with a slow worker: who waits for whom, under three consistency rules.

mpirun -n 4 python -m simdist.examples.parameter_server
"""

import simdist as sd
from simdist.asynchronous import ComputeTime, Constant, ModelGradient, Slowed, first_weights
from simdist.asynchronous.parameter_server import (
    BoundedStaleness,
    ParameterServer,
    asynchronous,
    synchronous,
    train,
    waited_shares,
)
from simdist.comm import Communicator
from simdist.data import PYTHON, Batches, load
from simdist.nn import mlp

__all__ = ["main"]

RULES = {"synchronous": synchronous(), "at most 3 steps apart": BoundedStaleness(3), "asynchronous": asynchronous()}


def main(comm: Communicator, steps: int = 40, times: ComputeTime | None = None) -> dict[str, list[float]]:
    """Train a small model through one server, rank 0, with rank 2 four times slower than the others.

    Returns the share of its time that each rank waited, under each rule.
    """
    text, _ = load(PYTHON).split(length=17, validation_share=0.1, seed=0)
    batches = Batches(text, global_batch_size=96, seed=0)
    slow = Slowed(times or Constant(0.005), {2: 4.0})
    found = {}
    for name, rule in RULES.items():
        model = mlp(context_bytes=16, embedding_width=8, hidden_width=32, hidden_layers=1)
        weights = first_weights(model)
        gradient = ModelGradient(model, batches, worker=comm.rank - 1, workers=comm.size - 1)
        report = train(comm, weights, gradient, steps, 0.3, ParameterServer(1, rule, compute_time=slow))
        found[name] = waited_shares(comm, report)
        if comm.rank == 0:
            shares = "  ".join(f"rank {rank} {share:4.0%}" for rank, share in enumerate(found[name]))
            print(f"{name:22} waited: {shares}", flush=True)
    return found


if __name__ == "__main__":
    main(sd.world())
