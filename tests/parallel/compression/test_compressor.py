"""What all compressors have in common. The oracle is the sum of what the ranks put in, by NumPy."""

import numpy as np
import pytest
from harness import virtual

import simdist as sd
from simdist.arrays import Meter, metered, phantom
from simdist.cluster import preset
from simdist.errors import ArrayError
from simdist.parallel.compression import PowerSGD, Quantized, TopK, Uncompressed

MATRICES = [(slice(0, 200), (20, 10)), (slice(210, 330), (8, 5, 3))]
SIZE = 337

KINDS = {
    "uncompressed": Uncompressed,
    "top-k": lambda like: TopK(like, 0.1),
    "8 bits": lambda like: Quantized(like, 50),
    "PowerSGD": lambda like: PowerSGD(like, MATRICES, rank=2),
}
every_kind = pytest.mark.parametrize("name", KINDS)
with_memory = pytest.mark.parametrize("name", ["top-k", "8 bits", "PowerSGD"])


def gradient(rank, step, dtype="float64"):
    return np.random.default_rng((rank, step)).normal(size=SIZE).astype(dtype)


def reduce_some(comm, name, steps, dtype="float64", bad=()):
    """The sums applied, what this rank has put off, and bytes: on the record, counted, of the plain ring; and the
    share that was saved."""
    compressor = KINDS[name](np.empty(SIZE, dtype))
    first, applied = len(comm.recorder.rows), []
    for step in range(steps):
        x = gradient(comm.rank, step, dtype)
        if (step, comm.rank) in bad:
            x[[0, 5, 336]] = np.nan, np.inf, -np.inf
        compressor.reduce(x, comm)
        applied.append(x)
    sent = sum(span.bytes for span in comm.recorder.spans()[first:] if span.name == "send")
    sent = sent, compressor.sent_bytes, compressor.plain_bytes, compressor.saved_share
    return np.array(applied), compressor.put_off(comm.rank), sent


def test_on_several_nodes_bytes_are_counted_as_they_are_sent():
    """There the sum is found within nodes first, and ranks of the last node, which has fewer, send another number."""

    def program(comm):
        first, like = len(comm.recorder.rows), np.empty(10 * SIZE)
        compressor = Uncompressed(like)
        compressor.reduce(np.ones_like(like), comm)
        spans = comm.recorder.spans()[first:]
        assert any(span.name == "all_reduce hierarchical" for span in spans)
        return sum(span.bytes for span in spans if span.name == "send"), compressor.sent_bytes

    found = sd.run(program, 7, cluster=preset("this-machine").with_(devices_per_node=3)).results
    assert all(sent == counted > 0 for sent, counted in found)


@every_kind
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_nothing_is_lost(spmd, p, name):
    found = spmd(reduce_some, p, name, 6)
    given = sum(gradient(rank, step) for rank in range(p) for step in range(6))
    put_off = sum(left for _, left, _ in found)
    np.testing.assert_allclose(found[0][0].sum(axis=0) + put_off, given, rtol=0, atol=1e-12)


@every_kind
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [2, 3, 4])
def test_all_ranks_get_the_same_bits(spmd, p, dtype, name):
    found = spmd(reduce_some, p, name, 3, dtype)
    again = spmd(reduce_some, p, name, 3, dtype)
    for (applied, *_), (repeated, *_) in zip(found, again, strict=True):
        assert applied.dtype == dtype
        assert applied.tobytes() == repeated.tobytes() == found[0][0].tobytes()


@every_kind
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_the_record_shows_what_is_counted(spmd, p, name):
    for rank, (_, _, (recorded, sent, plain, saved)) in enumerate(spmd(reduce_some, p, name, 2)):
        assert recorded == sent, rank
        assert plain == pytest.approx(2 * 2 * SIZE * 8 * (p - 1) / p, abs=2 * 2 * 8 * 2)
        assert saved == (pytest.approx((plain - recorded) / plain) if p > 1 else 0)
        if name != "uncompressed" and p > 1:
            assert sent < 0.6 * plain


@every_kind
def test_its_own_work_is_on_the_record_as_computing(name):
    run = sd.run(reduce_some, 3, args=(name, 2))
    frames = [span for span in run.trace.spans if span.name == f"compute sum by {KINDS[name](np.empty(SIZE)).name}"]
    assert sorted((span.rank, span.bytes) for span in frames) == [(rank, 8 * SIZE) for rank in (0, 0, 1, 1, 2, 2)]
    computing = [rank.computing_s > 0 for rank in run.trace.statistics()]
    assert computing == [name != "uncompressed"] * 3, "all that the plain ring does is communicate"


@with_memory
def test_what_is_not_finite_spreads_and_is_forgotten(spmd, name):
    bad = ((1, 0), (3, 0), (3, 2))
    found = spmd(reduce_some, 3, name, 5, "float64", bad)
    for applied, left, _ in found:
        np.testing.assert_array_equal(np.isnan(applied).all(axis=1), [False, True, False, True, False])
        assert np.isfinite(applied[[0, 2, 4]]).all()
        assert np.isfinite(left).all()
    given = sum(gradient(rank, step) for rank in range(3) for step in range(5) if (step, rank) not in bad)
    applied = found[0][0][[0, 2, 4]].sum(axis=0)
    np.testing.assert_allclose(applied + sum(left for _, left, _ in found), given, rtol=0, atol=1e-12)


def test_a_residual_never_exceeds_its_dtype():
    """Two gradients that are finite, and whose sum is not: their Inf would stay, and every later sum would be NaN."""

    def program(comm):
        compressor = TopK(np.empty(4, np.float32), share=0.25)
        applied = []
        for x in ([3e38, 3e38, 1, 1], [3e38, 3e38, 1, 1], [1, 1, 1, 1], [2, 2, 2, 2]):
            mine = np.array(x if comm.rank == 0 else [0, 0, 0, 0], np.float32)
            compressor.reduce(mine, comm)
            applied.append(mine)
        return np.array(applied), compressor.state["residual"]

    (applied, left), (others, none) = sd.run(program, 2).results
    np.testing.assert_array_equal(np.isnan(applied).all(axis=1), [False, True, False, False])
    np.testing.assert_array_equal(applied, others)
    given = np.float64([3e38 + 3, 3e38 + 3, 4, 4])
    np.testing.assert_allclose(np.nansum(applied, axis=0, dtype=np.float64) + left + none, given, rtol=1e-6)


def descend(comm, name, steps):
    """Gradient descent on a quadratic of which each rank knows a part: how far from the minimum it ends."""
    rng = np.random.default_rng(0)
    curvature, centers = rng.uniform(0.5, 1, size=SIZE), rng.normal(size=(comm.size, SIZE))
    w, compressor = np.zeros(SIZE), KINDS[name](np.empty(SIZE))
    for step in range(steps):
        x = curvature * (w - centers[comm.rank]) / comm.size
        compressor.reduce(x, comm)
        w -= 0.2 * (1 - step / steps) * x
    return float(np.linalg.norm(w - centers.mean(axis=0)) / np.linalg.norm(centers.mean(axis=0)))


@pytest.mark.slow(but=2)
@every_kind
def test_it_finds_a_minimum(name):
    """On virtual ranks only: real ones come to the same, and would take seconds each."""
    near = {"uncompressed": 1e-9, "8 bits": 1e-4, "top-k": 0.02, "PowerSGD": 1e-8}[name]
    found = virtual(descend, 4, name, 400)
    assert len(set(found)) == 1
    assert found[0] < near


def hollow(comm, name, size):
    found = []
    for x in (phantom(size, np.float32), np.zeros(size, np.float32)):
        compressor = KINDS[name](x)
        with metered(meter := Meter()):
            compressor.reduce(x, comm)
        found.append((compressor.sent_bytes, meter.flops, meter.bytes))
    return found


@every_kind
@pytest.mark.parametrize("size", [SIZE, 1000])
def test_phantoms_send_and_cost_what_numbers_do(name, size):
    for phantoms, numbers in sd.run(hollow, 3, args=(name, size)).results:
        assert phantoms == numbers
        assert numbers[0] > 0
        if name != "uncompressed":
            assert numbers[1] > size and numbers[2] > 4 * 4 * size, "what was left joins it, and what is left now goes"


def tiny(comm, name, size):
    compressor = {**KINDS, "PowerSGD": lambda like: PowerSGD(like, [])}[name](np.zeros(size))
    x = np.full(size, comm.rank + 1.0)
    compressor.reduce(x, comm)
    return x, compressor.saved_share


@every_kind
@pytest.mark.parametrize("size", [0, 1, 2])
def test_fewer_items_than_ranks(spmd, name, size):
    for x, _ in spmd(tiny, 4, name, size):
        assert x.shape == (size,)
        if size == 1:
            np.testing.assert_allclose(x, 10)


@every_kind
def test_what_does_not_fit(name):
    def wrong(comm, x):
        KINDS[name](np.zeros(SIZE)).reduce(x, comm)

    for x in (np.zeros(SIZE + 1), np.zeros(SIZE, np.float32)):
        with pytest.raises(ArrayError, match="rank 0 gave"):
            sd.run(wrong, 1, args=(x,))
    for like in (np.zeros((2, SIZE)), np.zeros(SIZE, np.float16), np.zeros(SIZE, np.int64)):
        with pytest.raises(ArrayError, match="float32 or float64"):
            KINDS[name](like)
