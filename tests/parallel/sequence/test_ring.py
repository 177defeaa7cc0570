"""Ring attention: what travels, what is kept, who works how much, and how exact it is."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from harness import virtual
from sequence_attention import HEADS, SPLITS, TOKENS, WIDTH, inputs, over_ranks, whole

import simdist as sd
from simdist.arrays import Ledger, Meter, metered, phantom, recorded
from simdist.cluster import Cluster, Device, Link
from simdist.errors import ArgumentError
from simdist.nn import Noise
from simdist.nn.functional.heads import TILE
from simdist.parallel.sequence import (
    RINGS,
    Even,
    RingAttention,
    Zigzag,
    ring_attention_block,
    ring_attention_bytes,
    ring_attention_cost,
)

splits = pytest.mark.parametrize("split", SPLITS)


@splits
@pytest.mark.parametrize("w", [WIDTH // HEADS, 5])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_traffic(spmd, split, p, w):
    """Forward p-1 blocks of keys and values; backward these again, and their derivatives: 6Nh(p-1)/p items in all."""
    values = HEADS * w
    x, dy = inputs(columns=(2 * WIDTH + values, values))
    block = (2 * TOKENS) * (WIDTH + values) // p * 8

    def program(comm):
        cut = SPLITS[split](comm)
        layer, marks, kept = RingAttention("it", HEADS, cut, value_width=w), [len(comm.recorder.rows)], []
        for work in (
            lambda: kept.append(layer.forward(cut.part(x))[1]),
            lambda: layer.backward_input(kept[0], cut.part(dy)),
        ):
            work()
            marks.append(len(comm.recorder.rows))
        spans = comm.recorder.spans()
        rings = [(s.name, s.bytes) for s in spans if s.name in RINGS]
        assert rings == [(name, block) for name in RINGS]
        halves = (spans[a:b] for a, b in pairwise(marks))
        sends = [[(s.peer, s.bytes) for s in half if s.name == "send"] for half in halves]
        assert {peer for half in sends for peer, _ in half} <= {(comm.rank + 1) % p}, "to the next in the ring alone"
        return [[num_bytes for _, num_bytes in half] for half in sends]

    assert spmd(program, p) == [[[block] * (p - 1), [block] * 2 * (p - 1)]] * p
    assert 3 * (p - 1) * block == 3 * (2 * TOKENS) * (WIDTH + values) * (p - 1) // p * 8
    for backward in (False, True):
        found = ring_attention_cost(p, block, 8, backward=backward)
        assert (found.messages, found.sent_bytes) == ((1 + backward) * (p - 1), (1 + backward) * (p - 1) * block)
        assert found.reduced_bytes == backward * (p - 1) * block


@splits
def test_derivatives_of_short_numbers_travel_as_long_ones(split):
    def program(comm):
        layer = RingAttention("it", 2, SPLITS[split](comm))
        x = np.zeros((1, 4, 12), np.float16)
        _, context = layer.forward(x)
        layer.backward_input(context, np.zeros((1, 4, 4), np.float16))
        return Counter(s.bytes for s in comm.recorder.spans() if s.name == "send")

    assert virtual(program, 3) == [Counter({2 * 4 * 4 * 2: 4, 2 * 4 * 4 * 4: 2})] * 3
    assert ring_attention_cost(3, 2 * 4 * 4 * 2, 2, backward=True).sent_bytes == 2 * (2 + 4) * 2 * 4 * 4


def counted(split, tokens, backward):
    """By rank, the operations on phantoms of this many tokens a rank."""

    def program(comm):
        layer, meter = RingAttention("it", 2, SPLITS[split](comm)), Meter()
        _, context = layer.forward(phantom((1, tokens, 3 * 128)))
        with metered(meter):
            if backward:
                layer.backward_input(context, phantom((1, tokens, 128)))
            else:
                layer.forward(phantom((1, tokens, 3 * 128)))
        return meter.flops

    return virtual(program, 4)


@pytest.mark.parametrize("backward", [False, True])
def test_work_of_an_even_split(backward):
    """1 : 3 : 5 : 7 of half blocks, where the half on the diagonal is a tile's share more than half."""
    flops = counted("even", 40 * TILE, backward)
    block = flops[1] - flops[0]
    assert [b - a for a, b in pairwise(flops)] == [block] * 3, "each rank one whole block more"
    half = block / 2
    np.testing.assert_allclose([f / half for f in flops], [1, 3, 5, 7], atol=0.05)


@pytest.mark.parametrize("backward", [False, True])
def test_work_of_a_zigzag(backward):
    """The same for all, and in sum that of the even split, or less: there are fewer scores on the diagonal."""
    flops, even = (counted(split, 40 * TILE, backward) for split in ("zigzag", "even"))
    assert len(set(flops)) == 1
    assert sum(flops) == pytest.approx(sum(even), rel=0.01)


@splits
def test_nobody_works_on_what_it_may_not_see(split):
    def program(comm):
        layer = RingAttention("it", 2, SPLITS[split](comm))
        layer.forward(np.zeros((1, 4, 12)))
        return Counter(s.detail for s in comm.recorder.spans() if s.name == "forward attention")

    found = virtual(program, 4)
    if split == "even":
        assert found == [{f"block {j}": 1 for j in range(r + 1)} for r in range(4)]
    else:
        assert found == [{f"block {j}": 2 + (j == r) for j in range(4)} for r in range(4)]


def test_blocks_are_not_taken_for_other_messages(spmd):
    def program(comm):
        mine, theirs = np.array([comm.rank]), np.empty(1, int)
        sent = comm.isend(mine, (comm.rank + 1) % comm.size, tag=0)
        RingAttention("it", 2, Even(comm)).forward(np.zeros((1, 4, 12)))
        comm.recv(theirs, (comm.rank - 1) % comm.size, tag=0)
        sent.wait()
        return int(theirs[0])

    assert spmd(program, 3) == [2, 0, 1]


def test_the_next_block_comes_during_the_work_on_the_present_one():
    def program(comm):
        RingAttention("it", 2, Zigzag(comm)).forward(phantom((1, 512, 3 * 128)))
        spans = comm.recorder.spans()
        work = [s for s in spans if s.name == "forward attention"]
        coming = [s for s in spans if s.name == "recv"]
        return [any(w.start_s <= r.start_s and w.end_s >= r.end_s for w in waves(work)) for r in coming]

    def waves(work):
        """From the first span about a block to the last."""
        for block in dict.fromkeys(s.detail for s in work):
            own = [s for s in work if s.detail == block]
            yield own[0]._replace(end_s=own[-1].end_s)

    assert virtual(program, 4) == [[True] * 3] * 4


@pytest.mark.parametrize(
    ("tflops", "gb_per_s", "thousands"),
    [(312, 300, 1.0), (312, 12.5, 24.5), (123, 112, 1.1), (275, 268, 1.0), (196, 186, 1.1)],
)
def test_the_papers_least_blocks(tflops, gb_per_s, thousands):
    """Of A100s, by NVLink and by InfiniBand, and of TPU v3, v4 and v5e, in now 1000 and now 1024 tokens."""
    assert ring_attention_block(tflops * 1e12, gb_per_s * 1e9) / 1e3 == pytest.approx(thousands, rel=0.05)


@pytest.mark.parametrize("split", [Even, Zigzag])
def test_ranks_wait_for_blocks_of_fewer_tokens_than_that_and_of_no_more(split):
    """One tile of queries has its own block whole, too."""
    flops_per_s, least = 312e12, TILE if split is Even else 2 * TILE

    def forward_s(tokens, bytes_per_s):
        def program(comm):
            RingAttention("it", 2, split(comm)).forward(phantom((1, tokens, 3 * 256), np.float16))
            return comm.clock()

        link = Link(0.0, bytes_per_s)
        cluster = Cluster("it", Device("it", flops_per_s, 1e30, 1e12), link, link)
        return max(sd.run(program, 4, cluster=cluster).results)

    bytes_per_s = flops_per_s / TILE
    assert ring_attention_block(flops_per_s, bytes_per_s) == TILE
    for tokens, waits in ((least - 4, True), (least, False), (least + 4, False)):
        assert (forward_s(tokens, bytes_per_s) > forward_s(tokens, 1e30) * (1 + 1e-9)) == waits


@splits
@pytest.mark.parametrize("p", [1, 2, 4])
def test_what_is_kept_grows_with_the_tokens_and_not_with_their_square(spmd, split, p):
    """qkv, y and a number for each query and head: 4Nh/p + Na/p items; of scores, and of dropout's masks, nothing."""
    x, _ = inputs()

    def program(comm):
        cut = SPLITS[split](comm)
        _, context = RingAttention("it", HEADS, cut, 0.3).forward(cut.part(x), Noise(0, 0, np.arange(2)))
        return sum(item.nbytes for item in context if hasattr(item, "nbytes"))

    assert spmd(program, p) == [(4 * WIDTH + HEADS) * (2 * TOKENS // p) * 8] * p


@pytest.mark.parametrize("p", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_at_most_two_blocks_of_keys_are_held(p, dtype):
    """And in backward four of derivatives: the rank's own, one that came, one at hand, and one that goes."""

    def program(comm):
        layer, ledger = RingAttention("it", 4, Zigzag(comm)), Ledger()
        x, dy = phantom((1, 1024, 3 * 128), dtype), phantom((1, 1024, 128), dtype)
        with recorded(ledger):
            _, context = layer.forward(x)
            forward = ledger.peaks["communication"]
            layer.backward_input(context, dy)
        return forward, ledger.peaks["communication"], ledger.now.of("communication")

    itemsize = np.dtype(dtype).itemsize
    block = 2 * 1024 * 128 * itemsize
    for forward, backward, left in virtual(program, p):
        assert forward == min(p, 2) * block
        assert backward == ring_attention_bytes(p, block, itemsize)
        assert left == 0
    assert ring_attention_bytes(6, block, 4) == 6 * block


@splits
@pytest.mark.parametrize("scale", [1, 4])
def test_in_single_precision_on_sixteen_ranks(split, scale):
    """No more than 1.5 times the error of one rank in the same precision, root mean square; at most twice anywhere."""
    x, dy = inputs(tokens=256, width=64, scale=scale, dtype=np.float32)
    found, one = over_ranks(virtual, 16, "ring", split, x, dy, heads=4), whole(x, dy, 4)
    for a, b, exact in zip(found, one, whole(x.astype(np.float64), dy.astype(np.float64), 4), strict=True):
        ours, theirs = np.abs(a - exact), np.abs(b - exact)
        assert np.sqrt((ours**2).mean()) <= 1.5 * np.sqrt((theirs**2).mean())
        assert ours.max() <= 2 * theirs.max()


@splits
def test_scores_that_no_exponential_could_take(spmd, split):
    """Keys of later blocks grow, so that each has a larger score than any before, up to 10⁵ and more."""
    x, dy = inputs(tokens=24, width=24)
    x.reshape(2, 24, 4, 3, 6)[:, :, :, 1] *= np.geomspace(1, 1e5, 24)[:, None, None]
    found, expected = over_ranks(spmd, 4, "ring", split, x, dy, heads=4), whole(x, dy, 4)
    for a, b in zip(found, expected, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


def test_no_ranks_cost_nothing_that_could_be_counted():
    with pytest.raises(ArgumentError, match="ranks is 0"):
        ring_attention_cost(0, 8, 2, backward=False)
