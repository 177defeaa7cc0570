import subprocess
import sys

import pytest
from jobs import ROOT


def test_the_benchmark_finds_the_virtual_clock_right():
    words = [sys.executable, "-m", "benchmarks.virtual", "--ranks", "8", "--many", "16", "--nodes", "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)
    *lines, limit = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [tuple(line[:4]) for line in lines] == [
        ("ring", "8", "numpy", "off"),
        ("ring", "8", "phantom", "off"),
        ("ring", "2", "numpy", "on"),
        ("hierarchical", "16", "numpy", "off"),
        ("recursive_doubling", "16", "numpy", "off"),
    ], done.stderr
    for line in lines:
        assert float(line[10]) == pytest.approx(float(line[11]), rel=1e-6)
        assert float(line[7].replace(",", "")) > 0
    assert limit[:3] == ["bare", "greenlets", "8"] and float(limit[-1].replace(",", "")) > 0
