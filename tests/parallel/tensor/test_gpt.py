"""A GPT cut over tp, and over dp and tp, against the same on one rank.

What is left to differ is the order in which sums are added up.
"""

from dataclasses import replace

import pytest
from harness import virtual
from mesh_training import ONE_LAYER, SHAPE, check, close, joined, serial_gradients, whole_gradients

TENSOR = {"sequence_parallel": False}
SEQUENCE = {"sequence_parallel": True}
OVERLAPPED = {"sequence_parallel": True, "tp_overlap": True}
both = pytest.mark.parametrize("options", [TENSOR, SEQUENCE, OVERLAPPED], ids=["tensor", "sequence", "overlapped"])
mostly_sequence = pytest.mark.parametrize("options", [pytest.param(TENSOR, marks=pytest.mark.slow), SEQUENCE])


@both
@pytest.mark.parametrize("tp", [1, 2, 3, 4, 8])
def test_loss_and_every_gradient(spmd, tp, options):
    total, expected = serial_gradients()
    found = spmd(lambda comm: whole_gradients(comm, {"tp": tp}, **options), tp)
    for loss, _ in found:
        assert loss == found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@pytest.mark.slow(but=4)
@both
@pytest.mark.parametrize("tp", [1, 2, 3, 8])
def test_twenty_steps(tp, options):
    check(virtual, {"tp": tp}, **options)


@both
@pytest.mark.parametrize("sizes", [{"tp": 4}, {"dp": 2, "tp": 2}], ids=str)
def test_twenty_steps_on_four_ranks(spmd, sizes, options):
    check(spmd, sizes, **options)


@mostly_sequence
def test_twelve_ranks(options):
    check(virtual, {"dp": 4, "tp": 3}, **options)


@mostly_sequence
@pytest.mark.parametrize("zero_stage", [1, 2])
def test_zero_over_tensor_parallel(zero_stage, options):
    check(virtual, {"dp": 2, "tp": 2}, zero_stage=zero_stage, **options)


@both
def test_sharded_weights_over_tensor_parallel(spmd, options):
    check(spmd, {"dp": 2, "tp": 2}, zero_stage=3, **options)


@both
@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputation(recompute, options):
    check(virtual, {"tp": 2}, replace(ONE_LAYER, recompute=recompute), **options)


@both
def test_logits_of_their_own(options):
    check(virtual, {"tp": 2}, replace(ONE_LAYER, tied=False), **options)


@both
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_halves_of_backward(recompute, options):
    shape = replace(SHAPE, recompute=recompute)
    total, expected = serial_gradients(shape)
    found = virtual(lambda comm: whole_gradients(comm, {"tp": 2}, shape, halves=True, **options), 2)
    assert found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)
