import numpy as np
import pytest

from simdist.optim.dynamic_code import dynamic_code


@pytest.mark.parametrize("signed", [True, False])
def test_the_numbers(signed):
    values = dynamic_code(signed).values
    assert len(values) == 256
    assert (np.diff(values) > 0).all()
    decades = 7 if signed else 8
    assert values[-1] == 1 and (values == 0).sum() == signed
    for decade in range(decades):
        top = 10.0 ** (decade + 1 - decades)
        count = ((values > top / 10) & (values < top)).sum()
        assert count == 2**decade
    if signed:
        np.testing.assert_array_equal(values[1:127], -values[128:254][::-1])
        assert values[0] == -1


def test_what_is_divided_by_is_never_zero():
    code, codes, back = dynamic_code(signed=False), np.empty(3, np.uint8), np.empty(3, np.float32)
    code.encode(np.array([0, 1e-30, 1e-7], np.float32), out=codes)
    code.decode(codes, out=back)
    assert (back > 0).all() and (back < 1e-7).all()


@pytest.mark.parametrize("signed", [True, False])
def test_each_number_is_its_own_code(signed):
    code = dynamic_code(signed)
    codes = np.empty(256, np.uint8)
    code.encode(code.values, out=codes)
    np.testing.assert_array_equal(codes, np.arange(256))


@pytest.mark.parametrize("signed", [True, False])
def test_it_finds_the_nearest(signed):
    rng = np.random.default_rng(5)
    x = (rng.uniform(-1 if signed else 0, 1, 5000) * 10.0 ** rng.uniform(-8, 0, 5000)).astype(np.float32)
    code, codes, back = dynamic_code(signed), np.empty(5000, np.uint8), np.empty(5000, np.float32)
    code.encode(x, out=codes)
    code.decode(codes, out=back)
    nearest = np.abs(code.values[:, None].astype(np.float64) - x).min(axis=0)
    assert (np.abs(back - x.astype(np.float64)) <= nearest + np.abs(x) / 2048).all()


def test_every_decade_is_precise():
    code, codes, back = dynamic_code(signed=True), np.empty(1000, np.uint8), np.empty(1000, np.float32)
    for top, error in ((1.0, 0.08), (0.1, 0.15), (0.01, 0.25), (0.001, 0.4)):
        x = np.linspace(top / 10, top, 1000, dtype=np.float32)
        code.encode(x, out=codes)
        code.decode(codes, out=back)
        assert (np.abs(back - x) / x).max() < error
