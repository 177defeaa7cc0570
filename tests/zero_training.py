"""What tests of ZeRO share: small models, batches of letters, and vectors put together from all ranks."""

import numpy as np

from simdist.arrays import on_host
from simdist.collectives import all_gather
from simdist.data import Batches, Corpus
from simdist.nn import Noise, Shape, gpt, mlp
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.precision import precision
from simdist.parallel.zero import ZeRO
from simdist.parallel.zero.weights import GatheredWeights

__all__ = [
    "BUCKET_BYTES",
    "MODELS",
    "RATES",
    "Poisoned",
    "adamw",
    "batches",
    "serial",
    "sharded",
    "trained",
    "whole",
]

TEXT = np.random.default_rng(2).integers(97, 123, size=4000, dtype=np.uint8)
LENGTHS = {"mlp": 4, "gpt": 7, "untied": 7}
MODELS = {
    "mlp": lambda: mlp(context_bytes=3, embedding_width=4, hidden_width=8, hidden_layers=2),
    "gpt": lambda: gpt(Shape(layers=2, width=8, heads=2, context=6, dropout=0.1)),
    "untied": lambda: gpt(Shape(layers=3, width=8, heads=2, context=6, tied=False, recompute="full")),
}
BUCKET_BYTES = 3000  # several buckets for each model
RATES = {"sgd": 0.5, "adam": 0.01, "adamw": 0.01, "adamw8bit": 0.01, "lars": 10.0, "lamb": 0.05, "muon": 0.02}


class Poisoned(GatheredWeights):
    """Leaves NaN where weights were, and counts how often."""

    num_releases = 0

    def _release(self, units):
        units = list(units)
        super()._release(units)
        for i in units:
            self.rooms[i][...] = np.nan
            Poisoned.num_releases += 1


def adamw(kind="float64", rule="adamw", **more):
    """A recipe, by default AdamW in float64."""
    return Recipe(rule, weight_decay=0.01, precision=precision(kind), **more)


def batches(model, size=10):
    """Batches of windows for a model of MODELS."""
    return Batches(Corpus(TEXT, "letters").split(LENGTHS[model], 0.1, 0)[0], size, seed=9)


def trained(method, model, steps, first=0, size=10, micro_batches=1):
    """Train; returns whether each step changed the weights."""
    comm, targets, changed = method.comm, size * method.model.targets_per_window, []
    for step in range(first, first + steps):
        part = batches(model, size).part(step, comm.rank, comm.size)
        *others, last = part.micro_batches(micro_batches)
        for micro_batch in (*others, last):
            noise = Noise(4, step, micro_batch.samples)
            method.backward(micro_batch.windows, 1 / targets, noise, last=micro_batch is last)
        changed.append(method.step(RATES[method.recipe.optimizer]))
    return changed


def whole(method, name=""):
    """A vector that the method keeps, put together from all ranks: each item from the one rank that holds it."""
    comm, size = method.comm, method.model.parameters.size
    x, count = np.zeros(size), np.zeros(size, int)
    for start, data in method.vectors()[name]:
        x[start : start + len(data)] = on_host(data)
        count[start : start + len(data)] += 1
    if isinstance(method, ZeRO):
        comm = method.sharing.holders
        x, count = (all_gather(y, comm).reshape(comm.size, size).sum(axis=0) for y in (x, count))
    assert (count == 1).all()
    return x


def serial(comm, model, recipe, steps, **options):
    """The weights after data parallel training on these ranks, which may be one."""
    method = DataParallel(MODELS[model](), comm, recipe, seed=1, **options)
    trained(method, model, steps)
    return whole(method)


def sharded(comm, model, recipe, zero_stage, steps, **options):
    """The weights after the same by ZeRO."""
    method = ZeRO(MODELS[model](), comm, recipe, 1, zero_stage, **{"bucket_bytes": BUCKET_BYTES} | options)
    trained(method, model, steps)
    return whole(method)
