import ml_dtypes
import numpy as np
import pytest

import simdist as sd
from simdist.arrays import Meter, metered, reduction, reductions
from simdist.arrays.reduction import Reduction
from simdist.collectives import algorithms, all_reduce
from simdist.errors import ArgumentError, UnknownNameError

ORACLES = {
    "sum": np.sum,
    "prod": np.prod,
    "min": np.min,
    "max": np.max,
    "lor": np.any,
    "land": np.all,
}


def test_the_six_operations():
    assert set(reductions()) == set(ORACLES)


@pytest.mark.parametrize("op", ORACLES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_folds_in_place_as_numpy_reduces(op, dtype):
    rows = np.random.default_rng(0).integers(0, 3, (5, 50)).astype(dtype)
    x = rows[0].copy()
    for row in rows[1:]:
        reduction(op)(x, row)
    assert x.dtype == dtype
    assert np.array_equal(x, ORACLES[op](rows, axis=0).astype(dtype))  # small whole numbers: exact in any dtype


@pytest.mark.parametrize("op", ORACLES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(1,), (), (1, 1)])
def test_folds_a_single_item_into_the_memory_it_is_given(op, dtype, shape):
    row = np.array([2, 3, 0]).astype(dtype)
    x, y = row[1:2].reshape(shape), np.ones(shape, dtype)
    reduction(op).fold(x, y)
    assert row.tolist() == [row[0], ORACLES[op](np.array([3, 1]).astype(dtype)).astype(dtype), row[2]]


def test_charges_an_operation_an_item_and_three_passes_over_memory():
    x = np.zeros(10, np.float32)
    meter = Meter()
    with metered(meter):
        reduction("sum")(x, x)
    assert (meter.flops, meter.bytes) == (10, 120)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [1, 20])
def test_sums_of_16_bits_that_are_too_large_are_inf_without_a_warning(dtype, size):
    most = ml_dtypes.finfo(dtype).max
    x, y = np.full(size, most, dtype), np.full(size, most, dtype)
    reduction("sum")(x, y)
    assert (x == np.inf).all()
    reduction("sum")(x, -x)
    assert np.isnan(x).all()


@pytest.mark.parametrize("op", ["sum", "prod", "max"])
def test_long_arrays_of_bfloat16_are_rounded_as_ml_dtypes_does(op):
    """All 65,536 numbers, with others of all sizes: the sums too large and too small, those half way, NaN."""
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    for seed in range(20):
        y = np.random.default_rng(seed).permutation(x)
        with np.errstate(all="ignore"):
            plain, found = reduction(op).ufunc(x, y), x.copy()  # plain: a number at a time
            reduction(op)(found, y)
            same = found.view(np.uint16) == plain.view(np.uint16)
            assert (same | (np.isnan(found) & np.isnan(plain))).all()


def test_of_other_floats_that_are_too_large_it_warns():
    x = np.full(20, np.finfo(np.float32).max)
    with pytest.warns(RuntimeWarning, match="overflow"):
        reduction("sum")(x, x)


def test_takes_a_reduction_of_ones_own():
    own = Reduction("gcd", np.gcd)
    x = np.array([12, 18])
    reduction(own)(x, np.array([8, 27]))
    assert x.tolist() == [4, 9]


@pytest.mark.parametrize("function", [None, "add", lambda x, y: x + y, lambda x, y, out: x + y, lambda x, out=None: x])
def test_refuses_a_function_that_takes_other_arguments(function):
    with pytest.raises(ArgumentError, match=r"Reduction 'mine' of .*; needs a ufunc or a function f\(x, y, out=None\)"):
        Reduction("mine", function)


def larger(x, y, out=None):
    """Of x and y what is further from 0."""
    found = np.where(abs(x) >= abs(y), x, y)
    if out is None:
        return found
    out[...] = found
    return out


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64])
@pytest.mark.parametrize("algorithm", algorithms("all_reduce"))
def test_takes_one_made_of_a_function(algorithm, dtype):
    p = 4
    rows = np.arange(p * 9).reshape(9, p).T.astype(dtype) * np.array([1, -1, 1, -1], dtype)[:, None]

    def program(comm):
        x = rows[comm.rank].copy()
        all_reduce(x, comm, op=Reduction("larger", larger), algorithm=algorithm)
        return x

    assert all((x == rows[p - 1]).all() for x in sd.run(program, p).results)


@pytest.mark.parametrize("size", [1, 2])
def test_one_whose_result_does_not_fit_the_dtype_raises_at_any_size(size):
    x = np.full(size, 2)
    with pytest.raises(TypeError, match="Cannot cast ufunc 'hypot' output"):
        Reduction("hypot", np.hypot).fold(x, x.copy())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        UnknownNameError, match=r"unknown op 'summ'; did you mean 'sum'\?.* land, lor, max, min, prod, sum"
    ):
        reduction("summ")


def test_refuses_what_is_no_name():
    with pytest.raises(ArgumentError, match="op must be a name or a Reduction, not 3"):
        reduction(3)
