import pytest

import simdist as sd
from simdist.errors import ArgumentError
from simdist.examples.pipeline_bubble import main, schedules
from simdist.parallel.pipeline import simulate


@pytest.mark.parametrize("p", [1, 2, 4])
def test_the_changed_line_makes_the_bubble_smaller(p):
    whole, halves = (simulate(one) for one in schedules(p, 4))
    # (p-1)(F+B+W) of it, and (p-1)(F+B) of it, while W's follow
    assert whole.own_bubble == 3 * (p - 1)
    assert halves.own_bubble < whole.own_bubble or p == 1


def test_one_rank_has_no_bubble_to_show():
    with pytest.raises(ArgumentError, match="ranks is 1; needs at least 2"):
        sd.run(main, 1)


def test_it_goes_as_it_is_simulated():
    for _, measured, predicted in sd.run(main, 3).results[0]:
        assert measured == pytest.approx(predicted, abs=0.01)


def test_it_runs(spmd):
    first, *others = spmd(main, 2, 3, 0.001)
    assert [name for name, *_ in first] == ["backward whole", "backward in halves"]
    assert others == [[]]
