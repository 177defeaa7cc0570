"""Files of an MPI in /dev/shm: which of them a process has mapped."""

import mmap
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from simdist.comm import leftovers
from simdist.comm.leftovers import drop, files_of_start, shared_files, unused_files


@pytest.mark.parametrize(
    ("kind", "is_of_mpi"), [("mpich_shm_", True), ("mpich_shar_tmp", True), ("osc_rdma.", True), ("of_others_", False)]
)
def test_mapped_files_are_known_by_their_names(kind, is_of_mpi):
    path = f"/dev/shm/{kind}{uuid4().hex}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.truncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE):
            assert (path in shared_files()) == (path in shared_files(os.getpid())) == is_of_mpi
            drop([path])
            assert path not in shared_files()  # it lives on while it is mapped, but has no name
        drop([path])
    finally:
        os.close(descriptor)


def test_others_may_have_names_that_are_no_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.truncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE):
            assert os.fsdecode(path) not in shared_files()
    finally:
        os.close(descriptor)


def test_those_of_mpichs_start_are_known_by_their_names(monkeypatch):
    """Its shared memory, and a file that its launcher keeps open; what is opened by name later stays."""
    monkeypatch.setattr(leftovers, "shared_files", lambda: ["/dev/shm/mpich_shm_a", "/dev/shm/osc_b"])
    monkeypatch.setattr(os, "getppid", os.getpid)
    names = [f"/tmp/{kind}{uuid4().hex}" for kind in ("hydra_hwloc_xmlfile_", "of_others_")]
    opened = [os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600) for name in names]
    try:
        assert files_of_start() == ["/dev/shm/mpich_shm_a", names[0]]
    finally:
        drop(names)
        for descriptor in opened:
            os.close(descriptor)


def test_of_a_process_that_is_gone_there_are_none():
    assert shared_files(2**22 + 1) == []


def test_what_killed_ranks_leave_is_known_by_nobody_using_it():
    path = f"/dev/shm/mpich_shm_{uuid4().hex}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.truncate(descriptor, mmap.PAGESIZE)
        made_s = Path(path).stat().st_mtime
        other = subprocess.Popen(["sleep", "100"], pass_fds=[descriptor])
        memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        os.close(descriptor)
        assert path not in unused_files(made_s)  # mapped here
        memory.close()
        assert path not in unused_files(made_s)  # open there
        other.kill()
        other.wait()
        assert path not in unused_files(made_s + 1.0)  # older
        assert path in unused_files(made_s)
    finally:
        drop([path])
