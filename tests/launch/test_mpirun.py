"""Launchers of all kinds, as far as they can be told apart without starting ranks."""

import sys
from pathlib import Path

import pytest

import simdist
from simdist.errors import WorldUnavailable
from simdist.launch.mpirun import Mpirun, find_mpirun

OPEN_MPI = "mpirun (Open MPI) 5.0.8\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
HYDRA = "HYDRA build details:\n    Version:                                 4.2.1\n    CC:   gcc\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)\nCopyright 2003-2023.\n"


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """launcher(folder, name, said): a program there that says this of itself; folder "python" is beside this Python."""
    for folder in ("python", "path"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")

    def make(folder, name, said=OPEN_MPI, to=1):
        file = tmp_path / folder / name
        file.write_text(f"#!/bin/sh\ncat >&{to} <<END\n{said}END\n", "latin-1")
        file.chmod(0o755)
        return file

    find_mpirun.cache_clear()
    yield make
    find_mpirun.cache_clear()


@pytest.mark.parametrize(
    ("said", "kind", "version"),
    [
        (OPEN_MPI, "openmpi", 5),
        ("mpirun (Open MPI) 4.1.2\n", "openmpi", 4),
        ("prterun (PRRTE) 3.0.11\n", "openmpi", 0),
        (HYDRA, "mpich", 4),
        (INTEL, "intel", 2021),
        ("a launcher of its own\n", "unknown", 0),
        ("un d\u00e9marreur (Open MPI) 5.0.8\n", "openmpi", 5),  # not in UTF-8
    ],
)
def test_what_it_says_of_itself_tells_its_kind(launcher, said, kind, version):
    for to in (1, 2):
        file = launcher("path", "mpirun", said, to)
        find_mpirun.cache_clear()
        assert find_mpirun() == Mpirun(file, kind, version)


def test_the_one_beside_this_python_comes_first(launcher):
    path = [launcher("path", name) for name in ("mpiexec", "mpirun")]
    assert find_mpirun().path == path[1]
    beside = [launcher("python", name) for name in ("mpiexec", "mpirun")]
    find_mpirun.cache_clear()
    assert find_mpirun().path == beside[1]
    beside[1].unlink()
    find_mpirun.cache_clear()
    assert find_mpirun().path == beside[0]


def test_one_that_does_not_run_is_told(launcher):
    launcher("path", "mpirun").write_text("#!/no/such/program\n")
    with pytest.raises(WorldUnavailable, match="path/mpirun does not run"):
        find_mpirun()


def test_the_command_has_what_its_kind_needs():
    assert Mpirun(Path("m"), "mpich", 4).command(3, ["a", "b"]) == ["m", "-launcher", "fork", "-n", "3", "a", "b"]
    shared = ["--oversubscribe", "--bind-to", "none", "-n", "2", "a"]
    assert Mpirun(Path("m"), "openmpi", 4).command(2, ["a"]) == ["m", *shared]
    assert Mpirun(Path("m"), "openmpi", 5).command(2, ["a"], survive=True) == ["m", "--with-ft", "ulfm", *shared]
    for kind, version in (("openmpi", 4), ("mpich", 5), ("intel", 2021), ("unknown", 0)):
        with pytest.raises(WorldUnavailable, match=f"Open MPI 5 or later: .*; m is {kind} {version}"):
            Mpirun(Path("m"), kind, version).command(2, ["a"], survive=True)


def test_its_environment_is_this_ones_without_the_job_around_it(monkeypatch, tmp_path):
    job = {"PMI_RANK": "1", "SLURM_JOB_ID": "7", "OMPI_COMM_WORLD_RANK": "1", "PE_HOSTFILE": "x"}
    for name, value in (job | {"MINE": "1", "OMPI_MCA_osc": "rdma", "PYTHONPATH": "/mine"}).items():
        monkeypatch.setenv(name, value)
    home = str(Path(simdist.__file__).parents[1])
    for kind in ("mpich", "openmpi"):
        found = Mpirun(Path("m"), kind).variables(2, tmp_path)
        assert not job.keys() & found.keys()
        assert (found["MINE"], found["OMPI_MCA_osc"]) == ("1", "rdma"), "what the user said stays"
        assert found["PYTHONPATH"].split(":")[-1] == "/mine"
        assert (home in found["PYTHONPATH"].split(":")) == ("-packages" not in home)
        places = {name: found.get(name) for name in ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_orte_tmpdir_base")}
        assert set(places.values()) == {str(tmp_path) if kind == "openmpi" else None}
        assert found.get("OMPI_MCA_mpi_yield_when_idle") == ("1" if kind == "openmpi" else None)


@pytest.mark.parametrize(("folder", "on_path"), [("site-packages", False), ("dist-packages", False), ("src", True)])
def test_ranks_are_told_where_simdist_is_unless_it_is_installed(monkeypatch, tmp_path, folder, on_path):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setattr(simdist, "__file__", f"/there/{folder}/simdist/__init__.py")
    found = Mpirun(Path("m"), "mpich").variables(2, tmp_path)
    assert found["PYTHONPATH"] == (f"/there/{folder}:/mine" if on_path else "/mine")
