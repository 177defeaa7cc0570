"""The oracle is NumPy: the same rule by hand, on the whole vector."""

import numpy as np
import pytest

from simdist.arrays import Meter, metered, partition
from simdist.errors import ArrayError
from simdist.nn.parameters import Parameter, Parameters
from simdist.parallel import Recipe
from simdist.parallel.holding import Holding, Shard
from simdist.parallel.precision import precision
from simdist.parallel.spread import Spread
from simdist.parallel.update import Update

PARAMETERS = Parameters([Parameter("w", (6, 4)), Parameter("b", (7,)), Parameter("v", (3, 3))])
N = PARAMETERS.size
GRADIENTS = np.random.default_rng(1).standard_normal((3, N)) / 10


def recipe(name="adamw", kind="float64", **options):
    return Recipe(name, precision=precision(kind), **options)


def holding_of(comm, sharded):
    """All of the vector, or this rank's part of each of its halves."""
    if not sharded:
        return Holding.of_all(N)
    halves = [slice(0, N // 2), slice(N // 2, N)]
    parts = [partition(half.stop - half.start, comm.size)[comm.rank] for half in halves]
    return Holding([slice(h.start + part.start, h.start + part.stop) for h, part in zip(halves, parts, strict=True)])


def own(holding, whole, dtype):
    return np.concatenate([whole[stretch] for stretch in holding.stretches]).astype(dtype)


def whole(holding, x):
    """With nan for what others hold."""
    found = np.full(N, np.nan)
    for start, data in holding.shards(x):
        found[start : start + len(data)] = data
    return found


def made(comm, told, sharded):
    holding = holding_of(comm, sharded)
    weights = own(holding, np.linspace(-1, 1, N), told.precision.dtype)
    return holding, weights, Update(weights, holding, PARAMETERS, told, Spread(comm), holders=comm if sharded else None)


def run(comm, told, sharded=False):
    """The weights after three steps, and the norms on the way."""
    holding, weights, update = made(comm, told, sharded)
    seen = []
    for gradient in GRADIENTS:
        scaled = own(holding, gradient * update.scale, told.precision.dtype)
        before = scaled.copy()
        assert update.step(scaled, 0.01)
        np.testing.assert_array_equal(scaled, before)
        seen.append(update.norm)
    return whole(holding, weights), whole(holding, update.masters), seen


def test_clipped_as_the_papers_say(spmd):
    weights, masters, seen = spmd(run, 1, recipe("sgd", momentum=0.0, max_norm=0.5))[0]
    expected = np.linspace(-1, 1, N)
    for gradient in GRADIENTS:
        expected -= 0.01 * gradient * min(1, 0.5 / np.linalg.norm(gradient))
    np.testing.assert_allclose(weights, expected, rtol=1e-14)
    np.testing.assert_allclose(seen, np.linalg.norm(GRADIENTS, axis=1), rtol=1e-14)
    np.testing.assert_array_equal(weights, masters)


@pytest.mark.parametrize(("kind", "rtol"), [("bf16", 2**-8), ("fp16", 2**-10)])
def test_the_norm_that_clips_is_that_of_the_unscaled_gradient(spmd, kind, rtol):
    _, masters, seen = spmd(run, 1, recipe("sgd", kind, momentum=0.0, max_norm=0.5))[0]
    np.testing.assert_allclose(seen, np.linalg.norm(GRADIENTS, axis=1), rtol=rtol)
    steps = [0.01 * gradient * min(1, 0.5 / np.linalg.norm(gradient)) for gradient in GRADIENTS]
    start = np.linspace(-1, 1, N).astype(precision(kind).dtype)
    np.testing.assert_allclose(masters, start.astype(np.float64) - sum(steps), rtol=0, atol=0.01 * rtol)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lars", "lamb"])
@pytest.mark.parametrize("kind", ["float64", "float32", "bf16", "fp16"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_parts_change_as_the_whole_does_to_the_bit(spmd, name, kind, p):
    told = recipe(name, kind, max_norm=0.3, weight_decay=0.1)
    alone = spmd(run, 1, told)[0]
    parts = spmd(run, p, told, True)
    for i in (0, 1):
        np.testing.assert_array_equal(np.nanmax([part[i] for part in parts], axis=0), alone[i])
    assert all(part[2] == alone[2] for part in parts)


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_small_steps_add_up_in_the_masters(spmd, kind):
    def creep(comm):
        _, weights, update = made(comm, recipe("sgd", kind, momentum=0.0), False)
        weights[...], update.masters[...] = 1, 1
        for _ in range(100):
            update.step(np.full(N, -update.scale / 4).astype(weights.dtype), 4e-4)
        return weights.astype(np.float64), update.masters.copy()

    weights, masters = spmd(creep, 1)[0]
    np.testing.assert_allclose(masters, 1.01, rtol=1e-5)
    np.testing.assert_array_equal(weights, masters.astype(precision(kind).dtype).astype(np.float64))
    assert weights[0] > 1  # a step alone is lost: 1 + 1e-4 is 1 in 16 bits


@pytest.mark.parametrize(("kind", "num_bytes"), [("float64", 0), ("float32", 0), ("bf16", (4 + 2) * N)])
def test_masters_that_are_not_the_weights_are_read_and_rounded(spmd, kind, num_bytes):
    def program(comm):
        _, _, update = made(comm, recipe(kind=kind), False)
        with metered(meter := Meter()):
            update.round()
        return meter.bytes

    assert spmd(program, 1) == [num_bytes]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("sharded", [False, True])
def test_one_ranks_overflow_skips_the_step_on_all(spmd, bad, sharded):
    def overflow(comm):
        holding, weights, update = made(comm, recipe("adamw", "fp16", max_norm=1.0), sharded)
        before, scale = weights.copy(), update.scale
        gradient = np.ones(holding.size, np.float16)
        if comm.rank == 2:
            gradient[-1] = bad
        changed = update.step(gradient, 0.1)
        same = np.array_equal(weights, before)
        again = update.step(np.ones(holding.size, np.float16), 0.1)
        return changed, same, update.scale / scale, update.rule.num_steps, again

    assert spmd(overflow, 3) == [(False, True, 0.5, 1, True)] * 3


def test_traffic(spmd):
    """Nothing where all have everything; two small all-reduces for a norm in parts; a byte for the loss scale."""

    def sent(comm, told, sharded):
        _, weights, update = made(comm, told, sharded)
        first = len(comm.recorder.rows)
        update.step(np.ones_like(weights), 0.1)
        return [(s.name, s.bytes) for s in comm.recorder.spans()[first:] if s.name.startswith("all_reduce")]

    assert spmd(sent, 3, recipe(max_norm=1.0), False) == [[]] * 3
    assert spmd(sent, 3, recipe(), True) == [[]] * 3
    assert [[n for _, n in found] for found in spmd(sent, 3, recipe(max_norm=1.0), True)] == [[8, 16]] * 3
    assert [[n for _, n in found] for found in spmd(sent, 3, recipe(kind="fp16"), False)] == [[1]] * 3


@pytest.mark.parametrize("name", ["sgd", "adamw", "adamw8bit", "lamb"])
@pytest.mark.parametrize("kind", ["float64", "bf16", "fp16"])
def test_it_goes_on_where_another_was(spmd, name, kind):
    def broken(comm):
        told = recipe(name, kind, max_norm=1.0)
        holding, weights, update = made(comm, told, True)
        _, others, other = made(comm, told, True)
        for i, gradient in enumerate(GRADIENTS):
            update.step(own(holding, gradient * update.scale, weights.dtype), 0.01)
            if i == 1:
                kept = {k: [Shard(s, x.copy()) for s, x in shards] for k, shards in update.vectors().items()}
                other.restore(kept, update.numbers())
        other.step(own(holding, GRADIENTS[2] * other.scale, others.dtype), 0.01)
        assert update.numbers() == other.numbers()
        return np.array_equal(weights, others), np.array_equal(update.masters, other.masters)

    assert spmd(broken, 2) == [(True, True)] * 2


def test_a_run_without_a_loss_scale_may_go_on_with_one(spmd):
    def go_on(comm):
        _, _, short = made(comm, recipe(kind="bf16"), False)
        _, _, scaled = made(comm, recipe(kind="fp16"), False)
        scaled.restore(short.vectors(), short.numbers())
        return scaled.scale

    assert spmd(go_on, 2) == [2.0**16] * 2


def test_what_does_not_fit_is_refused(spmd):
    def refuse(comm):
        _, _, update = made(comm, recipe(), True)
        vectors = update.vectors()
        wrong = vectors | {"adamw.m/": [Shard(s + 1, x) for s, x in vectors["adamw.m/"]]}
        cases = (wrong, "this rank holds"), ({"": vectors[""]}, "keeps"), ({}, "weights are missing")
        for told, message in cases:
            with pytest.raises(ArrayError, match=message):
                update.restore(told, update.numbers())

    spmd(refuse, 2)
