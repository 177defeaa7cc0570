from functools import partial

import numpy as np
import pytest

from simdist.arrays import Phantom, empty, phantom, reduction
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


@pytest.mark.parametrize(
    "key", [(slice(1, 3), 2), (0,), np.int64(1), (np.int32(3), slice(1, 2)), (slice(None), slice(0, 2)), Ellipsis, None]
)
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
    assert same(np.empty_like(x, shape=np.int64(3)), np.empty_like(y, shape=np.int64(3)))
    assert same(np.zeros_like(x), np.zeros_like(y))
    assert same(np.concatenate([x, x]), np.concatenate([y, y]))
    for axis in (0, None):
        assert same(np.argsort(x, axis=axis), np.argsort(y, axis=axis))
    assert np.shape(y) == (4, 6)
    assert np.array_equal(y, y.copy())
    assert not np.may_share_memory(y, y), "it has none"


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (1, 1, 2, 3), (2, 1), (2,), (4, 3), (2, 2, 3)])
def test_takes_what_an_array_takes(shape):
    x, y = pair(2, 3)
    value = np.ones(shape)
    for fill in (lambda x: x.__setitem__(..., value), lambda x: np.copyto(x, np.empty_like(x, shape=shape))):
        if shape in [(2,), (4, 3), (2, 2, 3)]:
            for z in (x, y):
                with pytest.raises(ValueError, match="broadcast"):
                    fill(z)
        else:
            fill(x)
            fill(y)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32, np.int64, np.float16, np.float64])
def test_running_sums_have_numpys_dtype(dtype):
    x, y = pair(4, 6, dtype=dtype)
    assert same(np.cumsum(x), np.cumsum(y))


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
    with pytest.raises(ArrayError, match=r"\(3, 4\) into shape \(4,\)"):
        np.copyto(phantom(4), phantom((3, 4)))
    with pytest.raises(ArrayError, match="add of shapes"):
        np.add(phantom((2, 3)), phantom(3), out=phantom(3))


@pytest.mark.parametrize("shape", [-3, (2, -1), (-2, -2)])
def test_has_no_negative_length(shape):
    with pytest.raises(ArrayError, match="-.*at least 0"):
        phantom(shape)


def test_has_no_more_items_than_numpy_counts():
    assert phantom((1 << 62, 1)).reshape(-1).shape == (1 << 62,)
    with pytest.raises(ArrayError, match=r"\(4294967296, 4294967296\) has 1.84e\+19 items; needs at most 9.22e\+18"):
        phantom((1 << 32, 1 << 32))


@pytest.mark.parametrize("make", [phantom, partial(empty, "phantom")])
def test_counts_its_items_beyond_what_numpys_integers_hold(make):
    x = make((np.int32(1 << 20), np.int32(1 << 20)), np.float32)
    assert (x.size, x.nbytes) == (1 << 40, 1 << 42)


def test_joins_only_what_fits_as_numpy_does():
    x, y = pair(2, 3)
    for axis in (0, 1, -1):
        assert same(np.concatenate([x, x[:2]], axis=axis), np.concatenate([y, y[:2]], axis=axis))
        with pytest.raises(ArrayError, match=rf"\(2, 3\), \(4, 5\).* axis {axis}"):
            np.concatenate([y, phantom((4, 5))], axis=axis)


def test_a_function_it_does_not_know_is_refused_rather_than_guessed():
    with pytest.raises(ArrayError, match=r"^numpy.sort of a phantom; .* np.rint, or argsort, array_equal"):
        np.sort(phantom(3))


@pytest.mark.parametrize("x", [phantom(()), phantom(3), phantom(3).max() > 0], ids=str)
def test_what_has_no_numbers_decides_nothing(x):
    with pytest.raises(ArrayError, match="has no numbers to be true or false"):
        bool(x)


@pytest.mark.parametrize(
    "options",
    [{}, {"axis": 0}, {"axis": np.int64(1)}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sums_and_maxima_as_numpy_does(options, dtype):
    x, y = pair(3, 4, 5, dtype=dtype)
    for name in ("sum", "max"):
        found = getattr(y, name)(**options)
        expected = np.asarray(getattr(x, name)(**options))
        assert same(expected, found), name
    assert same(np.add.reduce(x, axis=1), np.add.reduce(y, axis=1))


def test_products_of_matrices_as_numpy_does():
    x, y = pair(2, 1, 3, 4)
    w, v = pair(5, 4, 6, dtype=np.float64)
    assert same(np.matmul(x, w), np.matmul(y, v))
    assert same(np.matmul(x, w), np.matmul(x, v))
    assert same(np.vecdot(x, x), np.vecdot(y, y))
    out = phantom((2, 5, 3, 6))
    assert np.matmul(y, v, out=out) is out
    for wrong in (phantom((3, 6)), phantom(4)):
        with pytest.raises(ArrayError, match="matmul of shapes"):
            np.matmul(y, wrong)
    with pytest.raises(ArrayError, match="vecdot of shapes"):
        np.vecdot(y, phantom(3))


def test_arrays_of_indices_as_numpy_does():
    x, y = pair(7, 3)
    which, shadow = np.array([[0, 6], [2, 2]]), phantom((2, 2), np.int64)
    assert same(x[which], y[which])
    assert same(x[which], y[shadow])
    rows, columns = np.arange(7), np.zeros(7, np.uint8)
    assert same(x[rows, columns], y[rows, columns])
    y[shadow] += 1
    with pytest.raises(ArrayError, match="slices or arrays of integers"):
        y[which > 1]
    with pytest.raises(ArrayError, match="slices or arrays of integers"):
        y[which, :]


def test_turns_as_numpy_does():
    x, y = pair(2, 3, 4)
    assert same(x.transpose(0, 2, 1), y.transpose(0, 2, 1))
    assert same(x.swapaxes(-1, -2), y.swapaxes(-1, -2))


def test_operators_and_comparisons_as_numpy_does():
    x, y = pair(3, 4)
    assert same(2 * x + x[0], 2 * y + y[0])
    assert same(x < 1, y < 1)
    assert same(-x, -y)
    before = y
    y += np.ones(4)
    assert y is before


def test_runs_are_summed_and_counted_as_numpy_does():
    x, y = pair(5, 3)
    assert same(np.add.reduceat(x, [0, 2], axis=0), np.add.reduceat(y, [0, 2], axis=0))
    which, shadow = np.array([0, 1, 1]), phantom(3, np.int64)
    assert same(np.bincount(which, minlength=9), np.bincount(shadow, minlength=9))
    assert same(np.argsort(which), np.argsort(shadow))
    assert same(np.cumsum(which), np.cumsum(shadow))
    assert [i.shape for i in shadow.nonzero()] == [(3,)]


def test_a_number_that_is_not_there_is_not_a_number():
    assert np.isnan(float(phantom((3, 2)).sum()))
    with pytest.raises(ArrayError, match="only an array of one number"):
        float(phantom(2))


def test_nothing_goes_from_a_phantom_into_numbers():
    with pytest.raises(ArrayError, match="array that holds numbers"):
        np.add(phantom(3), 1, out=np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_numbers_are_not_filled_from_a_phantom(dtype):
    numbers = np.ones(3, dtype)
    with pytest.raises(ArrayError, match=r"a phantom of shape \(3,\) has no numbers .* shape=…\) or x.copy\(\)"):
        numbers[...] = phantom(3, dtype)
    assert (numbers == 1).all()
    assert np.isnan(np.array(phantom((1, 1)))).tolist() == [[True]]
