"""A GPT whose texts are cut over sp, alone and with dp and tp, against the same on one rank.

What is left to differ is the order in which sums are added up.
"""

from dataclasses import replace

import numpy as np
import pytest
from harness import virtual
from mesh_training import ONE_LAYER, SHAPE, batch_of, check, close, joined, serial_gradients, whole_gradients

from simdist.arrays import phantom
from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Noise, gpt
from simdist.parallel.parts import ATTENTIONS, MeshParts

kinds = pytest.mark.parametrize("attention", ATTENTIONS)
ENDS = replace(ONE_LAYER, context=16)  # 24 tokens are no 16 runs


@kinds
@pytest.mark.parametrize("sp", [1, 2, 3, 4, 8])
def test_loss_and_every_gradient(spmd, sp, attention):
    shape = replace(ENDS, layers=2) if sp == 8 else SHAPE
    total, expected = serial_gradients(shape)
    found = spmd(lambda comm: whole_gradients(comm, {"sp": sp}, shape, attention=attention), sp)
    assert {loss for loss, _ in found} == {found[0][0]}, "the loss of whole texts, the same bits on every rank"
    assert found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@pytest.mark.slow(but=3)
@pytest.mark.parametrize(
    ("sp", "attention"),
    [(2, "ring"), (3, "ring"), (4, "ring"), (8, "ring"), (3, "even-ring"), (3, "ulysses"), (4, "ulysses")]
    + [pytest.param(sp, "even-ring", marks=pytest.mark.slow) for sp in (2, 4, 8)]
    + [pytest.param(sp, "ulysses", marks=pytest.mark.slow) for sp in (2, 8)],
)
def test_twenty_steps(spmd, sp, attention):
    check(spmd, {"sp": sp}, ENDS if sp == 8 else ONE_LAYER, attention=attention)


@pytest.mark.slow(but=2)
@kinds
@pytest.mark.parametrize("sizes", [{"dp": 2, "sp": 2}, {"sp": 2, "tp": 2}], ids=str)
def test_two_axes(spmd, sizes, attention):
    check(spmd, sizes, attention=attention)


@kinds
def test_sequence_parallel_of_tp_within_that_of_sp(spmd, attention):
    check(spmd, {"sp": 2, "tp": 2}, attention=attention, sequence_parallel=True)


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("attention", ["ring", pytest.param("even-ring", marks=pytest.mark.slow), "ulysses"])
def test_three_axes(attention):
    check(virtual, {"dp": 2, "sp": 2, "tp": 2}, attention=attention, sequence_parallel=attention == "ring")


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_zero_over_sequence_parallel(spmd, zero_stage):
    check(spmd, {"dp": 2, "sp": 2}, zero_stage=zero_stage)


@kinds
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("changed", [{"recompute": "selective"}, {"recompute": "full"}, {"tied": False}], ids=str)
def test_recomputation_and_logits_of_their_own(changed, halves, attention):
    shape = replace(SHAPE, **changed)
    total, expected = serial_gradients(shape)
    found = virtual(lambda comm: whole_gradients(comm, {"sp": 2}, shape, halves, attention=attention), 2)
    assert {loss for loss, _ in found} == {found[0][0]}, "the loss of whole texts, the same bits on every rank"
    assert found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@kinds
@pytest.mark.parametrize("sizes", [{"sp": 3}, {"sp": 2, "tp": 2}], ids=str)
def test_the_next_token(spmd, sizes, attention):
    """All ranks get the logits after the last token, from whoever has it."""

    def program(comm, sizes):
        mesh = Mesh(comm, **sizes)
        model = gpt(SHAPE, MeshParts(mesh, attention=attention) if sizes else None)
        model.parameters.bind(np.empty(model.parameters.size), np.zeros(model.parameters.size))
        model.parameters.initialize(1)
        return model.logits(batch_of(Mesh(comm.split(comm.rank)), 0)[0][:, :12])

    [expected] = virtual(program, 1, {})
    for found in spmd(program, int(np.prod(list(sizes.values()))), sizes):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@kinds
def test_phantoms(attention):
    """Shapes and time alone: four ranks of tokens that nobody holds."""
    shape = replace(ONE_LAYER, context=1 << 12)

    def program(comm):
        model = gpt(shape, MeshParts(Mesh(comm, sp=4), attention=attention))
        size = model.parameters.size
        model.parameters.bind(phantom(size, np.float16), phantom(size, np.float16))
        _, context = model.forward(phantom((1, shape.context + 1), np.uint8), Noise(0, 0, np.arange(1)))
        model.backward(context, 1.0)
        return comm.clock()

    assert min(virtual(program, 4)) > 0


def test_what_cannot_be_cut(spmd):
    def program(comm):
        def make(mesh, shape, **options):
            gpt(shape, MeshParts(mesh, **options))

        mesh, heads, context = Mesh(comm, sp=4), replace(SHAPE, heads=6), replace(SHAPE, context=20)
        with pytest.raises(ArgumentError, match=r"6 heads on sp 4 leave 2 over; 6 heads go evenly on sp 1, 2, 3, 6$"):
            make(mesh, heads, attention="ulysses")
        with pytest.raises(ArgumentError, match=r"20 tokens on sp 4 .2 parts a rank. leave 4 over; .* sp 1, 2, 5, 10$"):
            make(mesh, context)
        make(mesh, context, attention="even-ring")
        mesh = Mesh(comm, sp=2, tp=2)
        with pytest.raises(ArgumentError, match=r"3 heads a rank of tp on sp 2 leave 1 over"):
            make(mesh, heads, attention="ulysses")
        with pytest.raises(ArgumentError, match=r"9 tokens a rank of sp on tp 2 leave 1 over"):
            make(mesh, replace(SHAPE, context=18), attention="even-ring", sequence_parallel=True)

    spmd(program, 4)
