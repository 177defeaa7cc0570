import ml_dtypes
import numpy as np
import pytest

from simdist.arrays import phantom
from simdist.arrays.matmul import matmul
from simdist.arrays.working import room, rounded, settle, widened, working_dtype

BF16 = np.dtype(ml_dtypes.bfloat16)
SHORT = [np.dtype(np.float16), BF16]
OTHERS = [np.dtype(t) for t in (np.float32, np.float64, np.int64, np.uint8, np.bool_)]


def test_short_numbers_are_worked_on_in_float32_and_all_others_as_they_are():
    assert [working_dtype(dtype) for dtype in SHORT] == [np.float32] * 2
    assert [working_dtype(dtype) for dtype in OTHERS] == OTHERS


@pytest.mark.parametrize("make", [np.ones, phantom], ids=["numpy", "phantom"])
def test_there_and_back(make):
    for dtype in OTHERS:
        x = make((2, 3), dtype)
        assert widened(x) is x
        assert room(x) is x
        assert rounded(x, dtype) is x
    for dtype in SHORT:
        x = make((2, 3), dtype)
        assert [(y.shape, y.dtype) for y in (widened(x), room(x))] == [((2, 3), np.float32)] * 2
        assert rounded(widened(x), dtype).dtype == dtype


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_what_settles_is_rounded_to_the_nearest(dtype):
    y = np.zeros(3, dtype)
    ulp = float(ml_dtypes.finfo(dtype).eps)
    settle(y, np.array([1 + 0.4 * ulp, 1 + 0.6 * ulp, -2], np.float32))
    assert y.astype(float).tolist() == [1, 1 + ulp, -2]


@pytest.mark.parametrize("dtype", [*SHORT, np.dtype(np.float32), np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("what", ["product", "plus a row", "added"])
def test_products_are_summed_wide_and_rounded_once(dtype, what):
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=shape).astype(dtype) for shape in ((700, 600), (600, 5), (5,)))  # two blocks of rows
    out = rng.normal(size=(700, 5)).astype(dtype)
    plus = {"product": None, "plus a row": b, "added": out}[what]
    exact = x.astype(float) @ w.astype(float) + (0 if plus is None else plus.astype(float))
    matmul(x, w, out, plus)
    eps, inner = float(ml_dtypes.finfo(dtype).eps), float(ml_dtypes.finfo(working_dtype(dtype)).eps)
    limit = eps / 2 * np.abs(exact) + 600 * inner * (np.abs(x.astype(float)) @ np.abs(w.astype(float)))
    assert (np.abs(out.astype(float) - exact) <= limit).all()


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_a_product_of_stacks_into_a_view_and_into_wide_numbers(dtype):
    x, w = np.arange(24).reshape(2, 3, 4).astype(dtype), np.ones((4, 2), dtype)
    sums = np.arange(24).reshape(2, 3, 4).sum(axis=-1)
    short, wide = np.zeros((2, 3, 5), dtype), np.zeros((2, 3, 2), np.float32)
    matmul(x, w, short[:, :, 1:3])
    matmul(x, w, wide)
    assert short[:, :, 0].astype(float).any() == 0 and short[:, :, 3:].astype(float).any() == 0
    for found in (short[:, :, 1], short[:, :, 2], wide[:, :, 0]):
        np.testing.assert_array_equal(found.astype(int), sums)


def test_products_of_phantoms_have_the_shape_that_they_must_have():
    out = phantom((6, 5), BF16)
    matmul(phantom((6, 4), BF16), phantom((4, 5), BF16), out, plus=out)
    with pytest.raises(ValueError, match="matmul of shapes"):
        matmul(phantom((6, 3), BF16), phantom((4, 5), BF16), out)
