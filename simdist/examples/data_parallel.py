"""Data-parallel training without the trainer: the whole loop on a page.

mpirun -n 4 python -m simdist.examples.data_parallel
"""

import simdist as sd
from simdist.comm import Communicator
from simdist.data import PYTHON, Batches, load
from simdist.nn import mlp
from simdist.parallel import DataParallel, Recipe

__all__ = ["main"]


def main(comm: Communicator, steps: int = 100, global_batch_size: int = 256) -> float:
    """Train a small model to predict the next byte of Python's own sources; returns this rank's last loss."""
    text, _ = load(PYTHON).split(length=17, validation_share=0.1, seed=0)
    batches = Batches(text, global_batch_size, seed=0)
    model = mlp(context_bytes=16, embedding_width=16, hidden_width=128, hidden_layers=1)
    replica = DataParallel(model, comm, Recipe(optimizer="sgd", momentum=0.9), seed=0, algorithm="ring")
    loss = 0.0
    for step in range(steps):
        part = batches.part(step, comm.rank, comm.size)  # this rank's part of the batch
        total = replica.backward(part.windows, 1 / part.batch_size)  # the whole batch's gradient, on every rank
        replica.step(learning_rate=0.1)
        loss = total / max(1, len(part.windows))
        if comm.rank == 0 and step % 20 == 0:
            print(f"step {step:3}: {loss:.3f} nats a byte", flush=True)
    return loss


if __name__ == "__main__":
    main(sd.world())
