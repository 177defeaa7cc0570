import subprocess
import sys

import pytest
from jobs import ROOT


def test_the_benchmark_finds_the_virtual_clock_right():
    words = [sys.executable, "-m", "benchmarks.virtual", "--ranks", "8", "--many", "16"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [(line[0], line[1], line[2]) for line in lines] == [
        ("ring", "8", "numpy"),
        ("ring", "8", "phantom"),
        ("recursive_doubling", "16", "numpy"),
    ], done.stderr
    for line in lines:
        assert float(line[7]) == pytest.approx(float(line[8]), rel=1e-6)
        assert float(line[6].replace(",", "")) > 0
