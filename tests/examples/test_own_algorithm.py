"""What a program adds, and all verbs know then: in a process of its own, so that this one knows no more than before."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import needs_mpi

from simdist.examples import __file__ as examples

MODULE = "-m", "simdist.examples.own_algorithm"


def own_algorithm(*words, program=MODULE):
    done = subprocess.run([sys.executable, *program, *words], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_it_is_right_and_costs_what_it_says():
    counts = ["1", "2", "8", "16"]
    code, out, err = own_algorithm("verify", "all_reduce", "--algorithms", "swing", "--ranks", *counts)
    assert (code, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines()[1:-1]] == [["all_reduce", "swing", p] for p in counts]


def test_it_is_predicted_beside_its_formula():
    words = ("bench", "all_reduce", "--world", "virtual", "--cluster", "h100", "--sizes", "1K", "--algorithms", "swing")
    code, out, _ = own_algorithm(*words, "--ranks", "8")
    assert code == 0
    assert out.splitlines()[2].split()[2:8] == ["swing", "–", "9.01", "µs", "9.01", "µs"]  # 3 (α + n (β + γ))
    assert own_algorithm(*words, "--ranks", "3")[::2] == (2, "simdist bench: swing on 3 ranks; needs a power of two\n")


def test_among_all_it_is_left_out_where_it_is_not_for_so_many_ranks():
    code, out, err = own_algorithm("verify", "all_reduce", "--ranks", "3", "4")
    assert (code, err) == (0, "")
    assert [line.split()[2] for line in out.splitlines() if "swing" in line] == ["4"]
    words = ("bench", "all_reduce", "--world", "virtual", "--sizes", "1K", "--ranks", "3", "4")
    code, out, err = own_algorithm(*words)
    assert (code, err) == (0, "")
    three, four = out.split("all_reduce on 4 ranks")
    assert "swing" not in three
    assert "swing" in four


@needs_mpi
@pytest.mark.parametrize("program", ["module", "file"])
def test_the_ranks_that_it_starts_know_it(program, tmp_path):
    words = MODULE
    if program == "file":  # which nobody can import
        words = (str(shutil.copy(Path(examples).with_name("own_algorithm.py"), tmp_path / "my own.py")),)
    code, out, err = own_algorithm(
        "verify", "all_reduce", "--algorithms", "swing", "--ranks", "2", "--world", "mpi", program=words
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[:3] == ["all_reduce", "swing", "2"]
