"""What tests of pipelines share: small models, a batch of micro-batches, and its gradients on one rank."""

from functools import cache

import numpy as np

from simdist.arrays import on_host
from simdist.comm import Mesh
from simdist.comm.solo import SoloCommunicator
from simdist.nn import Noise, Shape, gpt, mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.pipeline import Pipeline, schedule, schedules
from simdist.parallel.precision import precision

__all__ = [
    "BOTH_WAYS",
    "EXACT",
    "MODELS",
    "SYNCHRONOUS",
    "close",
    "found",
    "micro_batch",
    "pipeline",
    "serial",
    "trained",
    "windows",
]

EXACT = Recipe(precision=precision("float64"))
LENGTHS = {"experts": 6, "mlp": 4, "gpt": 6, "untied": 6, "full": 6, "selective": 6}
MODELS = {
    "mlp": lambda: mlp(context_bytes=3, embedding_width=4, hidden_width=8, hidden_layers=8),
    "gpt": lambda: gpt(Shape(layers=14, width=8, heads=2, context=5, dropout=0.1)),
    "untied": lambda: gpt(Shape(layers=14, width=8, heads=2, context=5, tied=False)),
    "experts": lambda: gpt(
        Shape(layers=6, width=8, heads=2, context=5, experts=4, top_k=2, shared_experts=1, dense_layers=2)
    ),
    "full": lambda: gpt(Shape(layers=6, width=8, heads=2, context=5, dropout=0.1, recompute="full")),
    "selective": lambda: gpt(Shape(layers=6, width=8, heads=2, context=5, dropout=0.1, recompute="selective")),
}
BOTH_WAYS = ("chimera", "bitpipe", "gems", "dualpipe")  # on an even number of ranks
SYNCHRONOUS = tuple(name for name in schedules() if not name.startswith("pipedream"))
SIZE = 2  # samples of a micro-batch
SCALE = 0.05


def windows(model, m, step=0):
    """Of a whole batch, a micro-batch after the other."""
    return np.random.default_rng(step).integers(256, size=(SIZE * m, LENGTHS[model]), dtype=np.uint8)


def micro_batch(model, m, i, step=0):
    """The i-th of a batch, and its noise."""
    own = np.arange(SIZE * i, SIZE * (i + 1))
    return windows(model, m, step)[own], Noise(1, step, own)


def found(method):
    """The gradients by name."""
    return {p.name: on_host(p.gradient).copy() for p in method.model.parameters}


@cache
def serial(model, m):
    """The loss and the gradients of a batch on one rank, in one piece."""
    method = DataParallel(MODELS[model](), SoloCommunicator(), EXACT, 1)
    total = method.backward(windows(model, m), SCALE, Noise(1, 0, np.arange(SIZE * m)))
    return total, found(method)


def mesh_of(comm, **sizes):
    """A mesh of these ranks, the same for all tests: an MPI has only so many communicators to give."""
    name = f"mesh {sizes}"
    if name not in comm.attached:
        comm.attached[name] = Mesh(comm, **sizes)
    return comm.attached[name]


def pipeline(comm, model, name, m, recipe=EXACT, sizes=None, **options):
    """A pipeline along pp, which is all of comm unless sizes of a mesh are given."""
    mesh = mesh_of(comm, **(sizes or {"pp": comm.size}))
    one = schedule(name, stages=mesh.pp.size, micro_batches=m)
    return Pipeline(MODELS[model](), mesh, recipe, 1, one, **options)


def trained(method, model, step=0):
    """One step's gradients, of this rank's part of the batch by dp; returns the loss."""
    m, dp = method.schedule.num_micro_batches, method.mesh.dp
    for i in range(m):
        total = method.backward(*_scaled(model, m * dp.size, m * dp.rank + i, step), last=i == m - 1)
    return total


def _scaled(model, m, i, step):
    own, noise = micro_batch(model, m, i, step)
    return own, SCALE, noise


def close(gradients, expected):
    """Whether these are those of the expected by this name, to 1e-12 of the largest."""
    for name, gradient in gradients.items():
        largest = np.abs(expected[name]).max()
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-12, atol=1e-12 * largest, err_msg=name)
