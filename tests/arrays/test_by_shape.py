from typing import Any, NamedTuple

import numpy as np
import pytest

from simdist.arrays import Meter, charge, metered, phantom
from simdist.arrays.by_shape import by_shape


@pytest.fixture
def twice():
    """A function that charges in two steps, and how often it went through them."""
    steps = []

    @by_shape
    def twice(x, times=1, more=None):
        steps.append(x.shape)
        charge(times * x.size, x.nbytes)
        charge(1, 2)
        return np.empty_like(x, shape=x.shape[::-1]), np.empty_like(x, dtype=np.float64)

    return twice, steps


class Ear:
    def __init__(self):
        self.heard = []

    def charge(self, flops, bytes):
        self.heard.append((flops, bytes))


def test_phantoms_are_gone_through_once_and_charged_alike_every_time(twice):
    function, steps = twice
    for _ in range(3):
        with metered(ear := Ear()):
            y, z = function(phantom((2, 3)), times=2)
        assert (y.shape, y.dtype, z.shape, z.dtype) == ((3, 2), np.float32, (2, 3), np.float64)
        assert ear.heard == [(12, 24), (1, 2)]
    assert steps == [(2, 3)]
    assert function(phantom((2, 3)), times=2)[0] is not function(phantom((2, 3)), times=2)[0]


def test_other_shapes_dtypes_and_arguments_are_others(twice):
    function, steps = twice
    for x in (phantom(4), phantom(5), phantom(4, np.float16)):
        for times in (1, 2):
            with metered(meter := Meter()):
                function(x, times)
            assert (meter.flops, meter.bytes) == (times * x.size + 1, x.nbytes + 2)
    assert len(steps) == 6


def test_numbers_and_what_a_function_may_do_are_looked_at_each_time(twice):
    function, steps = twice
    for _ in range(2):
        function(np.ones(3))
        function(phantom(3), more=len)
    assert len(steps) == 4


class Two(NamedTuple):
    x: Any
    y: Any


def test_tuples_of_phantoms_are_theirs():
    steps = []

    @by_shape
    def add(two, others, scale=1.0):
        steps.append(scale)
        two.x[...] += scale * others[1]
        charge(two.x.size)
        return Two(two.y, len(others))

    for size, scale in ((3, 1.0), (3, 1.0), (4, 1.0), (3, 2.0), (3, 1.0)):
        two = Two(phantom(size), phantom((2, size), np.float16))
        with metered(meter := Meter()):
            found = add(two, (None, phantom(size)), scale=scale)
        assert type(found) is Two
        assert (found.x.shape, found.x.dtype, found.y) == ((2, size), np.float16, 2)
        assert meter.flops == size
    assert steps == [1.0, 1.0, 2.0]


def test_what_is_heard_the_first_time_is_heard_once(twice):
    with metered(meter := Meter()):
        twice[0](phantom(8))
    assert meter.flops == 9
