"""What verify says of algorithms with a fault: each is one that somebody might write, and had a ✓ at some time."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import executed, needs_mpi

from simdist.bench import verify
from simdist.collectives import Cost, registry
from simdist.collectives.registry import Algorithm, find


@pytest.fixture
def verdicts(monkeypatch, capsys):
    """Verify faulty algorithms: their lines from the verdict on, by (algorithm, ranks), and the exit code."""

    def verdicts(operation, *algorithms, ranks=(3,)):
        for faulty in algorithms:
            monkeypatch.setitem(registry._ALGORITHMS[operation], faulty.name, faulty)
        names = [each.name for each in algorithms]
        code = executed(verify, operation, "--algorithms", *names, "--ranks", *map(str, ranks))
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
        return {(row[1], int(row[2])): " ".join(row[8:]) for row in rows}, code

    return verdicts


def like(operation, name, run, cost=None, formula=None):
    """An algorithm of one's own, with the cost and the formula of a built-in one."""
    known = find(operation, name)
    return Algorithm(operation, run.__name__, run, cost or known.cost, formula or known.formula)


def all_the_way_round(case):
    n = (case.ranks - 1) * case.num_bytes
    return Cost(case.ranks - 1, case.ranks - 1, n, n)


RING = find("all_reduce", "ring")


def ring(x, comm, op):
    RING.run(x, comm, op)


def test_ranks_that_fold_in_orders_of_their_own_have_other_bits(verdicts):
    def own_order(x, comm, op):
        passing, incoming = x.copy(), np.empty_like(x)
        for _ in range(comm.size - 1):
            comm.sendrecv(passing, (comm.rank + 1) % comm.size, incoming, (comm.rank - 1) % comm.size)
            op.fold(x, incoming)
            passing, incoming = incoming, passing

    found, code = verdicts("all_reduce", like("all_reduce", "ring", own_order, all_the_way_round))
    assert found["own_order", 3].startswith("✗ bits unlike rank 0's (length ")
    assert code == 1


def send_then_receive(x, comm, op):
    """Round a ring, all contributions to all: it ends only while messages leave at once."""
    p, r = comm.size, comm.rank
    parts = np.empty_like(x, shape=(p, len(x)))
    parts[r] = x
    for k in range(p - 1):
        comm.send(parts[(r - k) % p], (r + 1) % p)
        comm.recv(parts[(r - k - 1) % p], (r - 1) % p)
    x[:] = parts[0]
    for part in parts[1:]:
        op.fold(x, part)


def test_an_algorithm_of_ones_own_in_shared_memory_needs_no_options(verdicts):
    direct = find("all_reduce", "direct")

    def in_memory(x, comm, op):
        direct.run(x, comm, op, staged=True)

    def cost(case):
        return direct.cost(case, staged=True)

    own = Algorithm("all_reduce", "in_memory", in_memory, cost, direct.formula, by_messages=False)
    assert verdicts("all_reduce", own, ranks=(1, 3)) == ({("in_memory", 1): "✓", ("in_memory", 3): "✓"}, 0)


def test_a_deadlock_of_long_messages_alone_is_found(verdicts):
    found, _ = verdicts("all_reduce", like("all_reduce", "ring", send_then_receive, all_the_way_round))
    told = "✗ DeadlockError: deadlock: rank 0 waits for rank 1 waits for rank 2 waits for rank 0"
    assert found["send_then_receive", 3].startswith(f"{told} (length 1, float64, sum; {__file__}, line ")


def test_memory_that_was_right_before_does_not_pass_for_a_result(verdicts):
    def not_its_own(x, y, comm):
        z = np.empty_like(y)
        find("all_to_all", "pairwise").run(x, z, comm)
        others = [r for r in range(comm.size) if r != comm.rank]
        y[others] = z[others]

    found, _ = verdicts("all_to_all", like("all_to_all", "pairwise", not_its_own))
    assert found["not_its_own", 3] == "✗ result (length 1, float64, rank 0)"


def too_long(x, comm, op):
    if len(x) == 33 and op.name == "max":
        if comm.rank == 0:
            comm.send(x, 1)
        elif comm.rank == 1:
            comm.recv(x[:1], 0)
    ring(x, comm, op)


def breaks(x, comm, op):
    if len(x) == 2 and x.dtype == np.int64 and comm.rank == 1:
        raise ValueError("three words long\nand more")
    ring(x, comm, op)


def test_after_an_error_the_others_have_their_lines(verdicts):
    faulty = [like("all_reduce", "ring", run) for run in (breaks, too_long, ring)]
    found, code = verdicts("all_reduce", *faulty, ranks=(2, 3))
    where = f"{__file__}, line {breaks.__code__.co_firstlineno + 2}"
    assert found["breaks", 3] == f"✗ ValueError: three words long (length 2, int64, sum; {where})"
    assert found["too_long", 3].startswith("✗ MessageMismatch: ")
    assert f" (length 33, float32, max; {__file__}, line " in found["too_long", 3]
    assert [found[name, 2] for name in ("breaks", "too_long", "ring")] == ["✓"] * 3
    assert found["ring", 3] == "✓"
    assert code == 1


def test_a_wrong_result_is_told_with_its_place(verdicts):
    def off(x, comm, op):
        ring(x, comm, op)
        if comm.rank == 2 and x.dtype == np.int64 and len(x) == 2:
            x[1] += 1

    found, _ = verdicts("all_reduce", like("all_reduce", "ring", off))
    assert found["off", 3] == "✗ result (length 2, int64, sum, rank 2)"


def test_long_arrays_and_roots_in_the_middle_are_tried(verdicts):
    def forgets_the_end(x, comm, op):
        ring(x, comm, op)
        x[65536:] = 0

    def from_the_ends(x, comm, root):
        find("broadcast", "binomial").run(x, comm, root)
        x[:] += 0 < root < comm.size - 1

    found, _ = verdicts("all_reduce", like("all_reduce", "ring", forgets_the_end))
    assert found["forgets_the_end", 3] == "✗ result (length 100003, float64, sum, rank 0)"
    found, _ = verdicts("broadcast", like("broadcast", "binomial", from_the_ends), ranks=(5,))
    assert found["from_the_ends", 5] == "✗ result (length 1, float64, root 2, rank 0)"


@pytest.mark.parametrize(
    ("paper", "told"),
    [
        ({"cost": lambda case: (1, 2, 3)}, "the cost of all_reduce ring returns a tuple; needs a Cost"),
        ({"formula": lambda case: 1.5}, "the formula of all_reduce ring returns a float; needs a Formula"),
    ],
)
def test_what_is_no_cost_or_no_formula_is_told(paper, told, verdicts):
    found, code = verdicts("all_reduce", like("all_reduce", "ring", ring, **paper))
    assert found["ring", 3] == f"✗ ArgumentError: {told}"
    assert code == 1


def test_a_formula_that_cannot_be_asked_does_not_hide_the_others(monkeypatch):
    known = find("all_reduce", "ring")
    for name, formula in {"text": lambda case: "n", "broken": lambda case: 1 / 0}.items():
        monkeypatch.setitem(registry._ALGORITHMS["all_reduce"], name, Algorithm("", name, ring, known.cost, formula))
    good = {line.split()[1]: good for line, good in verify.table([2], "virtual", "all_reduce")}
    assert [name for name in good if not good[name]] == ["text", "broken"]


OWN = """
import sys
from simdist.cli import main
from simdist.collectives import algorithm
from simdist.collectives.registry import find

ring = find("all_reduce", "ring")

@algorithm("all_reduce", "breaks", cost=ring.cost, formula=ring.formula)
def breaks(x, comm, op):
    if len(x) == 23 and comm.rank == 1:
        raise ValueError("broken")
    ring.run(x, comm, op)

algorithm("all_reduce", "untyped", cost=ring.cost, formula=lambda case: 1.5)(ring.run)

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def own(tmp_path):
    """A program with an algorithm that raises an error on one of two ranks, and one whose formula is none."""
    path = Path(tmp_path) / "own.py"
    path.write_text(OWN)
    return path


def started(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


VERIFY = "verify", "all_reduce", "--ranks", "2", "--algorithms", "ring", "breaks", "tree"


@pytest.mark.slow
@needs_mpi
def test_of_real_ranks_one_that_fails_leaves_the_others_their_lines(own):
    code, out, err = started(sys.executable, own, *VERIFY, "--world", "mpi")
    assert (code, err) == (1, "")
    lines = [line.split(maxsplit=8) for line in out.splitlines()[1:-1]]
    told = "✗ ValueError: broken (length 23, float64, sum)"
    assert [(line[1], line[8]) for line in lines] == [("ring", "✓"), ("breaks", told), ("tree", "✓")]
    code, out, _ = started(sys.executable, own, *VERIFY[:-2], "untyped", "--world", "mpi")
    assert code == 1
    assert out.splitlines()[-2].endswith(
        "✗ ArgumentError: the formula of all_reduce untyped returns a float; needs a Formula"
    )


@needs_mpi
def test_under_mpirun_its_ranks_do_the_work_and_one_prints(own):
    words = sys.executable, "-m", "simdist", "run", "-n", "2", own, *VERIFY
    code, out, err = started(*words)
    assert code != 0
    assert [line.split()[1] for line in out.splitlines()] == ["algorithm", "ring"]
    assert f"✗ ValueError: broken (length 23, float64, sum; {own}, line " in err
    code, out, err = started(*words[:-3], "ring", "tree")
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == ["algorithm", "ring", "tree", "with"]
