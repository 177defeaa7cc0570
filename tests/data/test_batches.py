import numpy as np
import pytest

from simdist.data import Batches, Corpus

TEXT = np.random.default_rng(5).integers(256, size=50_000, dtype=np.uint8)


def batches(size=10, seed=0):
    return Batches(Corpus(TEXT, "noise").split(5, 0.1, 0)[0], size, seed)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 12])
def test_the_parts_make_the_batch(ranks):
    parts = [batches().part(3, rank, ranks) for rank in range(ranks)]
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
