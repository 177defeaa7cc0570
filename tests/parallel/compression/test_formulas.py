"""Rounding and few items: figures of their papers, rounding done by hand, and sums that were made."""

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous.parameter_server import byteps_bytes
from simdist.collectives import all_gather, formula
from simdist.errors import ArgumentError, UnknownNameError
from simdist.optim import AdamW8bit
from simdist.parallel.compression import TopK
from simdist.parallel.compression.formulas import (
    blockwise_bits,
    factor_elements,
    qsgd_bits,
    qsgd_nonzeros,
    qsgd_variance,
    quantization_ratio,
    sparse_formula,
    sparse_sum_nonzeros,
    warmup_share,
)


@pytest.mark.parametrize(("levels", "ratio"), [(2, 32), (3, 20.19), (16, 8), (256, 4)])
def test_ratios_of_signs_ternary_and_bits(levels, ratio):
    assert quantization_ratio(levels) == pytest.approx(ratio, abs=0.005)


def test_steps_that_send_all_bits_make_up_for_most_that_send_one():
    """1-bit Adam on BERT-Large, 23 of 152 thousand steps without: up to 5 times less in all."""
    assert quantization_ratio(2, 16) == 16
    assert quantization_ratio(2, 16, warmup=23 / 152) == pytest.approx(4.9, abs=0.05)
    assert quantization_ratio(2, 16, warmup=1) == 1
    with pytest.raises(ArgumentError, match=r"warmup is 1.5; needs from 0 to 1"):
        quantization_ratio(2, warmup=1.5)


def test_scales_of_blocks_in_bits_an_item():
    """QLoRA saves 0.373 bits by scales of scales, about 3 GB of 65 billion weights; MXFP4, NVFP4; 8-bit Adam."""
    plain, twice = blockwise_bits(4, (64, 32)), blockwise_bits(4, (64, 8), (64 * 256, 32))
    assert (plain - 4, round(twice - 4, 3), round(plain - twice, 3)) == (0.5, 0.127, 0.373)
    assert 65e9 * (plain - twice) / 8 / 1e9 == pytest.approx(3, rel=0.02)
    assert (blockwise_bits(4, (32, 8)), blockwise_bits(4, (16, 8)), blockwise_bits(8)) == (4.25, 4.5, 8)
    state = AdamW8bit(np.zeros(4096, np.float32)).state
    assert 2 * blockwise_bits(8, (2048, 32)) == sum(8 * x.nbytes for x in state.values()) / 4096
    with pytest.raises(ArgumentError, match="block is 0; needs at least 1"):
        blockwise_bits(4, (0, 8))


def test_the_variance_of_the_paper_and_of_few_items():
    assert qsgd_variance(512, 2**4) == pytest.approx(1.41, abs=0.005)
    assert qsgd_variance(4, 16) == 4 / 16**2


@pytest.mark.parametrize(("items", "levels"), [(4, 16), (64, 4), (512, 16), (100, 1)])
def test_rounding_adds_no_more_than_that(items, levels):
    v = np.random.default_rng(items).normal(size=items)
    v /= np.linalg.norm(v)
    upper = np.abs(v) * levels % 1  # the probability to be rounded up; the variance of that choice is p (1 - p)
    assert 0 < (upper * (1 - upper)).sum() / levels**2 <= qsgd_variance(items, levels)
    nonzero = np.minimum(1, np.abs(v) * levels).sum()  # rounded to at least one level with this probability
    assert 0 < nonzero <= qsgd_nonzeros(items, levels) <= items


def test_with_one_level_as_many_items_are_sent_as_the_root_of_all():
    assert qsgd_nonzeros(10_000, 1) == 101
    even = np.full(10_000, 0.01)  # of length 1: each is sent with probability 0.01
    assert np.minimum(1, even).sum() == pytest.approx(100)
    assert qsgd_nonzeros(16, 4) == 16


def test_the_bits_of_rounded_items():
    assert qsgd_bits(1 << 20, 1 << 10) == 2.8 * (1 << 20) + 32
    sparse = qsgd_bits(1 << 20, 1)  # "√n (lg n + O(1))" of the paper's introduction
    assert sparse == pytest.approx((3 + 1.5 * np.log2(2 * (2**20 + 1) / 1025)) * 1025 + 32)
    assert sparse < 1.5 * 1024 * 20
    assert qsgd_bits(512, 2) < 32 * 512


def test_ever_fewer_items_are_sent_while_it_warms_up():
    """The sparsities of Deep Gradient Compression's first five epochs, as it gives them."""
    found = [100 * (1 - warmup_share(epoch)) for epoch in range(6)]
    assert found == pytest.approx([75, 93.75, 98.4375, 99.6, 99.9, 99.9], abs=0.15)
    assert warmup_share(0, epochs=0, share=0.01) == 0.01
    assert warmup_share(3, share=1) == 1


@pytest.mark.parametrize("share", [0.02, 0.3])
@pytest.mark.parametrize("p", [1, 2, 8])
def test_the_sum_of_few_items_of_each_fills(p, share):
    n = 4000

    def program(comm):
        x = np.random.default_rng(comm.rank).normal(size=n)
        TopK(x, share).reduce(x, comm)
        return np.count_nonzero(x)

    found = sparse_sum_nonzeros(n, share * n, p)
    assert sd.run(program, p).results == [pytest.approx(found, rel=0.04)] * p
    assert sparse_sum_nonzeros(n, n, p) == n >= found
    assert sparse_sum_nonzeros(n, 0, p) == 0


def test_half_of_all_items_come_of_a_thousandth_each_on_693_ranks():
    assert [sparse_sum_nonzeros(10**6, 1000, p) < 5e5 for p in (692, 693)] == [True, False]


@pytest.mark.parametrize("p", [2, 4, 8, 64])
def test_sums_of_few_items_in_the_table_of_ok_topk(p):
    """arXiv 2201.07598, table 1, elements: that of split lies between where all have the same items, and all others."""
    n, k = 10**6, 1000
    gathered, along_tree = (sparse_formula(name, n, k, p) for name in ("all-gather", "gtop-k"))
    assert gathered == formula("all_gather", "recursive_doubling", ranks=p, num_bytes=2 * k * p * 4)
    assert along_tree == formula("all_reduce", "tree", ranks=p, num_bytes=2 * k * 4)._replace(reduced_bytes=0)
    most, split = (sparse_formula(name, n, k, p, 1) for name in ("ok-topk", "split"))
    assert most.bytes == pytest.approx(6 * k * (p - 1) / p)
    assert most.latencies - split.latencies == p
    assert 4 * k * (p - 1) / p < split.bytes < 4 * k * p
    dense = sparse_formula("split", n, n / 2, p, 1)
    assert dense.bytes == pytest.approx((n + n) * (p - 1) / p)  # (2k + n)(p-1)/p
    with pytest.raises(UnknownNameError, match="algorithm.*'ring'.*ok-topk"):
        sparse_formula("ring", n, k, p)


def test_sparse_sums_that_are_exchanged_grow_as_their_union():
    """Lists of k places each, drawn at random, exchanged and joined along a hypercube."""
    n, k, p, runs = 500, 40, 8, 200
    rng, sent = np.random.default_rng(3), 0
    for _ in range(runs):
        held = [set(rng.choice(n, k, replace=False).tolist()) for _ in range(p)]
        for hop in (1, 2, 4):
            sent += sum(min(2 * len(places), n) for places in held)
            held = [held[r] | held[r ^ hop] for r in range(p)]
    told = sparse_formula("recursive-doubling", n, k, p, 1)
    assert told.bytes == pytest.approx(sent / runs / p, rel=0.005)
    assert told.latencies == 3 and 2 * k * 3 < told.bytes < 2 * k * 7
    same, apart = sparse_formula("recursive-doubling", n, n, p, 1), sparse_formula("recursive-doubling", 10**9, k, p, 1)
    assert (same.bytes, apart.bytes) == (3 * n, pytest.approx(2 * k * 7))


def test_top_k_sends_what_the_table_has_for_it():
    run = sd.run(lambda comm: TopK(np.zeros(1000, np.float32), 0.01).reduce(np.ones(1000, np.float32), comm), 4)
    assert sum(s.bytes for s in run.trace.sends(0)) == sparse_formula("all-gather", 1000, 10, 4).bytes


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (quantization_ratio, (1,)),
        (qsgd_variance, (0, 1)),
        (qsgd_variance, (1, 0)),
        (qsgd_nonzeros, (1, 0)),
        (qsgd_bits, (1, 0)),
        (warmup_share, (-1,)),
        (warmup_share, (0, 4, 0)),
        (sparse_sum_nonzeros, (4, 5, 1)),
        (sparse_sum_nonzeros, (4, 1, 0)),
        (sparse_formula, ("ok-topk", 4, 1, 0)),
    ],
)
def test_limits(function, args):
    with pytest.raises(ArgumentError, match="needs at least"):
        function(*args)


def test_factors_of_a_wide_layer_are_fewer_than_its_gradients():
    """Poseidon's table 1, both ways: 3.7 million numbers instead of 58.7 by servers on the same machines."""
    assert 2 * factor_elements(32, 4096, 4096, 8) / 1e6 == pytest.approx(3.7, abs=0.05)
    assert 2 * byteps_bytes(4096 * 4096, 8).link_bytes / 1e6 == pytest.approx(58.7, abs=0.05)
    with pytest.raises(ArgumentError, match="ranks is 0; needs at least 1"):
        factor_elements(32, 4096, 4096, 0)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_gathered_factors_make_the_sum_of_gradients(p):
    samples, width, out = 2, 6, 4
    rows = np.random.default_rng(p).integers(-9, 9, (p, samples, width + out))

    def program(comm):
        every = all_gather(rows[comm.rank].ravel(), comm, algorithm="ring").reshape(-1, width + out)
        return every[:, :width].T @ every[:, width:]

    run = sd.run(program, p)
    total = sum(own[:, :width].T @ own[:, width:] for own in rows)
    assert all(np.array_equal(made, total) for made in run.results)
    assert sum(s.bytes for s in run.trace.sends(0)) == 8 * factor_elements(samples, width, out, p)
