import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from jobs import ROOT, needs_mpi


@pytest.mark.slow
@needs_mpi
def test_the_benchmark_sets_a_step_beside_its_products_and_beside_pytorch(tmp_path):
    sizes = ["--layers", "1", "--width", "8", "--heads", "2", "--context", "8", "--batch", "2"]
    words = [sys.executable, "-m", "benchmarks.training", *sizes, "--steps", "2", "--rounds", "1"]
    words += ["--out", str(tmp_path / "seen.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    one, two = json.loads((tmp_path / "seen.json").read_text())["jobs"]
    assert (one["ranks"], two["ranks"]) == (1, 2)
    contenders = {"matrix products alone", "simdist, all-reduce after"}
    theirs = {"PyTorch DDP"} if find_spec("torch") else set()
    assert set(one["rows"]) == contenders | theirs
    assert set(two["rows"]) == contenders | theirs | {"simdist, ZeRO 1", "simdist, buckets during"}
    for job in (one, two):
        assert job["peak_flops_per_s"] > 0
        for name, row in job["rows"].items():
            assert row["tokens_per_s"] * row["step_s"] == pytest.approx(job["ranks"] * 2 * 8)
            assert len(job["seconds"][name]) == 2, "steps, without the first"
            assert name in done.stdout
        for parts in job["parts"].values():
            assert set(parts) == {"forward", "backward", "synchronize gradients", "update"}
            assert min(parts.values()) > 0
