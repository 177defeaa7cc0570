"""A worker that is killed, in jobs of real ranks: survived where MPI can go on without it, and told where not."""

import re

import pytest
from jobs import can_survive, job, needs_mpi, needs_ulfm

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


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "killed.py"
    path.write_text(SCRIPT)
    return str(path)


@needs_ulfm
@pytest.mark.parametrize(("num_servers", "rule"), [(1, "bounded"), (1, "backup")])
def test_the_rest_of_the_job_goes_on(script, num_servers, rule):
    code, output = job(4, "--survive", script, num_servers, rule, timeout_s=60)
    assert code == 0 and "the job was ended" not in output, output
    told = [line for line in output.splitlines() if line.startswith(("server", "rank"))]
    assert sorted(told) == ["rank 1 done at 11", "rank 3 done at 11", "server 0 ended with updates of [0, 2]"]
    assert len(re.findall(r"simdist: rank 2 of 4 \(process \d+\) (has died|was killed)", output)) == 1


@needs_ulfm
def test_each_of_two_servers_goes_on(script):
    code, output = job(4, "--survive", script, 2, "bounded", timeout_s=60)  # rank 2 is the first of two workers
    assert code == 0 and "the job was ended" not in output, output
    told = [line for line in output.splitlines() if line.startswith(("server", "rank"))]
    assert sorted(told) == ["rank 3 done at 11", *(f"server {s} ended with updates of [1]" for s in range(2))]


@needs_ulfm
def test_a_synchronous_job_ends_and_says_why(script):
    code, output = job(4, "--survive", script, 1, "synchronous", timeout_s=60)
    assert code != 0
    assert re.search(r"rank 2 of 4 \(process \d+\) has died|PeerLost", output), output


def test_where_mpi_cannot_go_on_the_job_ends_and_says_why(script):
    code, output = job(4, script, "1", "bounded", timeout_s=60)
    assert code != 0
    assert re.search(r"rank 2 of 4 \(process \d+\) (has died|was killed)", output), output


@pytest.mark.skipif(can_survive(), reason="this MPI can")
def test_an_mpi_that_cannot_go_on_is_told_of_at_once(script):
    code, output = job(4, "--survive", script, 1, "bounded", timeout_s=60)
    assert code == 2
    assert "surviving a rank's death requires Open MPI 5 or later" in output
