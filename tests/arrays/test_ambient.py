from contextvars import ContextVar

import pytest

from simdist.arrays.ambient import ambient

NUMBER: ContextVar[int] = ContextVar("number", default=1)


def test_is_set_inside_the_block_alone_however_it_ends():
    with ambient(NUMBER, 2) as number:
        with pytest.raises(KeyError), ambient(NUMBER, 3):
            raise KeyError
        assert number == NUMBER.get() == 2
    assert NUMBER.get() == 1
