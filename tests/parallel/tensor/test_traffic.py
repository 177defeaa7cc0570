"""What a block sends on tp is what the papers say, to the byte: the record of a run is held to it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from mesh_training import SHAPE, batch_of

from simdist.collectives import cost
from simdist.comm import Mesh
from simdist.nn import gpt
from simdist.nn.formulas import megatron_tensor_elements
from simdist.nn.functional import capacity
from simdist.parallel.parts import MeshParts

B, S, H, V = 4, SHAPE.context, SHAPE.width, SHAPE.vocabulary
ITEM = 8
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


def traffic(comm, shape, sequence_parallel, tp_overlap=False):
    """By the half of the work: how often each collective was called, and how many bytes this rank sent."""
    mesh = Mesh(comm, tp=comm.size)
    model = gpt(shape, MeshParts(mesh, sequence_parallel=sequence_parallel, tp_overlap=tp_overlap, algorithm="ring"))
    size = model.parameters.size
    model.parameters.bind(np.empty(size), np.zeros(size))
    model.parameters.initialize(1)
    windows, noise = batch_of(mesh, 0)
    found, kept = [], []
    for work in (lambda: kept.append(model.forward(windows, noise)[1]), lambda: model.backward(kept[0], 1.0)):
        first = len(comm.recorder.rows)
        work()
        spans = comm.recorder.spans()[first:]
        calls = Counter(span.name.split()[0] for span in spans)
        sent = sum(span.bytes for span in spans if span.name == "send")
        found.append([*(calls[name] for name in OPERATIONS), sent])
    return found


def of_a_block(spmd, t, sequence_parallel, recompute, tp_overlap=False, **more):
    """The difference that one block more makes, by rank: forward and backward."""
    shapes = [replace(SHAPE, layers=n, recompute=recompute, **more) for n in (1, 2)]
    one, two = (spmd(traffic, t, shape, sequence_parallel, tp_overlap) for shape in shapes)
    return [np.subtract(b, a).tolist() for a, b in zip(one, two, strict=True)]


@pytest.mark.parametrize("t", [2, 3, 4, 8])
def test_tensor_parallel(spmd, t):
    """8bsh(t-1)/t elements a layer and micro-batch: Narayanan et al. 2021, section 3.2."""
    for found in of_a_block(spmd, t, False, "none"):
        half = 4 * B * S * H * (t - 1) // t * ITEM
        assert found == [[2, 0, 0, half], [2, 0, 0, half]]


@pytest.mark.parametrize("t", [2, 3, 4, 8])
def test_sequence_parallel(spmd, t):
    """The same bytes, and in backward two gathers more: Korthikanti et al. 2022, section 4.2.2."""
    for found in of_a_block(spmd, t, True, "none"):
        way = B * S * H * (t - 1) // t * ITEM
        assert found == [[0, 2, 2, 4 * way], [0, 4, 2, 6 * way]]
        assert 10 * way == ITEM * megatron_tensor_elements(H, S, B, t, sequence_parallel=True)


@pytest.mark.parametrize("t", [2, 3, 4, 8])
def test_overlapped(spmd, t):
    """The same bytes again, in no collective."""
    for found in of_a_block(spmd, t, True, "none", tp_overlap=True):
        way = B * S * H * (t - 1) // t * ITEM
        assert found == [[0, 0, 0, 4 * way], [0, 0, 0, 6 * way]]


@pytest.mark.parametrize("t", [2, 4])
def test_experts_that_ranks_share(spmd, t):
    """In place of a perceptron's tokens slots go through the region, full or empty; the router sends nothing."""
    group, experts = 3, {"experts": 4, "group": 3, "capacity_factor": 2.0}
    slots = S // group * 4 * capacity(group, 4, 2.0)
    tokens, filled = (B * n * H * (t - 1) // t * ITEM for n in (S, slots))
    for found in of_a_block(spmd, t, False, "none", **experts):
        assert found == [[2, 0, 0, 2 * tokens + 2 * filled]] * 2
    for found in of_a_block(spmd, t, True, "none", **experts):
        assert found == [[0, 2, 2, 2 * tokens + 2 * filled], [0, 4, 2, 3 * tokens + 3 * filled]]


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation(spmd, recompute):
    """Attention is each rank's own, so nothing travels for it again; of a whole block forward does."""
    again = recompute == "full"
    half = 4 * B * S * H // 2 * ITEM
    for found in of_a_block(spmd, 2, False, recompute):
        assert found == [[2, 0, 0, half], [2 + 2 * again, 0, 0, half * (1 + again)]]
        assert sum(sent for *_, sent in found) == ITEM * megatron_tensor_elements(H, S, B, 2, recompute)
    for found in of_a_block(spmd, 2, True, recompute):
        sent = megatron_tensor_elements(H, S, B, 2, recompute, sequence_parallel=True)
        assert sum(sent for *_, sent in found) == ITEM * sent


@pytest.mark.parametrize("t", [2, 4])
def test_around_the_blocks(spmd, t):
    """The embedding and the logits one all-reduce of activations each; the loss three numbers an example."""
    for rank, (forward, backward) in enumerate(spmd(traffic, t, replace(SHAPE, layers=0), False)):
        sent = [
            cost("all_reduce", "ring", ranks=t, num_bytes=items * ITEM, itemsize=ITEM, rank=rank).sent_bytes
            for items in (B * S * H, B * S, 2 * B * S)
        ]
        assert forward == [3, 0, 0, sum(sent)]
        assert backward == [1, 0, 0, sent[0]]
        assert sum(sent[1:]) < B * S * V * ITEM // 10, "logits never travel"
