"""A GPT on meshes of several axes at once, against the same on one rank that has all of it.

What is left to differ is the order in which sums are added up.
"""

from dataclasses import replace

import numpy as np
import pytest
from harness import virtual
from mesh_training import ONE_LAYER as SHAPE
from mesh_training import check, close, joined, serial_gradients, whole_gradients

from simdist.comm import Mesh
from simdist.errors import ArgumentError, UnknownNameError
from simdist.nn import gpt
from simdist.parallel.parts import ATTENTIONS, MeshParts

EXPERTS = replace(
    SHAPE,
    layers=2,
    width=24,
    heads=4,
    experts=4,
    top_k=2,
    capacity_factor=1.0,
    alpha=0.1,
    group=3,
    shared_experts=1,
    dense_layers=1,
    dense_ffn_width=36,
)
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)


@pytest.mark.slow(but=1)
@every_attention
def test_both_ways_to_cut_a_sequence(attention):
    check(virtual, {"sp": 2, "tp": 3}, SHAPE, attention=attention, sequence_parallel=True)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_zero(zero_stage):
    check(virtual, {"dp": 2, "sp": 2, "tp": 2}, SHAPE, zero_stage=zero_stage, sequence_parallel=True)


@every_attention
@pytest.mark.parametrize("halves", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation_and_the_halves_of_backward(recompute, halves, attention):
    total, expected = serial_gradients(replace(SHAPE, recompute=recompute))
    found = virtual(recomputed, 4, recompute, halves, attention)
    assert found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


def recomputed(comm, recompute, halves, attention):
    shape, sizes = replace(SHAPE, recompute=recompute), {"sp": 2, "tp": 2}
    return whole_gradients(comm, sizes, shape, halves=halves, attention=attention, sequence_parallel=True)


@pytest.mark.slow(but=3)
@pytest.mark.parametrize(("sharded", "overlap"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", [{"ep": 2, "tp": 2}, {"ep": 2, "sp": 2, "tp": 2}], ids=str)
def test_experts_and_other_axes(sizes, sharded, overlap):
    check(virtual, sizes, EXPERTS, sequence_parallel=sharded, tp_overlap=overlap)


@pytest.mark.slow
@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["tensor", "sequence"])
def test_all_axes(sequence_parallel):
    check(virtual, {"dp": 2, "ep": 2, "sp": 2, "tp": 2}, EXPERTS, sequence_parallel=sequence_parallel)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_zero_and_experts(zero_stage):
    check(virtual, {"dp": 2, "ep": 2, "tp": 2}, EXPERTS, zero_stage=zero_stage)


def asked(comm, sizes, shape, count, **options):
    """What may come next after three texts of so many tokens."""
    tokens = np.random.default_rng(0).integers(0, shape.vocabulary, (3, count), dtype=np.uint8)
    model = gpt(shape, MeshParts(Mesh(comm, **sizes), **options))
    size = model.parameters.size
    model.parameters.bind(np.empty(size), np.zeros(size))
    model.parameters.initialize(1)
    return model.logits(tokens)


@every_attention
@pytest.mark.parametrize("sequence_parallel", [False, True], ids=["tensor", "sequence"])
@pytest.mark.parametrize("shape", [SHAPE, replace(EXPERTS, top_k=1)], ids=["perceptron", "experts"])
@pytest.mark.parametrize("count", [1, 13, 24])
def test_what_comes_next_is_known_to_all_ranks(attention, sequence_parallel, count, shape):
    """After texts, too, that are shorter than the context, and cannot be shared evenly."""
    options = {"attention": attention, "sequence_parallel": sequence_parallel}
    [whole] = virtual(asked, 1, {}, shape, count)
    found = virtual(lambda comm: asked(comm, {"sp": 2, "tp": 2}, shape, count, **options), 4)
    for logits in found:
        np.testing.assert_allclose(logits, whole, rtol=1e-10)
        np.testing.assert_array_equal(logits, found[0])


def test_so_it_is_where_only_sequence_parallelism_shares_tokens():
    [whole] = virtual(asked, 1, {}, SHAPE, 13)
    for logits in virtual(lambda comm: asked(comm, {"tp": 2}, SHAPE, 13, sequence_parallel=True), 2):
        np.testing.assert_allclose(logits, whole, rtol=1e-10)


@pytest.mark.parametrize(
    ("sizes", "options", "changes", "message"),
    [
        ({"tp": 5}, {}, {}, "24 heads on tp 5 leave 4 over; 24 heads go evenly on tp 1, 2, 3, 4, 6, 8, 12, 24"),
        ({"tp": 4}, {}, {"vocabulary": 70}, "70 entries of the vocabulary on tp 4 leave 2 over"),
        ({"tp": 8}, {}, {"vocabulary": 50_257}, "would pad the vocabulary to 51200, a multiple of 128 tp"),  # GPT-2's
        ({"sp": 5}, {}, {}, "24 tokens on sp 5"),
        ({"sp": 8}, {}, {}, r"24 tokens on sp 8 \(2 parts a rank\) leave 8 over; .* on sp 1, 2, 3, 4, 6, 12"),
        ({"sp": 8}, {"attention": "ulysses"}, {"heads": 4}, "4 heads on sp 8 leave 4 over; .* evenly on sp 1, 2, 4"),
        ({"sp": 4, "tp": 2}, {"attention": "ulysses"}, {"heads": 4}, "2 heads a rank of tp on sp 4 leave 2 over"),
        ({"tp": 3}, {"sequence_parallel": True}, {"context": 20}, "20 tokens on tp 3 leave 2 over"),
        ({"sp": 2, "tp": 8}, {"sequence_parallel": True}, {}, "12 tokens a rank of sp on tp 8 leave 4 over"),
        ({"ep": 3}, {}, {"experts": 4}, "4 experts on ep 3 leave 1 over"),
        ({"sp": 2}, {}, {"experts": 4, "group": 12}, "24 tokens in 4 runs would cut groups of 12"),
    ],
)
def test_what_cannot_be_shared(sizes, options, changes, message):
    def program(comm):
        with pytest.raises(ArgumentError, match=message):
            gpt(replace(SHAPE, **changes), MeshParts(Mesh(comm, **sizes), **options))

    virtual(program, int(np.prod(list(sizes.values()))))


def test_an_unknown_attention(spmd):
    def program(comm):
        with pytest.raises(UnknownNameError, match="'even-ring'"):
            MeshParts(Mesh(comm), attention="evenring")

    spmd(program, 1)
