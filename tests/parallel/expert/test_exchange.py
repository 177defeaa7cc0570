"""The exchange by itself, and what a layer sends on ep: the record is held to the formulas, to the byte."""

import weakref
from collections import Counter
from math import inf

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import Cluster, Device, Link, preset
from simdist.collectives import cost
from simdist.errors import ArgumentError
from simdist.nn import functional as f
from simdist.nn.layers import Experts, Recompute
from simdist.parallel.expert import AllToAllExchange, exchange_elements
from simdist.trace.statistics import hidden_share

EXPERTS, WIDTH, TOKENS, ITEM = 24, 6, 24, 8


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", ["auto", "pairwise", "hierarchical"])
def test_slots_come_to_their_experts_and_back(spmd, p, name):
    """Slot i that rank r fills for expert e holds 100e + 10r + i."""
    m = 3

    def program(comm):
        exchange, r = AllToAllExchange(comm, name), comm.rank
        x = np.add.outer(100.0 * np.arange(EXPERTS), 10 * r + np.arange(m))[:, :, None] * np.ones(2)
        there = exchange.to_experts(x)
        own = exchange.own(EXPERTS)
        ranks = np.add.outer(10.0 * np.arange(p), np.arange(m)).reshape(-1)
        np.testing.assert_array_equal(there[:, :, 0], np.add.outer(100.0 * np.arange(EXPERTS)[own], ranks))
        np.testing.assert_array_equal(exchange.to_tokens(there), x)
        return own.start, own.stop

    assert spmd(program, p) == [(r * EXPERTS // p, (r + 1) * EXPERTS // p) for r in range(p)]


def test_all_send_as_many_slots_as_the_one_who_fills_most(spmd):
    assert spmd(lambda comm: AllToAllExchange(comm).slots([4, 0, 9][comm.rank]), 3) == [9, 9, 9]


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("degree", [2, 3, 5])
@pytest.mark.parametrize("m", [0, 1, 4])
def test_parts_of_the_slots_come_through_their_experts_one_by_one(spmd, p, degree, m):
    """Expert e multiplies by e + 1; parts without slots are left out."""

    def program(comm):
        exchange, sizes = AllToAllExchange(comm, overlap_degree=degree), []
        x = np.arange(EXPERTS * m * 2.0).reshape(EXPERTS, m, 2) + comm.rank / 8
        own = exchange.own(EXPERTS)

        def work(x):
            sizes.append(x.shape[1])
            return x * np.arange(1.0, EXPERTS + 1)[own, None, None]

        np.testing.assert_array_equal(exchange.through(x, work), x * np.arange(1.0, EXPERTS + 1)[:, None, None])
        return sizes

    cut = [p * len(run) for run in np.array_split(range(m), degree) if len(run)] or [0]
    assert spmd(program, p) == [[m] if p == 1 else cut] * p


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("degree", [1, 2, 4])
@pytest.mark.parametrize("share", [0.125, 0.5, 1.0, 2.0, 8.0])
def test_the_work_of_experts_hides_the_exchange(p, degree, share):
    """Work of `share` times one way of the slots, in d parts: experts wait only for the first part, and only the last
    one's way back is left; or both ways follow each other, and the work is hidden."""
    m, h, rate = 8, 64, 1e6
    link = Link(0.0, rate)
    cluster = Cluster("free", Device("", inf, inf, inf), link, link, p, eager_bytes=0)
    way_s = EXPERTS * m * h * ITEM * (p - 1) / p / rate

    def program(comm):
        exchange = AllToAllExchange(comm, "pairwise", degree)

        def work(x):
            comm.compute(seconds=share * way_s * x.shape[1] / (p * m))
            return x

        exchange.through(np.zeros((EXPERTS, m, h)), work)

    run = sd.run(program, ranks=p, cluster=cluster)
    work_s = share * way_s
    in_parts_s = max(2 * way_s, work_s + 2 * way_s / degree)
    assert run.elapsed_s == pytest.approx(2 * way_s + work_s if degree == 1 else in_parts_s)
    hidden_s = 0 if degree == 1 else 2 * way_s + work_s - in_parts_s
    assert hidden_share(run.trace.spans, 0, "exchange") == pytest.approx(hidden_s / (2 * way_s))


def test_parts_are_copied_out_of_the_slots_and_into_them():
    """On a machine where memory alone takes time: each of E m h items is read and written, both ways."""
    wire, itself = Link(0.0, inf), lambda x: x
    cluster = Cluster("memory", Device("", inf, ITEM, inf), wire, wire, 1)

    def program(comm):
        AllToAllExchange(comm, "pairwise", 2).through(np.zeros((EXPERTS, 4, WIDTH)), itself)

    run = sd.run(program, 2, cluster=cluster)
    assert run.elapsed_s == pytest.approx(4 * EXPERTS * 4 * WIDTH)


def test_slots_in_less_than_one_part_cannot_travel():
    with pytest.raises(ArgumentError, match="overlap_degree is 0; needs at least 1"):
        sd.run(lambda comm: AllToAllExchange(comm, overlap_degree=0), ranks=2)


def traffic(comm, texts, top_k, factor, wrap, algorithm, degree=1):
    """By part of the work: how many all-to-alls, and how many bytes this rank sent in them."""
    layer = Experts(
        "x", WIDTH, 8, EXPERTS, group=TOKENS, top_k=top_k, capacity_factor=factor,
        exchange=AllToAllExchange(comm, algorithm, degree),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for parameter in layer.parameters:
        parameter.data, parameter.gradient = rng.normal(size=parameter.shape), np.zeros(parameter.shape)
    layer = wrap(layer)
    x = np.random.default_rng(comm.rank).normal(size=(texts[comm.rank], TOKENS, WIDTH))
    found, state = [], {}

    def forward():
        state["context"] = layer.forward(x)[1]

    def backward_input():
        state["pending"] = layer.backward_input(state["context"], x)[1]

    for work in (forward, backward_input, lambda: layer.backward_weight(state["context"], state["pending"])):
        first = len(comm.recorder.rows)
        work()
        spans = comm.recorder.spans()[first:]
        calls = Counter(span.name.split()[0] for span in spans)
        found.append((calls["all_to_all"], sum(span.bytes for span in spans if span.name == "send")))
    return found


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("top_k", [1, 2])
def test_two_all_to_alls_each_way_of_k_tokens_h_p_less_1_over_p_items(spmd, p, top_k):
    """With a capacity factor of 1; E there is the number of ranks, each with an expert: here they have several."""
    way = 2 * top_k * 2 * TOKENS * WIDTH * (p - 1) // p * ITEM
    assert way == 2 * exchange_elements(2 * TOKENS, WIDTH, p, top_k) * ITEM
    for found in spmd(traffic, p, [2] * p, top_k, 1.0, lambda layer: layer, "pairwise"):
        assert found == [(2, way), (2, way), (0, 0)]


@pytest.mark.parametrize("degree", [2, 4])
def test_parts_of_the_slots_are_as_many_bytes(spmd, degree):
    way = 2 * exchange_elements(2 * TOKENS, WIDTH, 4, 2) * ITEM
    found = spmd(traffic, 4, [2] * 4, 2, 1.0, lambda layer: layer, "pairwise", degree)
    assert found == [[(2 * degree, way), (2 * degree, way), (0, 0)]] * 4


@pytest.mark.parametrize("p", [2, 3, 4])
def test_recomputation_goes_forward_once_more(spmd, p):
    way = 2 * 2 * TOKENS * WIDTH * (p - 1) // p * ITEM
    for found in spmd(traffic, p, [2] * p, 1, 1.0, Recompute, "pairwise"):
        assert found == [(2, way), (4, 2 * way), (0, 0)]


def test_no_ranks_send_nothing_that_could_be_counted():
    with pytest.raises(ArgumentError, match="ranks is 0"):
        exchange_elements(8, 8, 0)


def test_an_exchange_of_deepseek_v3():
    """arXiv 2505.09343: there in 8 bits and back in 16, 32 tokens to 9 of very many, by 50 GB/s."""
    there_and_back = (1 + 2) * exchange_elements(32, 7000, 1e9, 9)
    assert there_and_back / 50e9 == pytest.approx(120.96e-6, rel=1e-6)


def test_slots_beyond_the_tokens_are_sent_too(spmd):
    way = 2 * exchange_elements(2 * TOKENS, WIDTH, 4, 2, 1.5) * ITEM
    assert spmd(traffic, 4, [2] * 4, 2, 1.5, lambda layer: layer, "pairwise") == [[(2, way), (2, way), (0, 0)]] * 4


@pytest.mark.parametrize("name", ["linear", "pairwise", "bruck"])
@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_it_is_what_the_all_to_all_costs_with_uneven_tokens_too(spmd, name, factor):
    """The fullest rank says how many slots travel, whoever fills them."""
    p, texts = 4, [3, 0, 1, 2]
    slots = max(texts) * f.capacity(TOKENS, EXPERTS, factor)
    num_bytes = EXPERTS * slots * WIDTH * ITEM
    for rank, found in enumerate(spmd(traffic, p, texts, 1, factor, lambda layer: layer, name)):
        sent = cost("all_to_all", name, ranks=p, num_bytes=num_bytes, rank=rank).sent_bytes
        assert found == [(2, 2 * sent), (2, 2 * sent), (0, 0)]


@pytest.mark.parametrize("per_node", [2, 4])
def test_by_the_hierarchical_one_only_what_must_leaves_a_node_in_few_messages(per_node):
    """On eight ranks: to each other node one message, with what all ranks of this one have for one of its."""
    p, slots = 8, f.capacity(TOKENS, EXPERTS, 1.0)
    cluster = preset("this-machine").with_(devices_per_node=per_node)
    args = [1] * p, 1, 1.0, lambda layer: layer, "hierarchical"
    run = sd.run(traffic, ranks=p, args=args, cluster=cluster)
    away = [s for s in run.trace.spans if s.name == "send" and s.rank // per_node != s.peer // per_node]
    assert Counter(s.rank for s in away) == dict.fromkeys(range(p), 4 * (p // per_node - 1))
    from_each = 4 * EXPERTS * slots * WIDTH * ITEM * (p - per_node) // p
    assert sum(s.bytes for s in away) == p * from_each


def test_derivatives_that_were_sent_are_freed_before_experts_compute(spmd):
    class Watched(AllToAllExchange):
        def to_experts(self, x):
            self.sent = weakref.ref(x if x.base is None else x.base)
            return super().to_experts(x)

        def to_tokens(self, y):
            self.kept = self.sent() is not None
            return super().to_tokens(y)

    def program(comm):
        layer = Experts("x", WIDTH, 8, EXPERTS, group=TOKENS, exchange=Watched(comm))
        for parameter in layer.parameters:
            parameter.data, parameter.gradient = np.ones(parameter.shape), np.zeros(parameter.shape)
        x = np.ones((1, TOKENS, WIDTH))
        layer.backward(layer.forward(x)[1], x)
        return layer.exchange.kept

    assert spmd(program, 2) == [False, False]


def test_nobody_has_a_token(spmd):
    assert spmd(traffic, 2, [0, 0], 1, 1.0, lambda layer: layer, "auto") == [[(2, 0), (2, 0), (0, 0)]] * 2
