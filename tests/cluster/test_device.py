import ml_dtypes
import numpy as np
import pytest

from simdist.cluster import Device, preset
from simdist.errors import ArgumentError

DEVICE = Device("toy", flops_per_s=100.0, memory_bytes_per_s=30.0, memory_bytes=1e9)


@pytest.mark.parametrize(
    ("flops", "num_bytes", "seconds"),
    [(100, 0, 1.0), (0, 30, 1.0), (100, 60, 2.0), (500, 60, 5.0), (0, 0, 0.0)],
)
def test_takes_as_long_as_the_slower_of_arithmetic_and_memory(flops, num_bytes, seconds):
    assert DEVICE.seconds(flops, num_bytes) == seconds


@pytest.mark.parametrize(("name", "ridge"), [("h100", 295), ("tpu-v5e", 240)])
def test_arithmetic_is_the_limit_beyond_the_ridge(name, ridge):
    """As "How to Scale Your Model" has them."""
    device = preset(name).device
    assert device.ridge_flops_per_byte == pytest.approx(ridge, rel=3e-3)
    flops = device.ridge_flops_per_byte * 1e9
    assert device.seconds(flops, 1e9) == pytest.approx(device.seconds(0, 1e9))
    rows, wide = 8, 1 << 15
    products, moved = 2 * rows * wide**2, 2 * (wide**2 + 2 * rows * wide)
    assert products / moved == pytest.approx(rows, rel=1e-3)
    assert device.seconds(1.1 * flops, 1e9) == pytest.approx(1.1 * device.seconds(0, 1e9))


def test_folds_a_byte_for_every_three_it_moves():
    assert DEVICE.reduced_bytes_per_s == 10.0


@pytest.mark.parametrize("name", ["flops_per_s", "memory_bytes_per_s", "memory_bytes"])
def test_refuses_what_no_processor_is(name):
    numbers = {"flops_per_s": 1.0, "memory_bytes_per_s": 1.0, "memory_bytes": 1.0, name: 0.0}
    with pytest.raises(ArgumentError, match=f"{name} is 0.0; needs more than 0"):
        Device("none", **numbers)


def test_what_programs_reach_of_it():
    device = Device("toy", 100.0, 30.0, 1e9, flops_efficiency=0.5, memory_efficiency=0.1)
    assert device.seconds(100, 0) == 2.0
    assert device.seconds(0, 30) == 10.0
    assert device.seconds(100, 30) == 10.0
    assert device.reduced_bytes_per_s == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["flops_efficiency", "memory_efficiency"])
@pytest.mark.parametrize("value", [0.0, -1.0, 1.01, float("nan")])
def test_refuses_shares_that_are_none(name, value):
    with pytest.raises(ArgumentError, match=f"{name} is {value}; needs more than 0 and at most 1"):
        Device("none", 1.0, 1.0, 1.0, **{name: value})


def test_longer_and_shorter_numbers_have_rates_of_their_own():
    device = Device("toy", 100.0, 30.0, 1e9, flops_efficiency=0.5, float32_flops_per_s=20.0)
    short = Device("toy", 100.0, 30.0, 1e9, float8_flops_per_s=200.0)
    for kind in (ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2):
        assert (device.computing_in(kind).flops_per_s, short.computing_in(kind).flops_per_s) == (100, 200)
    assert short.computing_in("float32").flops_per_s == 100
    for wrong in (np.int8, "int8", "tf32"):
        with pytest.raises(ArgumentError, match="toy computing in (int8|tf32); needs floating-point numbers: float64"):
            short.computing_in(wrong)
    found = [device.computing_in(x).flops_per_s for x in ("float16", ml_dtypes.bfloat16, "float32", np.float64)]
    assert found == [100, 100, 20, 100]
    assert device.computing_in("float32").seconds(60, 0) == 6
    assert device.computing_in("float32").computing_in("float32") == device.computing_in("float32")
    for name in (f"float{bits}_flops_per_s" for bits in (32, 64, 8, 4)):
        with pytest.raises(ArgumentError, match=f"{name} is -1"):
            Device("toy", 100.0, 30.0, 1e9, **{name: -1})


def test_memory_has_rates_of_its_own_for_numbers_that_are_widened():
    own = {"bfloat16_memory_bytes_per_s": 10.0, "float16_memory_bytes_per_s": 5.0}
    cpu = Device("toy", 100.0, 30.0, 1e9, memory_efficiency=0.5, **own)
    names = "float32", "float64", "bf16", ml_dtypes.bfloat16, "fp16", np.float16, "fp8"
    assert [cpu.computing_in(x).seconds(0, 30) for x in names] == [2, 2, 6, 6, 12, 12, 2]
    assert [cpu.computing_in(x).flops_per_s for x in names] == [100] * len(names)
    assert DEVICE.computing_in("bf16") == DEVICE.computing_in("fp16") == DEVICE
    for name in own:
        for wrong in (-1, np.inf):
            with pytest.raises(ArgumentError, match=f"{name} is {wrong}"):
                Device("toy", 100.0, 30.0, 1e9, **{name: wrong})


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("bf16", 989.4), ("FP16", 989.4), ("fp8", 1978.9), ("float8", 1978.9), ("fp32", 67), ("FP64", 67), ("f4", 67)],
)
def test_numbers_are_known_by_the_names_of_data_sheets(name, tflops):
    """H100's: 3958 TFLOP/s of FP8 with sparsity, half of them without."""
    assert preset("h100").computing_in(name).device.flops_per_s == pytest.approx(tflops * 1e12)
