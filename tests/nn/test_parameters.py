import numpy as np
import pytest

from simdist.arrays import phantom
from simdist.errors import ArgumentError, ArrayError
from simdist.nn import Parameter, Parameters


def some():
    return Parameters([Parameter("w", (3, 2), std=1.0), Parameter("b", (2,)), Parameter("scale", (2,), mean=1.0)])


def test_views_share_the_flat_vectors():
    parameters = some()
    data, gradient = np.arange(10.0), np.zeros(10)
    parameters.bind(data, gradient)
    w, b, scale = parameters
    assert parameters.spans == {"w": slice(0, 6), "b": slice(6, 8), "scale": slice(8, 10)}
    np.testing.assert_array_equal(w.data, [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(scale.data, [8, 9])
    b.gradient += 5
    w.gradient[1, 1] = 7
    np.testing.assert_array_equal(gradient, [0, 0, 0, 7, 0, 0, 5, 5, 0, 0])


def test_first_values_hang_on_seed_and_name_alone():
    parameters, others = some(), Parameters([Parameter("w", (3, 2), std=1.0)])
    parameters.bind(np.empty(10), np.empty(10))
    others.bind(np.empty(6, np.float32), np.empty(6, np.float32))
    parameters.initialize(4)
    others.initialize(4)
    w, b, scale = parameters
    np.testing.assert_array_equal(others.data, w.data.ravel().astype(np.float32))
    np.testing.assert_array_equal(b.data, [0, 0])
    np.testing.assert_array_equal(scale.data, [1, 1])
    assert not np.array_equal(w.draw(4), w.draw(5))
    assert not np.array_equal(w.draw(4), Parameter("v", (3, 2), std=1.0).draw(4))


@pytest.mark.parametrize(
    ("name", "first"),  # the words of their hashes are below 2**63, and not
    [
        ("w", {0: -1.0173369325941553, 7: 0.26935077664239915, 2**53 - 1: -0.8777137278260766}),
        ("hidden0.w", {0: -1.548939757452018, 7: -0.6970176897119893, 2**53 - 1: -1.3749857635435108}),
    ],
)
def test_every_seed_draws_its_own_values_and_small_ones_those_of_ever(name, first):
    def draw(seed):
        return Parameter(name, (1,), std=1.0).draw(seed).item()

    assert {seed: draw(seed) for seed in first} == first
    seeds = [*range(2**53 - 2, 2**53 + 3), *range(2**63 - 2, 2**63 + 3), 2**64 - 2, 2**64 - 1]
    assert len({draw(seed) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("seed", [-1, 2**64, "1", None, 0.5])
def test_seeds_have_limits(seed):
    with pytest.raises(
        ArgumentError, match=rf"seed is {seed!r}; needs a whole number of at least 0 and less than 2\*\*64"
    ):
        Parameter("w", (1,), std=1.0).draw(seed)


def test_draws_have_the_spread_asked_for():
    drawn = Parameter("w", (200, 100), mean=3.0, std=0.5).draw(0)
    assert drawn.mean() == pytest.approx(3.0, abs=0.02)
    assert drawn.std() == pytest.approx(0.5, abs=0.02)


def test_a_stage_without_parameters_has_the_kind_of_its_empty_vectors():
    none = Parameters([])
    assert none.kind == "numpy"
    none.bind(phantom(0), phantom(0))
    assert none.kind == "phantom"


def test_names_are_unique():
    with pytest.raises(ArgumentError, match="'w'"):
        Parameters([Parameter("w", (1,)), Parameter("w", (2,))])


@pytest.mark.parametrize(
    ("data", "gradient", "what"),
    [
        (np.empty(9), np.empty(10), r"data has shape \(9,\)"),
        (np.empty(10), np.empty((2, 5)), r"gradient has shape \(2, 5\)"),
        (np.empty(10), np.empty(10, np.float32), "gradient .* float32.*need.* float64"),
        (np.empty(10), np.empty(20)[::2], "gradient is not contiguous"),
    ],
)
def test_vectors_must_fit(data, gradient, what):
    with pytest.raises(ArrayError, match=what):
        some().bind(data, gradient)


@pytest.mark.parametrize("name", ["data", "gradient"])
def test_an_array_that_takes_the_place_of_a_view_is_found(name):
    parameters = some()
    parameters.check_views()
    parameters.bind(np.ones(10), np.zeros(10))
    _, b, _ = parameters
    setattr(b, name, getattr(b, name).__iadd__(1))  # as b.data += 1 does
    parameters.check_views()
    setattr(b, name, getattr(b, name) + 1)
    with pytest.raises(ArrayError, match=rf"{name} of b is another array than before; .* {name}\[\.\.\.\] = …"):
        parameters.check_views()
