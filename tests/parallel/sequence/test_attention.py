"""Attention over ranks, by the ring and by Ulysses, against that of one process, and against PyTorch's."""

import numpy as np
import pytest
from harness import virtual
from sequence_attention import HEADS, KINDS, NOISE, SPLITS, inputs, over_ranks, whole

from simdist.arrays import phantom
from simdist.collectives import algorithms
from simdist.errors import ArgumentError, ArrayError, CollectiveMismatch
from simdist.parallel.sequence import Even, RingAttention, UlyssesAttention, Zigzag

kinds = pytest.mark.parametrize("kind", KINDS)
splits = pytest.mark.parametrize("split", SPLITS)


def close(found, expected, limit=1e-12):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=limit * np.abs(b).max())


@splits
@kinds
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_against_one_process_with_its_masks_of_dropout(spmd, kind, split, p):
    x, dy = inputs()
    close(over_ranks(spmd, p, kind, split, x, dy, dropout=0.3, first_head=5), whole(x, dy, HEADS, 0.3, 5))


@splits
@kinds
def test_against_pytorch(kind, split):
    """On virtual ranks only: each real one would take seconds to import PyTorch."""
    torch = pytest.importorskip("torch")
    heads, x, dy = 4, *inputs(tokens=32, width=24)
    qkv = torch.tensor(x, requires_grad=True)
    q, k, v = qkv.reshape(2, 32, heads, 3, 6).permute(3, 0, 2, 1, 4)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 32, 24)
    y.backward(torch.tensor(dy))
    close(over_ranks(virtual, 4, kind, split, x, dy, heads), (y.detach().numpy(), qkv.grad.numpy()))


@splits
@kinds
def test_texts_longer_than_a_tile(spmd, kind, split):
    x, dy = inputs(tokens=600, width=12)
    close(over_ranks(spmd, 2, kind, split, x, dy, heads=2, dropout=0.1), whole(x, dy, 2, 0.1))


@splits
@kinds
@pytest.mark.parametrize("w", [2, 5])
@pytest.mark.parametrize("groups", [4, 8])
def test_values_of_a_width_of_their_own(spmd, kind, split, groups, w):
    """Of texts of more than one tile."""
    heads, e, given = 8, 3, {"groups": groups, "value_width": w}
    x, dy = inputs(tokens=288, columns=(heads * e + groups * (e + w), heads * w))
    found = over_ranks(spmd, 2, kind, split, x, dy, heads, dropout=0.3, first_head=5, **given)
    close(found, whole(x, dy, heads, 0.3, 5, **given))


@splits
@kinds
def test_sixteen_bits(spmd, kind, split):
    x, dy = inputs(dtype=np.float16)
    found = over_ranks(spmd, 4, kind, split, x, dy, dropout=0.3)
    close(found, whole(x.astype(np.float64), dy.astype(np.float64), dropout=0.3), 2e-3)


@pytest.mark.parametrize("algorithm", ["auto", *algorithms("all_to_all")])
def test_ulysses_by_every_exchange(spmd, algorithm):
    x, dy = inputs()
    close(over_ranks(spmd, 3, "ulysses", "even", x, dy, algorithm=algorithm), whole(x, dy))


def test_phantoms_have_the_shapes():
    def program(comm):
        shapes = []
        for kind in (RingAttention, UlyssesAttention):
            layer = kind("it", 12, Zigzag(comm), 0.1, groups=4, value_width=2)
            y, context = layer.forward(phantom((2, 16, 12 * 5 + 4 * (5 + 2)), np.float16))
            dx, _ = layer.backward_input(context, phantom((2, 16, 12 * 2), np.float16))
            shapes += [y.shape, y.dtype.name, dx.shape, dx.dtype.name]
        return shapes

    assert virtual(program, 4) == [2 * [(2, 16, 24), "float16", (2, 16, 88), "float16"]] * 4


def test_more_ranks_than_heads(spmd):
    def program(comm):
        with pytest.raises(ArgumentError, match=r"2 heads on sp 4 leave 2 over; 2 heads go evenly on sp 1, 2$"):
            UlyssesAttention("it", 2, Even(comm))
        with pytest.raises(ArgumentError, match=r"6 heads on sp 4 leave 2 over; 6 heads go evenly on sp 1, 2, 3, 6$"):
            UlyssesAttention("it", 6, Even(comm))

    spmd(program, 4)


def test_tokens_that_make_no_two_runs(spmd):
    """They are refused before anything is sent, which would never be received."""

    def program(comm):
        x = np.zeros((1, 5, 12))
        with pytest.raises(ArgumentError, match=r"10 tokens on sp 2 \(2 parts a rank\) leave 2 over"):
            RingAttention("it", 2, Zigzag(comm)).forward(x)

    spmd(program, 2)


@kinds
@pytest.mark.filterwarnings("ignore::simdist.errors.UnmatchedMessage")  # left by what failed
def test_ranks_that_come_with_different_texts(spmd, kind):
    def program(comm):
        with pytest.raises(CollectiveMismatch, match=r"float64\["):
            KINDS[kind]("it", 3, Even(comm)).forward(np.zeros((1, 4 + comm.rank, 27)))

    spmd(program, 3)


def test_noise_of_other_texts(spmd):
    def program(comm):
        with pytest.raises(ArrayError, match="noise for 2 samples and activations of 3"):
            UlyssesAttention("it", 2, Even(comm), 0.1).forward(np.zeros((3, 4, 12)), NOISE)

    spmd(program, 2)
