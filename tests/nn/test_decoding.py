"""Speculative decoding: its paper's table, and tokens counted as they are accepted."""

import numpy as np
import pytest

from simdist.errors import ArgumentError
from simdist.nn.formulas import speculative_speedup


@pytest.mark.parametrize(
    ("acceptance", "guesses", "operations", "speedup"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_the_table_of_leviathan_et_al(acceptance, guesses, operations, speedup):
    """arXiv 2211.17192, table 1, where guessing costs nothing."""
    found = speculative_speedup(acceptance, guesses)
    assert found == pytest.approx(speedup, abs=0.005)
    assert (guesses + 1) / found == pytest.approx(operations, abs=0.005)


@pytest.mark.parametrize(("acceptance", "guesses"), [(0.0, 3), (0.5, 4), (0.9, 7)])
def test_a_pass_keeps_the_guesses_before_the_first_that_is_rejected(acceptance, guesses):
    accepted = np.random.default_rng(0).random((200_000, guesses)) < acceptance
    tokens = 1 + np.cumprod(accepted, axis=1).sum(axis=1).mean()
    assert speculative_speedup(acceptance, guesses) == pytest.approx(tokens, rel=0.01)
    assert speculative_speedup(acceptance, guesses, 0.1) == pytest.approx(tokens / (1 + 0.1 * guesses), rel=0.01)


def test_guesses_that_cost_more_than_they_bring():
    """Theorem 3.8's corollary: some number of guesses gains exactly where the share accepted is above their cost."""
    assert speculative_speedup(0.3, 1, 0.3) == pytest.approx(1)
    assert speculative_speedup(0.3, 1, 0.4) < 1 < speculative_speedup(0.5, 1, 0.4)
    assert speculative_speedup(0.3, 0, 0.4) == 1


def test_what_is_no_guess():
    with pytest.raises(ArgumentError, match="acceptance is 1"):
        speculative_speedup(1, 2)
    with pytest.raises(ArgumentError, match="guesses is 1.5"):
        speculative_speedup(0.5, 1.5)
    with pytest.raises(ArgumentError, match="cost is -1"):
        speculative_speedup(0.5, 1, -1)
