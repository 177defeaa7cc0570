"""Very many all-reduces back to back, by ranks that share cores and dawdle: all equal MPI's own."""

import numpy as np
import pytest
from jobs import job, needs_mpi

import simdist as sd
from simdist.collectives import all_reduce

SCRIPT = """
import sys, time
import numpy as np
from mpi4py import MPI
import simdist as sd
from simdist.collectives import all_reduce

comm, vendor, calls = sd.world(), MPI.COMM_WORLD, int(sys.argv[1])
comm.recorder.on = False
same, mine = np.random.default_rng(0), np.random.default_rng([1, comm.rank])  # drawn alike by all, and not
ops = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "lor": MPI.LOR, "land": MPI.LAND}
pool = comm.empty(1 << 21, np.uint8)
for call in range(calls):
    length = int(2 ** same.uniform(0, 17)) - 1
    dtype = np.dtype(same.choice(["int8", "int32", "int64", "float32", "float64", "bool"]))
    logical = dtype.kind == "b" or (dtype.kind == "i" and same.random() < 0.2)
    name = str(same.choice(["lor", "land"] if logical else ["sum", "prod", "min", "max"]))
    offset, shared = 64 * int(same.integers(100)), same.random() < 0.5
    algorithm = str(same.choice(["direct", "direct", "auto", "ring"]))
    x = np.empty(length, dtype)
    if shared:
        x = pool[offset : offset + length * dtype.itemsize].view(dtype)
    x[...] = mine.integers(0, 3, length)  # small whole numbers, so that no order of sums makes a difference
    theirs = np.empty_like(x)
    vendor.Allreduce(x.copy(), theirs, ops[name])
    if mine.random() < 0.05:
        time.sleep(mine.exponential(1e-3))
    all_reduce(x, comm, name, algorithm)
    if not np.array_equal(x, theirs):
        sys.exit(f"call {call} on rank {comm.rank}: {algorithm} {name} of {dtype}[{length}], shared: {shared}, differs")
    x[...] = 0  # what a rank does with its own array after the call is its own business
print(f"rank {comm.rank} made {calls} calls")
"""


@needs_mpi
@pytest.mark.parametrize("calls", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_all_equal_mpis(tmp_path, calls):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = job(4, script, calls, timeout_s=600, SIMDIST_TIMEOUT_S="120")
    assert done.code == 0, done.output
    assert done.output.count(f"made {calls} calls") == 4


def test_many_in_virtual_time_with_delays():
    def program(comm):
        same, mine, right = np.random.default_rng(0), np.random.default_rng([1, comm.rank]), True
        pool = comm.empty(1 << 16, np.int64)
        for _ in range(200):
            length, shared = int(2 ** same.uniform(0, 16)) - 1, same.random() < 0.5
            x = pool[:length] if shared else np.empty(length, np.int64)
            x[...] = 10**comm.rank
            comm.compute(seconds=float(mine.exponential(1e-4)))
            all_reduce(x, comm)
            right &= bool((x == int("1" * comm.size)).all())
            x[...] = 0
        return right

    assert all(sd.run(program, 5).results)
