import math

import numpy as np
import pytest

from simdist.data import PYTHON, Corpus, Split, load
from simdist.errors import DataError


def counting(n):
    """A text in which a byte tells roughly where it stands."""
    return Corpus(np.arange(n).astype(np.uint8), "counting")


def test_a_file_is_read_as_it_is(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(bytes(range(256)))
    corpus = load(file)
    np.testing.assert_array_equal(corpus.text, np.arange(256))
    assert corpus.name == str(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt: No such file"):
        load(tmp_path / "nowhere.txt")
    with pytest.raises(DataError, match="Is a directory"):
        load(tmp_path)
    with pytest.raises(DataError, match="cannot read the data file .*: File name too long"):
        load(tmp_path / ("t" * 300))


def test_python_has_a_text_of_its_own():
    corpus = load(PYTHON)
    assert len(corpus.text) > 1_000_000
    assert corpus.digest == load(PYTHON).digest
    assert b"import" in corpus.text.tobytes()


def test_without_the_documentation_the_sources_remain(monkeypatch):
    full = load(PYTHON)

    def without(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("simdist.data.corpus.import_module", without)
    assert 1_000_000 < len(load(PYTHON).text) < len(full.text)


def test_the_split_keeps_every_window_on_one_side():
    train, held = counting(100_000).split(length=17, validation_share=0.1, seed=0)
    assert len(train.blocks) + len(held.blocks) == 24
    assert set(train.blocks).isdisjoint(held.blocks)
    for split in (train, held):
        every = np.arange(split.num_windows)
        starts = np.concatenate([b * split.block_bytes + np.arange(split.block_bytes - 16) for b in split.blocks])
        assert len(starts) == len(every)
        expected = (starts[:, None] + np.arange(17)).astype(np.uint8)
        np.testing.assert_array_equal(split.windows(every), expected)
        assert starts.max() + 17 <= 100_000


def test_the_split_hangs_on_the_seed():
    corpus = counting(100_000)
    first, again, other = (corpus.split(17, 0.25, seed)[1].blocks for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(first) == 6


@pytest.mark.parametrize(("n", "length"), [(340, 17), (341, 17), (200_000, 9000), (20, 1)])
def test_the_shortest_texts_still_split(n, length):
    train, held = counting(n).split(length, validation_share=0.0, seed=0)
    assert train.num_windows >= 19
    assert held.num_windows >= 1
    assert len(held.blocks) == 1
    assert held.windows(np.arange(held.num_windows)).shape == (held.num_windows, length)


def test_something_is_always_left_to_train_on():
    train, held = counting(100_000).split(17, validation_share=1.0, seed=0)
    assert (len(train.blocks), len(held.blocks)) == (1, 23)


def test_a_text_too_short_is_named_with_the_limit():
    with pytest.raises(DataError, match="counting has 339 bytes; windows of 17 bytes need at least 340"):
        counting(339).split(17, 0.1, 0)


def test_unigram_entropy():
    even = Corpus(np.tile(np.arange(4, dtype=np.uint8), 5000), "even").split(5, 0.1, 0)[1]
    assert even.unigram_entropy() == pytest.approx(math.log(4))
    steps = Corpus(np.repeat(np.arange(24, dtype=np.uint8), 4096), "steps").split(5, 0.25, 0)[1]
    assert steps.unigram_entropy() == pytest.approx(math.log(6))  # six of the blocks, and a byte to each
    same = Corpus(np.zeros(20_000, np.uint8), "same").split(5, 0.1, 0)[1]
    assert f"{same.unigram_entropy()}" == "0.0"  # and not -0.0


def test_evenly_spread_windows():
    _, held = counting(100_000).split(17, 0.1, 0)
    some = held.evenly(97)  # which does not divide them
    assert held.num_windows % 97 > 30
    assert (len(some), some[0]) == (97, 0)
    assert len(set(np.diff(some))) <= 2
    assert held.num_windows - some[-1] == pytest.approx(held.num_windows / 97, abs=1)
    np.testing.assert_array_equal(held.evenly(10**9), np.arange(held.num_windows))


def test_bigram_entropy_is_what_the_best_guess_from_the_byte_before_loses():
    text = np.frombuffer(b"abababacabababac" * 100, np.uint8)
    split = Split(text, 40, np.arange(0, 40, 3), 4)
    rows = [text[40 * i : 40 * i + 40] for i in split.blocks]
    after = {}
    for row in rows:
        for one, other in zip(row[:-1].tolist(), row[1:].tolist(), strict=True):
            after.setdefault(one, []).append(other)
    lost = [-np.log(followers.count(x) / len(followers)) for followers in after.values() for x in followers]
    assert split.bigram_entropy() == pytest.approx(np.mean(lost))
    assert 0 < split.bigram_entropy() < split.unigram_entropy()
