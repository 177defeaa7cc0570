"""The verb `doctor`: what it says of this machine, and of machines that lack something."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from device import FAKE
from jobs import ROOT, job, needs_mpi

from simdist.cli import main
from simdist.comm.shared_room import SHARED, Room
from simdist.errors import DataError, WorldUnavailable
from simdist.launch import checkup

EVERYTHING = ["Python", "machine", "shared memory", "folders", "virtual ranks", "real ranks", "GPU", "algorithms"]


@pytest.fixture
def quick(monkeypatch):
    """Without jobs."""
    monkeypatch.setattr(checkup, "_real_ranks", lambda: checkup.Finding("not asked for"))
    monkeypatch.setattr(checkup, "_gpu", lambda: checkup.Finding("not asked for"))


def told(capsys, code):
    """The finding and the remedy of each subject."""
    assert main(["doctor"]) == code
    found, what = {}, ""
    for line in capsys.readouterr().out.splitlines():
        head, rest = line[:15].strip(), line[15:]
        assert len(line) <= 110
        what = head or what
        found.setdefault(what, []).append(rest)
    assert list(found) == EVERYTHING
    return {what: " ".join(lines) for what, lines in found.items()}


@needs_mpi
def test_all_is_well_here(monkeypatch, capsys):
    for limit in ("_LEAST_SHARED_BYTES", "_LEAST_DISK_BYTES"):  # this machine may have less
        monkeypatch.setattr(checkup, limit, 0)
    found = told(capsys, 0)
    for what, ranks in (("virtual ranks", 64), ("real ranks", 2)):
        assert found[what].startswith(f"{ranks} ranks, counted by messages and in shared memory, in ")
    assert "mpirun" in found["real ranks"] and "mpi4py" in found["real ranks"]
    assert "!" not in "".join(found.values())


@needs_mpi
@pytest.mark.skipif(shutil.which("g++") is None, reason="the device's stand-in needs g++ for its kernels")
def test_a_gpu_is_tried_out():
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(FAKE), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "simdist", "doctor"], capture_output=True, text=True, timeout=100, env=variables
    )
    assert not done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("GPU")]
    assert "2 ranks, counted by messages" in line
    assert "path ipc" in done.stdout


def test_without_mpi_all_the_rest_is_told(monkeypatch, capsys):
    def nothing():
        raise WorldUnavailable("no MPI is installed")

    monkeypatch.setattr(checkup, "find_mpirun", nothing)
    found = told(capsys, 1)
    assert found["real ranks"].split() == ["does", "not", "work", "!", "no", "MPI", "is", "installed"]
    assert found["virtual ranks"].startswith("64 ranks, counted by messages")


@pytest.mark.parametrize(
    ("name", "value", "what", "remedy"),
    [
        ("_count", lambda comm, device: ([comm.size, 1], ""), "virtual ranks", "count wrong"),
        ("all_reduce", lambda x, comm, algorithm: x.fill(len(algorithm)), "virtual ranks", "gave ([4, 6],"),
        ("_count", lambda comm, device: {}[0], "virtual ranks", "KeyError: 0"),
        ("room", lambda: Room(64e6, 64e6), "shared memory", "--shm-size"),
        ("shutil", SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=64e6)), "folders", "TMPDIR"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(quick, monkeypatch, capsys, name, value, what, remedy):
    if what == "shared memory" and not SHARED.is_dir():
        pytest.skip("this machine has none there")
    monkeypatch.setattr(checkup, name, value)
    found = told(capsys, 1)
    assert "!" in found[what] and remedy in found[what]


@pytest.mark.parametrize(("have", "words"), [(1.26e9, ", 1.3 GB of memory free"), (None, "")])
def test_memory_is_told_where_the_system_says_how_much(quick, monkeypatch, capsys, have, words):
    monkeypatch.setattr(checkup, "available_bytes", lambda: have)
    monkeypatch.setattr(checkup, "num_cores", lambda: 3)
    assert told(capsys, 0)["machine"].strip() == f"3 cores for this process{words}"


def test_a_table_that_cannot_be_read(quick, monkeypatch, capsys):
    def broken(path):
        raise DataError(f"{path} is no table")

    monkeypatch.setattr(checkup.Tuned, "load", broken)
    assert "is no table" in told(capsys, 1)["algorithms"]


@needs_mpi
def test_a_job_is_no_place_for_it():
    done = job(2, "-m", "simdist", "doctor")
    assert done.code == 2
    assert "doctor inside a job of mpirun" in done.output
