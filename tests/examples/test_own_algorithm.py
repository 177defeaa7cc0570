"""What a program adds, and all verbs know then: in a process of its own, so that this one knows no more than before."""

import shlex
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


@pytest.mark.slow
def test_it_is_predicted_beside_its_formula():
    words = ("bench", "all_reduce", "--world", "virtual", "--cluster", "h100", "--sizes", "1K", "--algorithms", "swing")
    code, out, _ = own_algorithm(*words, "--ranks", "8")
    assert code == 0
    assert out.splitlines()[2].split()[2:8] == ["swing", "–", "18", "µs", "18", "µs"]  # 6 α, and next to nothing
    assert own_algorithm(*words, "--ranks", "3")[::2] == (2, "simdist bench: swing on 3 ranks; needs a power of two\n")


def test_on_a_torus_it_takes_less_than_halving_whose_formula_is_the_same():
    words = "bench all_reduce --world virtual --cluster torus-8x8 --ranks 64 --sizes 1M --algorithms swing rabenseifner"
    code, out, err = own_algorithm(*words.split())
    assert (code, err) == (0, "")
    swing, halving = (line.split()[-5:] for line in out.splitlines()[2:4])
    assert float(swing[0]) < 0.8 * float(halving[0])
    assert swing[2:4] == halving[2:4]


@pytest.mark.slow
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


OWN_SCHEDULE = """
import sys
from simdist.cli import main
from simdist.parallel.pipeline import named, schedule

@named("mine")
def mine(stages, micro_batches):
    return schedule("gpipe", stages=stages, micro_batches=micro_batches)

if {guard}:
    sys.exit(main())
"""


def in_folder(folder, guard, *words):
    (folder / "my own.py").write_text(OWN_SCHEDULE.format(guard=guard))
    told = [sys.executable, "my own.py", *words]
    return subprocess.run(told, cwd=folder, capture_output=True, text=True, timeout=120)


GUARD = "__name__ == '__main__'"


def test_the_command_that_is_printed_starts_the_program(tmp_path):
    cluster = ("--cluster=h100", "--ranks=2", "--layers=2", "--width=16", "--heads=2", "--context=8", "--batch=4")
    done = in_folder(tmp_path, GUARD, "predict", *cluster, "--pp=2", "--schedule=mine", "--micro-batches=2")
    assert (done.returncode, done.stderr) == (0, "")
    python, *words = shlex.split(done.stdout.splitlines()[-1])
    assert (python, *words[:2]) == ("python", "my own.py", "train")
    assert "--schedule=mine" in words
    assert in_folder(tmp_path, GUARD, *words[1:], "--out=run").returncode == 0
    _, out, _ = own_algorithm("predict", *cluster)
    assert out.splitlines()[-1].startswith("python -m simdist.examples.own_algorithm train --world=virtual")


@pytest.mark.slow
@needs_mpi
def test_ranks_say_so_of_a_program_that_starts_all_over_again_on_them(tmp_path):
    done = in_folder(tmp_path, True, "train", "--ranks=2", "--steps=2")
    # Of one rank at least: the first to leave ends the job.
    fault = f": {tmp_path / 'my own.py'} calls simdist.cli.main() as a rank loads it; needs `if __name__ =="
    assert done.returncode == 2
    assert fault in done.stderr
    assert "Traceback" not in done.stderr


@needs_mpi
def test_a_rank_knows_how_it_goes_on(tmp_path):
    told = "import simdist.launch\nprint(simdist.launch.command_words())\n"
    (tmp_path / "tell.py").write_text(told)
    assert in_folder(tmp_path, GUARD, "run", "-n", "1", "tell.py").stdout == "['python', 'my own.py']\n"
    assert subprocess.check_output([sys.executable, "tell.py"], cwd=tmp_path, text=True) == "['simdist']\n"
