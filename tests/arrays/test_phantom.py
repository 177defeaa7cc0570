import numpy as np
import pytest

from simdist.arrays import Phantom, phantom, reduction
from simdist.errors import ArrayError


def pair(*shape, dtype=np.float32):
    """An array and the phantom of it."""
    return np.zeros(shape, dtype), phantom(shape, dtype)


def same(x, y):
    """Whether y is a phantom with all that one can ask of x without its numbers."""
    return isinstance(y, Phantom) and all(
        getattr(x, name) == getattr(y, name) for name in ("shape", "dtype", "size", "ndim", "itemsize", "nbytes")
    )


@pytest.mark.parametrize("key", [slice(2, 5), slice(None), slice(3, 3), slice(-2, None), slice(0, 9, 2), 4])
def test_slices_as_numpy_does(key):
    x, y = pair(9)
    assert same(x[key], y[key])


@pytest.mark.parametrize("key", [(slice(1, 3), 2), (0,), (slice(None), slice(0, 2)), Ellipsis, None])
def test_slices_matrices_as_numpy_does(key):
    x, y = pair(4, 5, dtype=np.float16)
    assert same(x[key], y[key])


def test_reshapes_copies_casts_and_transposes_as_numpy_does():
    x, y = pair(4, 6)
    assert same(x.reshape(-1), y.reshape(-1))
    assert same(x.reshape(2, 12), y.reshape(2, 12))
    assert same(x.T, y.T)
    assert same(x.copy(), y.copy())
    assert same(x.astype(np.int64), y.astype(np.int64))
    assert len(x) == len(y)


def test_arithmetic_has_numpys_shape_and_dtype():
    x, y = pair(4, 6)
    for operation in (np.add, np.multiply, np.less):
        assert same(operation(x, x[0]), operation(y, y[0]))
        assert same(operation(x, 2.0), operation(y, 2.0))
        assert same(operation(x, np.ones(6, np.float64)), operation(y, np.ones(6, np.float64)))


def test_numpys_functions_know_it():
    x, y = pair(4, 6)
    assert same(np.empty_like(x, shape=3), np.empty_like(y, shape=3))
    assert same(np.zeros_like(x), np.zeros_like(y))
    assert same(np.concatenate([x, x]), np.concatenate([y, y]))
    assert np.shape(y) == (4, 6)
    assert np.array_equal(y, y.copy())


def test_can_be_written_to_and_folded():
    y = phantom(10)
    y[2:5] = y[5:8]
    y[:] = 0
    np.copyto(y, phantom(10))
    reduction("max")(y, phantom(10))


def test_costs_no_memory():
    assert phantom(1 << 50, np.float64).nbytes == 1 << 53


def test_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="broadcast"):
        phantom(3)[0:2] = phantom(3)
    with pytest.raises(ValueError, match="broadcast"):
        phantom(3)[0:1] = phantom(3)
    with pytest.raises(ArrayError, match=r"\(3, 4\) into one of \(4,\)"):
        np.copyto(phantom(4), phantom((3, 4)))
    with pytest.raises(ArrayError, match="add of shapes"):
        np.add(phantom((2, 3)), phantom(3), out=phantom(3))


def test_a_function_it_does_not_know_is_refused_rather_than_guessed():
    with pytest.raises(TypeError, match="no implementation found"):
        np.sort(phantom(3))
