"""Muon on many ranks: those with parts of a matrix gather it, and all get the weights of one rank."""

from dataclasses import replace

import numpy as np
import pipeline_training as stages
import pytest
import zero_training as shards
from harness import virtual
from mesh_training import SHAPE, Whole, close, joined, trained

from simdist.arrays import on_host
from simdist.collectives import cost
from simdist.comm.solo import SoloCommunicator
from simdist.nn import Noise
from simdist.parallel import DataParallel, Recipe, ZeRO
from simdist.parallel.precision import precision

MUON = Recipe("muon", momentum=0.95, weight_decay=0.01, max_norm=0.5, precision=precision("float64"))
SMALL = replace(SHAPE, width=16, heads=2)
EXPERTS = replace(SMALL, experts=4, top_k=2, block="llama", ffn_width=20, shared_experts=1)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("sizes", "shape"),
    [({"dp": 3}, SMALL), ({"dp": 2, "ep": 2}, EXPERTS), ({"dp": 2, "sp": 2}, SMALL)],
    ids=["dp", "ep", "sp"],
)
def test_meshes_train_as_one_rank(sizes, shape, zero_stage):
    [(losses, _, alone)] = virtual(lambda comm: trained(comm, {}, shape, steps=4, parts=Whole, recipe=MUON), 1)
    p = int(np.prod(list(sizes.values())))
    found = virtual(lambda comm: trained(comm, sizes, shape, zero_stage, steps=4, recipe=MUON), p)
    close(joined([parts for *_, parts in found]), joined([alone]))
    assert losses[-1] < losses[0]


def piped(comm, model, zero, name="1f1b"):
    sizes = {"pp": 2, "dp": comm.size // 2}
    method = stages.pipeline(comm, model, name, 4, MUON, sizes, zero_stage=zero)
    for step in range(3):
        stages.trained(method, model, step)
        method.step(0.01)
    return {p.name: on_host(p.data).copy() for p in method.model.parameters}


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize(
    ("model", "name"), [("gpt", "1f1b"), ("untied", "zb-v"), ("experts", "1f1b"), ("gpt", "dualpipe")]
)
def test_stages_train_as_one_rank(model, name, zero):
    """Copies of a table, and of all layers where they go both ways, stay the same bits."""
    alone, m = DataParallel(stages.MODELS[model](), SoloCommunicator(), MUON, 1), 8
    for step in range(3):
        noise = Noise(1, step, np.arange(stages.SIZE * m))
        alone.backward(stages.windows(model, m, step), stages.SCALE, noise)
        alone.step(0.01)
    expected = {p.name: p.data for p in alone.model.parameters}
    found = virtual(piped, 4, model, zero, name)
    close({name: x for each in found for name, x in each.items()}, expected)
    for each in found:
        for other in found:
            for name in each.keys() & other.keys():
                np.testing.assert_array_equal(each[name], other[name])


def gathers(comm, zero_stage, rule):
    recipe = shards.adamw("float64", rule)
    method = ZeRO(shards.MODELS["gpt"](), comm, recipe, 1, zero_stage, bucket_bytes=3000, algorithm="ring")
    shards.trained(method, "gpt", 1)
    first = len(comm.recorder.spans())
    shards.trained(method, "gpt", 1, 1)
    sent = sum(s.bytes for s in comm.recorder.spans()[first:] if s.name == "send")
    inside = {p for p in method.model.parameters if len(p.shape) > 1 and not p.name.startswith("embedding")}
    return sent, [unit.room for unit in method.units if inside & set(unit.parameters)]


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_it_sends_an_all_gather_more_of_each_unit_with_matrices(zero_stage):
    for rank, (adam, muon) in enumerate(
        zip(*(virtual(gathers, 3, zero_stage, rule) for rule in ("adamw", "muon")), strict=True)
    ):
        more = (cost("all_gather", "ring", ranks=3, rank=rank, num_bytes=8 * n, itemsize=8) for n in muon[1])
        assert muon[0] - adam[0] == sum(each.sent_bytes for each in more) > 0


def test_a_rank_without_any_item_of_a_matrix():
    """Nor of most others: on 32 ranks a chunk is smaller than a bias."""
    expected = virtual(shards.serial, 1, "mlp", shards.adamw(rule="muon"), 3)[0]
    for weights in virtual(shards.sharded, 32, "mlp", shards.adamw(rule="muon"), 3, 3):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)
