import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.asynchronous.splits import by_label, dirichlet, even
from simdist.errors import ArgumentError

LABELS = np.random.default_rng(0).integers(0, 10, size=3000)


def share_of_largest_label(split):
    return np.mean(
        [np.bincount(LABELS[samples], minlength=10).max() / len(samples) for samples in split if len(samples)]
    )


@given(
    st.lists(st.integers(-2, 4), max_size=60),
    st.integers(1, 9),
    st.floats(1e-3, 1e3),
    st.integers(0, 2**32),
    st.integers(1, 3),
)
@settings(max_examples=300)
def test_every_sample_belongs_to_one_client(labels, clients, alpha, seed, pieces):
    labels = np.array(labels, np.int64)
    splits = [even(len(labels), clients, seed), dirichlet(labels, clients, alpha, seed)]
    if clients * pieces <= len(labels):
        splits.append(by_label(labels, clients, seed, pieces))
    sizes = [len(samples) for samples in splits[0]]
    assert max(sizes) - min(sizes) <= 1
    for split in splits:
        assert len(split) == clients
        assert all(samples.dtype == np.int64 for samples in split)
        assert sorted(np.concatenate(split).tolist()) == list(range(len(labels)))


def test_by_label_clients_have_few_labels():
    split = by_label(LABELS, 50, seed=1)
    kinds = [len(np.unique(LABELS[samples])) for samples in split]
    assert np.mean(kinds) < 2.3 and max(kinds) <= 4
    assert {len(samples) for samples in split} == {60}


def test_the_smaller_alpha_the_more_clients_differ():
    found = [share_of_largest_label(dirichlet(LABELS, 20, alpha, seed=2)) for alpha in (100, 1, 0.1)]
    assert share_of_largest_label(even(3000, 20, seed=2)) < 0.2
    in_order = [np.sort(LABELS)[samples] for samples in even(3000, 20, seed=2)]
    assert max(np.bincount(labels).max() for labels in in_order) < 0.3 * 150
    assert found[0] < 0.2 < found[1] < 0.6 < found[2]


def test_shares_have_the_distribution_s_mean_and_variance():
    """Of Dir(α) over K clients: mean 1/K, variance (K-1) / (K² (Kα + 1))."""
    clients, alpha, labels = 5, 0.5, np.zeros(500, np.int64)
    shares = np.array([[len(s) / 500 for s in dirichlet(labels, clients, alpha, seed)] for seed in range(800)])
    np.testing.assert_allclose(shares.mean(axis=0), 1 / clients, atol=0.03)
    np.testing.assert_allclose(shares.var(axis=0), 4 / (25 * 3.5), rtol=0.2)


def test_a_seed_gives_the_same_split_and_another_another():
    for split in (
        lambda seed: even(3000, 7, seed),
        lambda seed: dirichlet(LABELS, 7, 0.3, seed),
        lambda seed: by_label(LABELS, 7, seed),
    ):
        first, again, other = split(5), split(5), split(6)
        assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
        assert not all(np.array_equal(x, y) for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: even(5, 0, 0), "5 samples for 0 clients"),
        (lambda: dirichlet(LABELS, 3, 0.0, 0), "alpha is 0.0"),
        (lambda: dirichlet(LABELS, 3, float("nan"), 0), "alpha is nan"),
        (lambda: by_label(LABELS[:5], 3, 0), "3 clients with 2 pieces of 5 samples"),
        (lambda: by_label(LABELS, 3, 0, pieces=0), "0 pieces"),
        (lambda: even(5, 2, -1), "seed is -1; needs at least 0"),
        (lambda: by_label(LABELS, 3, -1), "seed is -1; needs at least 0"),
        (lambda: dirichlet(LABELS, 3, 1.0, -1), "seed is -1; needs at least 0"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
