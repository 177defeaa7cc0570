"""Pipelines of stages that are themselves cut, over tp, and beside them dp: against the same GPT on one rank."""

from dataclasses import replace

import numpy as np
import pytest
from harness import virtual
from mesh_training import BATCH, TEXT, exact, joined, parts_of
from pipeline_training import mesh_of

from simdist.nn import Noise, Shape, gpt
from simdist.parallel.parts import MeshParts
from simdist.parallel.pipeline import Pipeline, schedule

SHAPE = Shape(layers=6, width=48, heads=24, context=24, vocabulary=72, dropout=0.2)
STEPS, MICRO_BATCHES = 4, 2


def train(comm, name, sizes, zero_stage=0, sequence_parallel=False, shape=SHAPE):
    """The sums of the losses of each step, the norms of the gradients, and this rank's weights."""
    mesh = mesh_of(comm, **sizes)
    parts = MeshParts(mesh, sequence_parallel=sequence_parallel)
    one = schedule(name, stages=mesh.pp.size, micro_batches=MICRO_BATCHES)
    model, options = gpt(shape, parts), {"spread": parts.spread(), "zero_stage": zero_stage}
    method = Pipeline(model, mesh, exact(), 1, one, **options)
    losses, norms = [], []
    for step in range(STEPS):
        own = np.array_split(np.arange(BATCH), mesh.dp.size)[mesh.dp.rank]
        runs = np.array_split(own, MICRO_BATCHES)
        for i, run in enumerate(runs):
            noise = Noise(4, step, run)
            total = method.backward(TEXT[step][run], 1 / (BATCH * SHAPE.context), noise, last=i == MICRO_BATCHES - 1)
        method.step(0.01)
        losses.append(total)
        norms.append(method.update.norm)
    own = {p.name: p.data for p in method.model.parameters}
    flat = np.concatenate([own[p.name].reshape(-1) for p in method.model.parameters])
    return mesh.dp.rank, np.array(losses), np.array(norms), parts_of(method.model.parameters, flat)


def check(spmd, name, sizes, **options):
    shape = options.get("shape", SHAPE)
    [(_, losses, norms, weights)] = virtual(lambda comm: train(comm, "1f1b", {}, shape=shape), 1)
    expected = joined([weights])
    results = spmd(lambda comm: train(comm, name, sizes, **options), int(np.prod([*sizes.values()])))
    seen = {dp: total for dp, total, *_ in results}
    np.testing.assert_allclose(sum(seen.values()), losses, rtol=1e-9)
    for dp, total, found, _ in results:
        np.testing.assert_array_equal(total, seen[dp])
        np.testing.assert_allclose(found, norms, rtol=1e-9)
    for key, whole in joined([parts for *_, parts in results]).items():
        np.testing.assert_allclose(whole, expected[key], rtol=0, atol=1e-9 * max(1, np.abs(whole).max()), err_msg=key)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v", "dualpipe", "interleaved-1f1b"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallel_stages(spmd, name, sequence_parallel):
    check(spmd, name, {"pp": 2, "tp": 2}, sequence_parallel=sequence_parallel)


@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
@pytest.mark.parametrize("zero_stage", [0, 1])
def test_three_axes(name, zero_stage):
    check(virtual, name, {"pp": 2, "dp": 2, "tp": 2}, zero_stage=zero_stage)


@pytest.mark.parametrize(("name", "zero_stage"), [("1f1b", 1), ("zb-v", 0)])
def test_blocks_of_llamas(spmd, name, zero_stage):
    check(spmd, name, {"pp": 2, "tp": 2}, zero_stage=zero_stage, shape=replace(SHAPE, block="llama", ffn_width=48))
