"""A GPT with experts spread over ep, and over dp and ep, against the same on one rank that has them all.

What is left to differ is the order in which sums are added up. Ranks hold different windows, as on a data axis.
"""

from dataclasses import replace

import numpy as np
import pytest
from harness import virtual
from mesh_training import BATCH, SHAPE, check, close, joined, serial_gradients, whole_gradients

import simdist as sd
from simdist.arrays import phantom
from simdist.cluster import preset
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import gpt
from simdist.parallel.expert import routes
from simdist.parallel.parts import MeshParts
from simdist.training.checkpoint import flat_shard, load, save

SMALL = replace(SHAPE, width=16, heads=2, alpha=0.1)
ENOUGH = replace(SMALL, experts=8, top_k=1, capacity_factor=8.0)
SWITCH = replace(SMALL, experts=8, top_k=1, capacity_factor=1.0)
GSHARD = replace(SMALL, experts=8, top_k=2, capacity_factor=1.0)
MIXTRAL = replace(GSHARD, block="llama", ffn_width=20)
SHARED = replace(MIXTRAL, shared_experts=2)
DENSE = replace(SHARED, dense_layers=1, dense_ffn_width=40)
EVERY_OTHER = replace(GSHARD, expert_every=2)
KINDS = {
    "enough": ENOUGH,
    "switch": SWITCH,
    "gshard": GSHARD,
    "shared": SHARED,
    "dense first": DENSE,
    "every other": EVERY_OTHER,
}
kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)


def of(shape, ep):
    """The same with a number of experts that goes evenly on the ranks."""
    return replace(shape, experts=6) if ep == 3 else shape


def check_gradients(spmd, ep, shape, **options):
    """Of ep alone, so that all gradients are complete without dp."""
    total, expected = serial_gradients(shape)
    found = spmd(lambda comm: whole_gradients(comm, {"ep": ep}, shape, **options), ep)
    assert sum(loss for loss, _ in found) == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@kinds
@pytest.mark.parametrize("ep", [1, 2, 3, 4, 8])
def test_loss_and_every_gradient(spmd, ep, shape):
    check_gradients(spmd, ep, of(shape, ep))


@kinds
@pytest.mark.parametrize("degree", [2, 3])
def test_slots_that_travel_in_parts(spmd, degree, shape):
    check_gradients(spmd, 2, shape, overlap_degree=degree)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_slots_that_travel_in_parts_in_the_halves_of_backward(recompute):
    check_gradients(virtual, 4, replace(GSHARD, recompute=recompute), halves=True, overlap_degree=2)


@pytest.mark.slow(but=4)
@kinds
@pytest.mark.parametrize("ep", [1, 2, 3, 4, 8])
def test_twenty_steps(spmd, ep, shape):
    assert ep < 8 or BATCH < 8, "on eight ranks some have no windows at all"
    check(spmd, {"ep": ep}, replace(of(shape, ep), layers=shape.dense_layers + shape.expert_every))


@pytest.mark.slow(but=2)
@pytest.mark.parametrize("shape", [SWITCH, GSHARD], ids=["switch", "gshard"])
@pytest.mark.parametrize("sizes", [{"dp": 2, "ep": 2}, {"dp": 3, "ep": 2}], ids=str)
def test_data_parallel_over_expert_parallel(spmd, sizes, shape):
    check(spmd, sizes, replace(shape, layers=1))


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_zero_over_expert_parallel(spmd, zero_stage):
    check(spmd, {"dp": 2, "ep": 2}, GSHARD, zero_stage=zero_stage)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("sizes", [{"ep": 2, "tp": 2}, {"dp": 2, "ep": 2, "tp": 2}], ids=str)
def test_beside_tensor_parallel(spmd, sizes):
    """Attention, embedding and logits are cut over tp; the experts are whole on all of its ranks."""
    check(spmd, sizes, GSHARD)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"ep": 2, "sp": 2}, {"attention": "ring"}),
        ({"ep": 2, "sp": 2}, {"attention": "ulysses"}),
        ({"ep": 2, "tp": 2}, {"sequence_parallel": True}),
        ({"ep": 2, "sp": 2, "tp": 2}, {"sequence_parallel": True}),
    ],
    ids=str,
)
def test_where_ranks_have_some_tokens_of_each_text(spmd, sizes, options):
    """Groups that lie in one rank's tokens; each rank sends its own."""
    check(spmd, sizes, replace(GSHARD, group=3), **options)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"dp": 2, "ep": 2}, {"zero_stage": 3, "overlap_degree": 2}),
        ({"ep": 2, "tp": 2}, {}),
        ({"ep": 2, "tp": 2}, {"overlap_degree": 2}),
        ({"ep": 2, "tp": 2}, {"sequence_parallel": True}),
    ],
    ids=str,
)
def test_with_gates(spmd, sizes, options):
    check(spmd, sizes, replace(DENSE, group=3), **options)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation(recompute):
    check(virtual, {"ep": 2}, replace(GSHARD, recompute=recompute))


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_halves_of_backward(recompute):
    check_gradients(virtual, 2, replace(GSHARD, recompute=recompute), halves=True)


@pytest.mark.parametrize("group", [4, 12])
def test_groups_that_are_a_part_of_a_text(group):
    check_gradients(virtual, 4, replace(GSHARD, group=group))


@pytest.mark.parametrize("name", ["linear", "pairwise", "bruck", "hierarchical"])
@pytest.mark.parametrize("devices_per_node", [2, 3])
def test_every_all_to_all(name, devices_per_node):
    """Inside nodes first and then between, too, and where nodes are unequal."""
    total, expected = serial_gradients(SWITCH)
    cluster = preset("this-machine").with_(devices_per_node=devices_per_node)
    found = virtual(lambda comm: whole_gradients(comm, {"ep": 4}, SWITCH, all_to_all=name), 4, cluster=cluster)
    assert sum(loss for loss, _ in found) == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (4, 2)])
def test_checkpoints_go_to_other_numbers_of_ranks(tmp_path, before, after):
    def held(comm, seed):
        model = gpt(SWITCH, MeshParts(Mesh(comm, ep=comm.size)))
        model.parameters.bind(*(np.zeros(model.parameters.size) for _ in range(2)))
        if seed is not None:
            model.parameters.initialize(seed)
        return model.parameters, flat_shard(model.parameters.data, model.parameters)

    def there(comm):
        parameters, tensors = held(comm, None)
        load(tmp_path, comm, tensors)
        _, expected = held(comm, 3)
        for name, tensor in tensors.items():
            for found, right in zip(tensor.pieces, expected[name].pieces, strict=True):
                np.testing.assert_array_equal(found.data, right.data, err_msg=name)
        return parameters.size

    virtual(lambda comm: save(tmp_path, comm, 1, held(comm, 3)[1]), before)
    of_experts = 2 * SWITCH.layers * 4 * SWITCH.width**2 * SWITCH.experts
    [size] = set(virtual(there, after))
    assert of_experts / after < size < of_experts / after + 20_000


# -- the record ---------------------------------------------------------------------------------------


def routed(shape, ep):
    run = sd.run(lambda comm: whole_gradients(comm, {"ep": ep}, shape), ranks=ep)
    return routes(run.trace.spans)


@kinds
@pytest.mark.parametrize("ep", [2, 4, 8])
def test_loads_on_the_record_are_those_of_one_rank(shape, ep):
    one, many = routed(shape, 1), routed(shape, ep)
    assert list(one) == list(many) == [f"block{i}.experts" for i in ([1] if shape in (DENSE, EVERY_OTHER) else [0, 1])]
    for name, expected in one.items():
        found = many[name]
        assert (found.asked, found.dropped) == (expected.asked, expected.dropped)
        assert found.tokens == expected.tokens == BATCH * shape.context
        assert sum(found.asked) == shape.top_k * found.tokens
        assert (sum(found.dropped) > 0) == (shape is not ENOUGH)
        assert found.auxiliary == pytest.approx(expected.auxiliary)
        assert found.auxiliary >= shape.alpha
        assert found.holders == [{e // (shape.experts // ep)} for e in range(shape.experts)]


def test_of_phantoms_loads_are_not_known():
    def program(comm):
        model = gpt(GSHARD, MeshParts(Mesh(comm, ep=comm.size)))
        model.parameters.bind(*(phantom(model.parameters.size) for _ in range(2)))
        _, context = model.forward(phantom((1, GSHARD.context + 1), np.uint8))
        model.backward(context, 1.0)

    run = sd.run(program, ranks=4)
    assert all(np.isnan(found.asked).all() for found in routes(run.trace.spans).values())


# -- what cannot be -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "options", "match"),
    [
        ({"ep": 3}, {}, r"8 experts on ep 3 leave 2 over; 8 experts go evenly on ep 1, 2, 4, 8"),
        (
            {"sp": 2},
            {},
            r"24 tokens in 4 runs would cut groups of 24 .* a whole text; a group that fits has 1, 2, 3, 6 tokens",
        ),
        (
            {"tp": 2},
            {"sequence_parallel": True},
            r"24 tokens in 2 runs would cut groups of 24 .* has 1, 2, 3, 4, 6, 12 tokens",
        ),
    ],
)
def test_what_cannot_be_shared(spmd, sizes, options, match):
    def program(comm):
        with pytest.raises(ArgumentError, match=match):
            gpt(SWITCH, MeshParts(Mesh(comm, **sizes), **options))

    spmd(program, int(np.prod(list(sizes.values()))))
