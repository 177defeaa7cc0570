"""Ranks on two hosts: who shares memory with whom, messages from anybody, and that all ends whatever fails."""

import time

import pytest
from hosts import Hosts
from jobs import needs_mpi

pytestmark = needs_mpi


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    try:
        hosts = Hosts(2, tmp_path_factory.mktemp("hosts"))
    except Exception as error:
        pytest.skip(f"cannot make hosts here: {error}")
    yield hosts
    hosts.close()


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "program.py").write_text(text)
        return str(tmp_path / "program.py")

    return write


TOGETHER = """
import numpy as np
import simdist as sd
from simdist.collectives import algorithms, all_reduce

comm = sd.world()
told = [list(comm.nodes), comm.num_nodes, comm.cluster.devices_per_node]
for name in ("auto", *algorithms("all_reduce", comm.size)):
    x = comm.empty(1001, np.int64)
    x[:] = 10**comm.rank
    all_reduce(x, comm, algorithm=name)
    assert set(x.tolist()) == {1111}, (name, x)
after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
for n in (0, 1, 100_000):  # from anybody, posted before it comes and after
    x, y, z = np.full(n, comm.rank), np.zeros(n, int), np.zeros(n, int)
    posted = comm.irecv(y)
    comm.barrier()
    comm.send(x, after, 1)
    assert tuple(posted.wait()) == (before, 1, 8 * n) and (y == before).all()
    sent = comm.isend(x, after, 2)
    comm.barrier()
    assert tuple(comm.recv(z)) == (before, 2, 8 * n) and (z == before).all()
    sent.wait()
clocks = [float(told) for told in comm.exchange(str(comm.clock()))]
comm.barrier()
assert max(clocks) < comm.clock() + 0.001, "no clock is ahead"
comm.rank or print("all good:", told, flush=True)
"""


def test_two_hosts_are_two_nodes_and_one_job(hosts, script):
    code, output = hosts.end_of(hosts.start(2, script(TOGETHER)))
    assert "all good: [[0, 0, 1, 1], 2, 2]" in output and code == 0, output


@pytest.mark.slow
def test_training_over_two_hosts(hosts, tmp_path):
    """With servers, which receive from whoever sends."""
    words = ["train", "--method", "async", "--servers", "2", "--steps", "5", "--out", str(tmp_path / "run")]
    code, output = hosts.end_of(hosts.start(2, "-m", "simdist", *words))
    assert code == 0, output
    assert "trace.json" in {file.name for file in (tmp_path / "run").iterdir()}


FAULTS = {
    "raises": ("raise ValueError('on purpose')", "ValueError: on purpose"),
    "leaves": ("sys.exit(3)", "rank 3 left with exit code 3"),
    "dies": ("os.kill(os.getpid(), signal.SIGKILL)", ""),  # mpirun may be first, and kill the ranks that would tell
    "differs": ("all_reduce(x[1:], comm)", "CollectiveMismatch"),
    "sleeps": ("time.sleep(1000)", "DeadlineError: rank "),
}
ENDLESS = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
import simdist as sd
from simdist.collectives import all_reduce

comm, x = sd.world(), np.ones(1000)
for i in range(1_000_000):
    all_reduce(x, comm, algorithm="ring")
    if i == 100 and comm.rank == 3:
        FAULT
    x[:] = 1
    time.sleep(0.001)
"""


@pytest.mark.slow(but=1)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_on_one_host_ends_the_job_on_both(hosts, script, fault):
    does, says = FAULTS[fault]
    code, output = hosts.end_of(hosts.start(2, script(ENDLESS.replace("FAULT", does)), SIMDIST_TIMEOUT_S="5"))
    assert code != 0 and says in output, output


@pytest.fixture
def endless(hosts, script, tmp_path):
    """A job that is under way."""
    mark = tmp_path / "under way"
    job = hosts.start(2, script(ENDLESS.replace("FAULT", f"Path({str(mark)!r}).touch()")), SIMDIST_TIMEOUT_S="5")
    last_s = time.monotonic() + 60
    while not mark.exists():
        if job.poll() is not None or time.monotonic() > last_s:
            pytest.fail(f"it never came under way:\n{hosts.end_of(job, 1.0).output}")
        time.sleep(0.05)
    return job


def left(hosts, patience_s=60):
    """The ranks that have not ended by then."""
    last_s = time.monotonic() + patience_s
    while hosts.ranks() and time.monotonic() < last_s:
        time.sleep(0.1)
    return hosts.ranks()


def test_a_host_that_is_lost_ends_the_job(hosts, endless):
    """Open MPI's mpirun then gives 0 for an exit code."""
    hosts.kill("h2")
    hosts.end_of(endless)
    assert left(hosts) == []


@pytest.mark.slow(but=1)
def test_a_cut_cable_ends_the_ranks_on_both_sides(hosts, endless):
    """By the deadline; Open MPI's mpirun itself waits for minutes then."""
    hosts.link("h2", "down")
    try:
        assert left(hosts) == []
    finally:
        hosts.link("h2", "up")
        for name in hosts.names:
            hosts.kill(name)
    assert "DeadlineError: rank " in hosts.end_of(endless).output
