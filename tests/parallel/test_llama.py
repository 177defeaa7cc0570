"""A GPT of Llama's blocks, also with latent attention, cut over the axes of a mesh, against the same on one rank."""

from dataclasses import replace

import numpy as np
import pytest
from activations_held import check_held
from harness import virtual
from mesh_training import ONE_LAYER, check, close, joined, serial_gradients, whole_gradients

from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import gpt
from simdist.parallel.parts import ATTENTIONS, MeshParts

LLAMA = replace(ONE_LAYER, block="llama", kv_heads=12, head_width=6, ffn_width=48)
LATENT = replace(
    ONE_LAYER, block="llama", head_width=6, kv_latent_width=10, query_latent_width=14, rope_width=4, ffn_width=48
)
every_attention = pytest.mark.parametrize("shape", [LLAMA, LATENT], ids=["llama", "latent"])

CUTS = [
    ({"tp": 4}, {}),
    ({"tp": 3}, {"sequence_parallel": True}),
    *(({"sp": 2}, {"attention": attention}) for attention in ATTENTIONS),
    *(({"sp": 2, "tp": 2}, {"attention": attention, "sequence_parallel": True}) for attention in ATTENTIONS),
]


@pytest.mark.slow(but=6)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("sizes", "options"), CUTS, ids=str)
@every_attention
def test_loss_and_every_gradient(spmd, sizes, options, recompute, shape):
    shape, halves = replace(shape, layers=2, recompute=recompute), recompute != "none"
    total, expected = serial_gradients(shape)
    p = int(np.prod(list(sizes.values())))
    found = spmd(lambda comm: whole_gradients(comm, sizes, shape, halves, **options), p)
    for loss, _ in found:
        assert loss == found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@pytest.mark.slow(but=4)
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(("sizes", "options"), CUTS, ids=str)
@every_attention
def test_flash_attention(spmd, sizes, options, recompute, shape):
    shape = replace(shape, layers=2, recompute=recompute)
    total, expected = serial_gradients(shape)
    p = int(np.prod(list(sizes.values())))
    found = spmd(lambda comm: whole_gradients(comm, sizes, replace(shape, flash=True), False, **options), p)
    assert found[0][0] == pytest.approx(total, rel=1e-12)
    close(joined([parts for _, parts in found]), expected)


@pytest.mark.slow(but=3)
@pytest.mark.parametrize("zero_stage", [0, 2, 3])
@every_attention
def test_twenty_steps(spmd, zero_stage, shape):
    check(spmd, {"dp": 2, "tp": 2}, shape, zero_stage=zero_stage)


def test_untied_on_three_axes():
    for shape in (LLAMA, LATENT):
        check(virtual, {"dp": 2, "sp": 2, "tp": 2}, replace(shape, tied=False), sequence_parallel=True)


@pytest.mark.slow(but=14)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("sizes", "options"), [({}, {}), *CUTS], ids=str)
@every_attention
def test_what_is_held_is_what_the_formulas_say(sizes, options, recompute, dtype, shape):
    for flash in (False, True):
        check_held(sizes, replace(shape, layers=2, context=12, recompute=recompute, flash=flash), dtype, **options)


def test_what_cannot_be_cut(spmd):
    def program(comm):
        with pytest.raises(ArgumentError, match=r"46 features inside a perceptron on tp 4 leave 2 over"):
            gpt(replace(LLAMA, ffn_width=46), MeshParts(Mesh(comm, tp=4)))
        with pytest.raises(ArgumentError, match=r"6 heads of keys and values on tp 4 leave 2 over"):
            gpt(replace(LLAMA, kv_heads=6), MeshParts(Mesh(comm, tp=4)))
        with pytest.raises(ArgumentError, match=r"3 heads of keys and values a rank of tp on sp 2 leave 1 over"):
            gpt(replace(LLAMA, kv_heads=6), MeshParts(Mesh(comm, tp=2, sp=2), attention="ulysses"))

    spmd(program, 4)
