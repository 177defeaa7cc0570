"""What tests of meshes share: a GPT trained on one, put together from its parts, beside the same on one rank."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

import simdist as sd
from simdist.arrays import on_host, partition
from simdist.comm import Mesh
from simdist.nn import Noise, Parts, Shape, gpt
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.holding import Holding
from simdist.parallel.parts import MeshParts
from simdist.parallel.precision import precision
from simdist.parallel.zero import ZeRO

__all__ = [
    "BATCH",
    "ONE_LAYER",
    "SHAPE",
    "STEPS",
    "check",
    "close",
    "exact",
    "joined",
    "serial",
    "serial_gradients",
    "trained",
    "whole_gradients",
]

SHAPE = Shape(layers=2, width=48, heads=24, context=24, vocabulary=72, dropout=0.2)
ONE_LAYER = replace(SHAPE, layers=1)
STEPS = 20
BATCH = 4
TEXT = np.random.default_rng(3).integers(0, SHAPE.vocabulary, (STEPS, BATCH, SHAPE.context + 1), dtype=np.uint8)


def exact(**more):
    """AdamW in float64, with clipping that bites."""
    return Recipe("adamw", weight_decay=0.01, max_norm=0.5, precision=precision("float64"), **more)


def batch_of(mesh, step, context=SHAPE.context):
    """This rank's windows, and the noise that goes with them."""
    place = mesh.coordinates["dp"] * mesh.sizes["ep"] + mesh.coordinates["ep"]  # ep, too, is an axis of data
    own = partition(BATCH, mesh.sizes["dp"] * mesh.sizes["ep"])[place]
    return TEXT[step][own, : context + 1], Noise(4, step, np.arange(BATCH)[own])


def parts_of(parameters, flat):
    """What this rank has of each parameter, as a result can travel: name, index, numbers."""
    return [
        (p.name, p.place.shape, [(s.start, s.stop) for s in p.place.index], flat[parameters.spans[p.name]].copy())
        for p in parameters
    ]


def joined(results):
    """The whole parameters by name, from what all ranks have; ranks that have the same must have the same bits."""
    whole, seen = {}, {}
    for parts in results:
        for name, shape, index, data in parts:
            x, known = whole.setdefault(name, np.zeros(shape)), seen.setdefault(name, np.zeros(shape, bool))
            at = tuple(slice(a, b) for a, b in index)
            data = np.asarray(data).reshape(x[at].shape)
            np.testing.assert_array_equal(x[at][known[at]], data[known[at]], err_msg=name)
            x[at], known[at] = data, True
    assert all(known.all() for known in seen.values())
    return whole


def trained(comm, sizes, shape=SHAPE, zero_stage=0, steps=STEPS, parts=MeshParts, recipe=None, **options):
    """Train on a mesh; returns the sum of the losses of each step, norms, and this rank's weights."""
    mesh = Mesh(comm, **sizes)
    parts = parts(mesh, **options)
    model, recipe = gpt(shape, parts), recipe or exact()
    if zero_stage:
        method = ZeRO(model, mesh.dp, recipe, 1, zero_stage, bucket_bytes=5000, spread=parts.spread())
    else:
        method = DataParallel(model, mesh.dp, recipe, 1, spread=parts.spread())
    losses, norms = [], []
    for step in range(steps):
        windows, noise = batch_of(mesh, step, shape.context)
        losses.append(method.backward(windows, 1 / (BATCH * shape.context), noise))
        method.step(0.01)
        norms.append(method.update.norm)
    losses.append(method.loss(windows))
    flat = np.zeros(model.parameters.size)
    for start, data in method.vectors()[""]:
        flat[start : start + len(data)] = on_host(data)
    if zero_stage:
        sd.collectives.all_reduce(flat, mesh.dp)
    return np.array(losses), norms, parts_of(model.parameters, flat)


@lru_cache
def serial(shape=SHAPE, steps=STEPS):
    """The same on one rank that has the whole model: losses, norms, weights by name."""
    [(losses, norms, weights)] = sd.run(
        lambda comm: trained(comm, {}, shape, steps=steps, parts=Whole), ranks=1
    ).results
    return losses, norms, joined([weights])


class Whole(Parts):
    """The parts of one process, as the tests ask for them."""

    def __init__(self, mesh):
        pass

    def spread(self):
        return None


def whole_gradients(comm, sizes, shape=SHAPE, halves=False, steps=1, **options):
    """The loss and this rank's gradients of a batch, which it has all of, summed over whatever sees a part of it."""
    mesh = Mesh(comm, **sizes)
    parts = MeshParts(mesh, **options)
    model, spread = gpt(shape, parts), parts.spread()
    return gradients(model, batch_of(mesh, 0, shape.context), halves, spread)


def gradients(model, batch, halves=False, spread=None):
    size = model.parameters.size
    model.parameters.bind(np.empty(size), np.zeros(size))
    model.parameters.initialize(1)
    total, context = model.forward(*batch)
    if halves:
        pending = model.backward_input(context, 0.5)
        assert not model.parameters.gradient.any()
        model.backward_weight(context, pending)
    else:
        model.backward(context, 0.5)
    if spread:
        spread.complete(model.parameters.gradient, model.parameters, Holding.of_all(size))
    return total, parts_of(model.parameters, model.parameters.gradient)


@lru_cache
def serial_gradients(shape=SHAPE):
    """The same of the whole model: the loss, and gradients by name."""
    total, parts = gradients(gpt(shape), (TEXT[0, :, : shape.context + 1], Noise(4, 0, np.arange(BATCH))))
    return total, joined([parts])


def close(found, expected, limit=1e-10):
    """Whether parameters are, or gradients, relative to the largest of each."""
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        scale = max(np.abs(x).max(), 1e-3)
        np.testing.assert_allclose(found[name], x, rtol=0, atol=limit * scale, err_msg=name)


def check(spmd, sizes, shape=ONE_LAYER, **options):
    """Twenty steps on a mesh: losses, the norms of the gradients and the weights are those of one rank."""
    losses, norms, weights = serial(shape)
    p = int(np.prod(list(sizes.values())))
    copies = p // (sizes.get("dp", 1) * sizes.get("ep", 1))  # ranks that say the same loss
    found = spmd(lambda comm: trained(comm, sizes, shape, **options), p)
    np.testing.assert_allclose(sum(loss for loss, *_ in found) / copies, losses, rtol=1e-11)
    for _, seen, _ in found:
        np.testing.assert_allclose(seen, norms, rtol=1e-10)
    close(joined([parts for *_, parts in found]), weights)
