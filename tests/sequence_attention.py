"""What tests of attention over ranks share: texts cut along their tokens, one layer on all ranks, and one on one."""

import numpy as np

from simdist.nn import Noise
from simdist.nn.layers import Attention
from simdist.parallel.sequence import Even, RingAttention, UlyssesAttention, Zigzag

__all__ = ["HEADS", "KINDS", "NOISE", "SPLITS", "TOKENS", "WIDTH", "inputs", "over_ranks", "whole"]

HEADS, TOKENS, WIDTH = 24, 48, 72
NOISE = Noise(seed=1, step=2, samples=np.array([3, 7]))
SPLITS = {"even": Even, "zigzag": Zigzag}
KINDS = {"ring": RingAttention, "ulysses": UlyssesAttention}


def inputs(tokens=TOKENS, width=WIDTH, seed=0, scale=1.0, dtype=np.float64, columns=None):
    """qkv and dy of two whole texts; their columns, if not 3 and 1 times the width."""
    random = np.random.default_rng(seed)
    return [(random.normal(size=(2, tokens, w)) * scale).astype(dtype) for w in columns or (3 * width, width)]


def whole(x, dy, heads=HEADS, dropout=0.0, first_head=0, **options):
    """y and dx of one process."""
    layer = Attention("it", heads, dropout, first_head, **options)
    y, context = layer.forward(x, NOISE)
    return y, layer.backward_input(context, dy)[0]


def over_ranks(run, p, kind, split, x, dy, heads=HEADS, dropout=0.0, **options):
    """The same of p ranks, put together again; run is `spmd`."""

    def program(comm):
        cut = SPLITS[split](comm)
        layer = KINDS[kind]("it", heads, cut, dropout, **options)
        own, own_dy = cut.part(x), cut.part(dy)
        before = own.copy(), own_dy.copy()
        y, context = layer.forward(own, NOISE)
        dx, pending = layer.backward_input(context, own_dy)
        layer.backward_weight(context, pending)
        assert all(np.array_equal(a, b) for a, b in zip(before, (own, own_dy), strict=True)), "inputs are as they were"
        return cut.own(x.shape[1]), y, dx

    y, dx = np.full_like(dy, np.nan), np.full_like(x, np.nan)
    for own, own_y, own_dx in run(program, p):
        assert own_y.dtype == own_dx.dtype == x.dtype
        y[:, own], dx[:, own] = own_y, own_dx
    return y, dx
