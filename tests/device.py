"""The device that tests run on: with --device cuda a card, and else a stand-in whose kernels the processor runs.

With --device cuda or --device stand-in all programs run there, and else those of tests that take `device`.

The stand-in is a package named cupy, in tests/fake_cuda; it refuses what CuPy refuses, see there.
"""

import shutil
import sys
from pathlib import Path

import pytest

__all__ = ["library", "stands_in"]

FAKE = Path(__file__).parent / "fake_cuda"


def stands_in():
    """Whether the device of these tests is the stand-in."""
    return str(FAKE) in sys.path


def library(config):
    """The module `simdist.arrays.device`, on the device that was asked for; skips the test where there is none."""
    if config.getoption("--device", "cpu") == "cuda":
        pytest.importorskip("cupy", reason="--device cuda needs CuPy")
    elif "cupy" not in sys.modules:
        if shutil.which("g++") is None:
            pytest.skip("the device's stand-in needs g++ for its kernels; --device cuda needs a card")
        sys.path.insert(0, str(FAKE))
    from simdist.arrays import device

    if not device.num_devices():
        pytest.skip("--device cuda needs a GPU of NVIDIA's and its driver")
    return device
