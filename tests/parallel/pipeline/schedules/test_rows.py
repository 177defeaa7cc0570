"""Rows: the parts of which schedules are made, as their docstrings show them."""

import pytest

from simdist.parallel.pipeline import Backward, Forward, Overlapped
from simdist.parallel.pipeline.schedules.rows import alternate, backwards, forwards, numbered, only, split


def text(row):
    return " ".join(map(str, row))


@pytest.mark.parametrize(
    ("lag", "halves"),
    [
        (0, ["I0 W0", "I1 W1", "I2 W2", ""]),
        (1, ["I0", "I1 W0", "I2 W1", "W2"]),
        (2, ["I0", "I1", "I2 W0", "W1 W2"]),
        (4, ["I0", "I1", "I2", "W0 W1 W2"]),
    ],
)
def test_weights_gradients_follow_their_inputs_at_a_distance(lag, halves):
    assert [*map(text, split(3, lag))] == halves


@pytest.mark.parametrize(
    ("warm_up", "row"),
    [(0, "F0 B0 F1 B1 F2 B2"), (1, "F0 F1 B0 F2 B1 B2"), (3, "F0 F1 F2 B0 B1 B2"), (5, "F0 F1 F2 B0 B1 B2")],
)
def test_after_a_warm_up_forwards_and_backwards_alternate(warm_up, row):
    assert text(alternate(warm_up, forwards(3), backwards(3))) == row


def test_without_what_is_surplus():
    pairs = [Overlapped(Forward(i + 1), Backward(i)) for i in range(3)]
    assert text(only(2, [Forward(0), *pairs, Backward(3)])) == "F0 F1&B0 B1"


def test_steps_whose_actions_take_the_next_micro_batch_of_their_chunk():
    steps = [("F0", 2), ("F0&B0", 1), ("I0 W", 2)]
    assert text(numbered(steps, [range(3)])) == "F0 F1 F2&B0 I1 W1 I2 W2"


def test_steps_on_more_micro_batches_than_there_are():
    steps = [("F0 F1", 3), ("F0&I1", 1), ("B0 I1 I0", 1), ("W W1 W", 1)]
    assert text(numbered(steps, [range(2), range(5, 8)])) == "F0 F5 F1 F6 F7 I5 B0 I6 I1 W5 W6 W1"
