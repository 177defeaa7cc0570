"""Whether an MPI takes device memory: what it says, and a process that may die of trying it."""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from device import stands_in
from harness import xp

import simdist as sd
from simdist.cluster import preset
from simdist.comm import device_probe
from simdist.comm.device import Finding, first_trouble
from simdist.comm.device_probe import aware_of_cuda, opens_memory, says_cuda, tried_in_a_child


class Mpi:
    """A communicator that says what kinds of memory it takes."""

    def __init__(self, kinds):
        self.kinds, self.freed = kinds, False

    def Get_info(self):  # noqa: N802
        return self

    def Get(self, key):  # noqa: N802
        assert key == "mpi_memory_alloc_kinds"
        return self.kinds

    def Free(self):  # noqa: N802
        self.freed = True


class Library:
    __file__ = "/nowhere/MPI.so"


def test_an_mpi_says_by_its_info_what_memory_it_takes():
    assert says_cuda(Library, mpi := Mpi("system,mpi,cuda:device"))
    assert mpi.freed
    assert not says_cuda(Library, Mpi("system,mpi"))
    assert not says_cuda(Library, Mpi(None))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
@pytest.mark.parametrize(("answer", "found"), [(0, False), (1, True)])
def test_or_by_a_function_of_its_library(tmp_path, answer, found):
    (tmp_path / "mpi.c").write_text(f"int MPIX_Query_cuda_support(void) {{ return {answer}; }}")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "mpi.so", "mpi.c"], cwd=tmp_path, check=True, timeout=60)
    assert says_cuda(SimpleNamespace(__file__=str(tmp_path / "mpi.so")), Mpi("system")) == found


def test_a_trial_that_arrives_that_crashes_that_fails_that_hangs(monkeypatch):
    assert tried_in_a_child(program="raise SystemExit(0)") == ""
    assert "ended with -6" in tried_in_a_child(program="import os; os.abort()")
    assert "ended with 1: ValueError: no" in tried_in_a_child(program="raise ValueError('no')")
    assert "ended with 3: \ufffd is no text" in tried_in_a_child(
        program=r"import os; os.write(2, b'\xff is no text'); os._exit(3)"
    )
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        assert "did not start: No such file" in tried_in_a_child()
    monkeypatch.setenv("SIMDIST_TIMEOUT_S", "0.4")  # of ranks that wait for what it finds
    assert "did not end within 0.3 s" in tried_in_a_child(program="import time; time.sleep(60)")


def test_a_trial_knows_nothing_of_the_job():
    job = "any(n.startswith(('PMI_', 'OMPI_COMM_')) for n in os.environ)"
    program = f"import os; raise SystemExit('MINE' not in os.environ or {job})"
    told = {"PMI_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "MINE": "1"}
    assert tried_in_a_child(told, program) == ""


def test_an_mpi_is_believed_after_a_trial_only(spmd, monkeypatch):
    def program(comm):
        silent = aware_of_cuda(comm, Library, Mpi("system"))
        monkeypatch.setattr(device_probe, "tried_in_a_child", lambda: "a process that tried it ended with -11: bang")
        wrong = aware_of_cuda(comm, Library, Mpi("cuda"))
        monkeypatch.setattr(device_probe, "tried_in_a_child", lambda: "")
        right = aware_of_cuda(comm, Library, Mpi("cuda"))
        return [list(found) for found in ((f.works, f.why) for f in (silent, wrong, right))]

    for silent, wrong, right in spmd(program, 2):
        assert silent[0] is wrong[0] is False and right[0] is True
        assert "conda-forge's openmpi" in silent[1]
        assert "ended with -11: bang (on rank 0)" in wrong[1]


def test_trouble_of_any_length_and_script_is_told_on_all_ranks(spmd):
    troubles = ["", "é" * 2000 + "\udc80", "later"]
    for found in spmd(lambda comm: [first_trouble(comm, troubles[comm.rank]), first_trouble(comm, "")], 3):
        assert found == ["é" * 500 + " (on rank 1)", ""]


class Memory:
    """A device whose memory virtual ranks open; `lost` has none to offer, and `changed` finds another number there."""

    class failure(Exception):  # noqa: N801
        pass

    def __init__(self, lost=None, changed=None):
        self.lost, self.changed, self.parts, self.closed = lost, changed, [], 0

    def exported(self, num_bytes):
        if len(self.parts) == self.lost:
            self.parts.append(None)
            raise self.failure("no memory")
        self.parts.append(np.full(num_bytes, 77, np.uint8))
        return self.parts[-1], bytes([len(self.parts)])

    def synchronize(self):
        pass

    def PeerMemory(self, handle, num_bytes):  # noqa: N802
        def close():
            self.closed += 1

        found = self.parts[handle[0] - 1] + (handle[0] - 1 == self.changed)
        return SimpleNamespace(bytes=found[:num_bytes], close=close)

    def to_host(self, x):
        return x


REFUSED = "CUDA cannot open memory of other processes here"


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ({}, "the ranks open each other's device memory"),
        ({"lost": 1}, f"{REFUSED}: no memory (on rank 1)"),
        ({"changed": 2}, f"{REFUSED}: 3 was read where rank 2 wrote 2 (on rank 0)"),
    ],
)
def test_memory_is_opened_by_all_and_closed_again(monkeypatch, trouble, why):
    memory = Memory(**trouble)
    monkeypatch.setattr(device_probe, "device_library", lambda: memory)
    assert sd.run(opens_memory, 3).results == [Finding(not trouble, why)] * 3
    assert memory.closed == (2 if "lost" in trouble else 6)


def test_memory_of_another_node_is_not_opened(monkeypatch):
    monkeypatch.setattr(device_probe, "device_library", None)
    two = preset("this-machine").with_(devices_per_node=2)
    why = "the ranks are on 2 nodes, and device memory can be opened only on one"
    assert sd.run(opens_memory, 4, cluster=two).results == [Finding(False, why)] * 4


@pytest.mark.one_node
def test_a_machine_that_opens_no_memory(spmd, device, monkeypatch):
    if spmd.real and stands_in():
        monkeypatch.setenv("FAKE_CUDA_IPC", "0")
        monkeypatch.setattr(xp, "path", "staged")  # whatever path the tests are for
        for found in spmd(lambda comm: [opens_memory(comm).works, opens_memory(comm).why], 2):
            assert found[0] is False
            assert "CUDA cannot open memory of other processes here" in found[1]
    else:
        pytest.skip("memory is opened by other processes, and the stand-in alone can refuse it")
