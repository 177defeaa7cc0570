from dataclasses import replace

import numpy as np
import pytest

from simdist.data import Batches, Corpus
from simdist.errors import ArgumentError, UnknownNameError

TEXT = np.random.default_rng(5).integers(256, size=50_000, dtype=np.uint8)


def batches(size=10, seed=0):
    return Batches(Corpus(TEXT, "noise").split(5, 0.1, 0)[0], size, seed)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 12])
def test_the_parts_make_the_batch(ranks):
    parts = [batches().part(3, rank, ranks).windows for rank in range(ranks)]
    np.testing.assert_array_equal(np.concatenate(parts), batches().split.windows(batches().numbers(3)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_batch_hangs_on_seed_and_step_alone():
    late = batches().numbers(1000)
    for step in range(5):
        batches().numbers(step)
    np.testing.assert_array_equal(batches().numbers(1000), late)
    for step in (0, 1, 1001):
        assert not np.array_equal(batches().numbers(step), late)
    assert not np.array_equal(batches(seed=1).numbers(1000), late)


def test_all_windows_are_drawn_about_as_often():
    drawn = batches(size=20_000).numbers(0)
    n = batches().split.num_windows
    assert 0 <= drawn.min() < n // 1000
    assert n - n // 1000 < drawn.max() < n
    counts = np.bincount(drawn * 10 // n)
    np.testing.assert_allclose(counts, 2000, rtol=0.1)


def test_a_batch_drawn_is_always_full():
    data = batches(size=30_000)  # more than half of all windows
    assert [data.size(step) for step in (0, 1)] == [len(data.numbers(step)) for step in (0, 1)] == [30_000] * 2


def passes(size, stride=3):
    return Batches(Corpus(TEXT[:3000], "noise").split(5, 0.1, 0)[0], size, 4, "passes", stride)


@pytest.mark.parametrize("size", [7, 100, 5000])
def test_a_pass_takes_every_window_once_and_the_last_batch_has_the_rest(size):
    data = passes(size)
    count = data.split.num_every(3)
    per_pass = -(-count // size)
    turns = [np.concatenate([data.numbers(turn * per_pass + i) for i in range(per_pass)]) for turn in (0, 1)]
    expected = np.sort(data.split.every(3, np.arange(count)))
    for turn in turns:
        np.testing.assert_array_equal(np.sort(turn), expected)
    assert not np.array_equal(*turns)
    sizes = [len(data.numbers(step)) for step in range(2 * per_pass)]
    assert sizes == [data.size(step) for step in range(2 * per_pass)]
    assert sizes[per_pass - 1] == count - (per_pass - 1) * size
    assert [data.part(step, 0, 1).batch_size for step in range(per_pass)] == sizes[:per_pass]


def test_windows_a_stride_apart_lie_in_their_blocks():
    split = passes(7).split
    numbers = split.every(3, np.arange(split.num_every(3)))
    starts = split.blocks[numbers // (split.block_bytes - 4)] * split.block_bytes + numbers % (split.block_bytes - 4)
    for block in split.blocks:
        inside = starts[(starts >= block * split.block_bytes) & (starts < (block + 1) * split.block_bytes)]
        assert inside.tolist() == list(range(block * split.block_bytes, (block + 1) * split.block_bytes - 4, 3))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_micro_batches_make_the_part(count):
    part = batches(size=11).part(2, 1, 3)
    micro_batches = part.micro_batches(count)
    assert len(micro_batches) == count
    np.testing.assert_array_equal(np.concatenate([m.windows for m in micro_batches]), part.windows)
    np.testing.assert_array_equal(np.concatenate([m.samples for m in micro_batches]), part.samples)
    assert {m.batch_size for m in micro_batches} == {11}


def test_samples_are_places_in_the_batch():
    found = [batches(size=11).part(2, rank, 3).samples.tolist() for rank in range(3)]
    assert [i for own in found for i in own] == list(range(11))


def test_an_unknown_order_is_refused():
    with pytest.raises(UnknownNameError, match="unknown order 'pass'; did you mean 'passes'"):
        Batches(batches().split, 3, 0, "pass")


@pytest.mark.parametrize(("name", "value"), [("global_batch_size", 0), ("seed", -1), ("stride", 0)])
def test_numbers_have_limits(name, value):
    with pytest.raises(ArgumentError, match=f"{name} is {value}; needs at least {value + 1}"):
        replace(batches(), **{name: value})


@pytest.mark.parametrize("name", ["global_batch_size", "seed", "stride"])
def test_halves_are_refused(name):
    with pytest.raises(ArgumentError, match=rf"{name} is 2\.5; needs a whole number of at least"):
        replace(batches(), **{name: 2.5})


def test_no_two_seeds_are_rounded_to_one():
    large = replace(batches(), seed=2**63 - 1).numbers(0), replace(batches(), seed=2**63 - 2).numbers(0)
    assert not np.array_equal(*large)
    with pytest.raises(ArgumentError, match=f"seed is {2**63}; needs less than"):
        replace(batches(), seed=2**63)


@pytest.mark.parametrize(("name", "value"), [("step", -1), ("step", 0.5), ("rank", 0.5), ("rank", "0"), ("ranks", 1.5)])
def test_there_is_no_such_part(name, value):
    with pytest.raises(ArgumentError, match=f"{name} is {value!r}; needs (at least|a whole)"):
        batches().part(**{"step": 0, "rank": 0, "ranks": 2} | {name: value})
