import numpy as np
import pytest

from simdist.errors import UnknownNameError
from simdist.parallel.precision import precision, precisions


def test_what_there_is():
    assert precisions() == ["float64", "float32", "bf16", "fp16"]


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_long_numbers_are_their_own_masters(name):
    found = precision(name)
    assert found.dtype == found.master_dtype == np.dtype(name)
    assert not found.mixed and not found.scaled


@pytest.mark.parametrize(("name", "dtype", "scaled"), [("bf16", "bfloat16", False), ("fp16", "float16", True)])
def test_short_numbers_have_masters_of_float32(name, dtype, scaled):
    found = precision(name)
    assert (found.dtype.name, found.dtype.itemsize, found.master_dtype) == (dtype, 2, np.float32)
    assert found.mixed
    assert found.scaled == scaled


def test_an_unknown_one_is_refused():
    with pytest.raises(UnknownNameError, match="unknown precision 'fp32'"):
        precision("fp32")
