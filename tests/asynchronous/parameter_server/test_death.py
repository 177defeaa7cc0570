"""A worker that is killed, in jobs of real ranks: survived where MPI can go on without it, and told where not."""

import os
import re
import signal
import subprocess
import sys

import pytest
from jobs import MPIRUN, ROOT, job, needs_mpi

pytestmark = needs_mpi

SCRIPT = """
import os, signal, sys
import numpy as np
import simdist as sd
from simdist.asynchronous import Constant
from simdist.asynchronous.parameter_server import BoundedStaleness, ParameterServer, Synchronous, train

comm, num_servers = sd.world(), int(sys.argv[1])
rule = {"bounded": BoundedStaleness(1), "backup": Synchronous(1), "synchronous": Synchronous()}[sys.argv[2]]

def gradient(weights, step):
    if comm.rank == 2 and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(weights @ weights), weights

report = train(comm, np.ones(5), gradient, 12, 0.1, ParameterServer(num_servers, rule, compute_time=Constant(0.01)))
if comm.rank < num_servers:
    print("server", comm.rank, "ended with updates of", sorted({w for w, t in report.counts.applied if t == 11}))
else:
    print("rank", comm.rank, report.ended, "at", report.clocks[-1])
"""


def has_fault_tolerance():
    """Whether the launcher is one of Open MPI's that knows `--with-ft`."""
    if MPIRUN is None:
        return False
    told = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, timeout=30).stdout
    version = re.search(r"Open MPI\)? (\d+)", told)
    return version is not None and int(version[1]) >= 5


def surviving(path, *arguments, timeout_s=60.0):
    """Run the script on four ranks under `mpirun --with-ft ulfm`; its code and its output."""
    words = [MPIRUN, "--with-ft", "ulfm", "--oversubscribe", "--bind-to", "none", "-n", "4", sys.executable, path]
    allowed = {f"{who}_ALLOW_RUN_AS_ROOT{how}": "1" for who in ("OMPI", "PRTE") for how in ("", "_CONFIRM")}
    variables = {**os.environ, **allowed, "PYTHONPATH": str(ROOT), "OMPI_MCA_mpi_yield_when_idle": "1"}
    process = subprocess.Popen(
        [*words, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"did not end within {timeout_s} s:\n{output.decode(errors='replace')[-3000:]}")
    return process.returncode, output.decode(errors="replace")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "killed.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.skipif(not has_fault_tolerance(), reason="needs Open MPI from 5 on, which can survive a rank's death")
@pytest.mark.parametrize(("num_servers", "rule"), [(1, "bounded"), (1, "backup")])
def test_the_rest_of_the_job_goes_on(script, num_servers, rule):
    code, output = surviving(script, str(num_servers), rule)
    assert code == 0, output
    told = [line for line in output.splitlines() if line.startswith(("server", "rank"))]
    assert sorted(told) == ["rank 1 done at 11", "rank 3 done at 11", "server 0 ended with updates of [0, 2]"]


@pytest.mark.skipif(not has_fault_tolerance(), reason="needs Open MPI from 5 on, which can survive a rank's death")
def test_each_of_two_servers_goes_on(script):
    code, output = surviving(script, "2", "bounded")  # rank 2 is the first of two workers
    assert code == 0, output
    told = [line for line in output.splitlines() if line.startswith(("server", "rank"))]
    assert sorted(told) == ["rank 3 done at 11", *(f"server {s} ended with updates of [1]" for s in range(2))]


@pytest.mark.skipif(not has_fault_tolerance(), reason="needs Open MPI from 5 on, which can survive a rank's death")
def test_a_synchronous_job_ends_and_says_why(script):
    code, output = surviving(script, "1", "synchronous")
    assert code != 0
    assert re.search(r"rank 2 of 4 \(process \d+\) has died|PeerLost", output), output


def test_where_mpi_cannot_go_on_the_job_ends_and_says_why(script):
    code, output = job(4, script, "1", "bounded", timeout_s=60)
    assert code != 0
    assert re.search(r"rank 2 of 4 \(process \d+\) (has died|was killed)", output), output
