"""Actions: what they print as, what they are equal to, what passes between them."""

import pytest

from simdist.parallel.pipeline import Backward, BackwardInput, BackwardWeight, Forward, Overlapped, Value


def test_they_print_as_letter_and_micro_batch():
    actions = [Forward(0), Backward(1), BackwardInput(2), BackwardWeight(3, chunk=1)]
    assert " ".join(map(str, actions)) == "F0 B1 I2 W3"
    assert str(Overlapped(Forward(8), Backward(0, 1))) == "F8&B0"


def test_equal_only_to_the_same_of_its_kind():
    assert Forward(1, 0) == Forward(1)
    assert Forward(1) != Backward(1)
    assert len({Forward(1), Backward(1), BackwardInput(1), BackwardWeight(1), Forward(1, 1), Forward(1)}) == 5


def test_parts():
    pair = Overlapped(Forward(1), Backward(0))
    assert pair.parts == (Forward(1), Backward(0))
    assert Forward(1).parts == (Forward(1),)


@pytest.mark.parametrize(
    ("part", "stage", "needs", "gives"),
    [
        (Forward(5), 0, None, [("activation", 1)]),
        (Forward(5), 1, ("activation", 1), [("activation", 2)]),
        (Forward(5), 2, ("activation", 2), [("gradient", 2)]),
        (Backward(5), 2, ("gradient", 2), [("gradient", 1)]),
        (Backward(5), 0, ("gradient", 0), []),
        (BackwardInput(5), 1, ("gradient", 1), [("gradient", 0), ("pending", 1)]),
        (BackwardInput(5), 0, ("gradient", 0), [("pending", 0)]),
        (BackwardWeight(5), 1, ("pending", 1), []),
    ],
)
def test_what_passes_along_three_stages(part, stage, needs, gives):
    assert part.needs(stage) == (Value(*needs, 5) if needs else None)
    assert part.gives(stage, 3) == tuple(Value(what, to, 5) for what, to in gives)
