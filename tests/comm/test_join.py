"""Joining a job: what is set before MPI starts, what rank 0 reads for all, and how ranks meet at the end."""

import faulthandler
import os
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
from jobs import ROOT, needs_mpi

import simdist as sd
from simdist.cluster import Tuned
from simdist.cluster.tuned import Pick
from simdist.comm import join as module
from simdist.comm.join import _deadline, _finalize, _meeting, _tuned, choose_netmod, join
from simdist.errors import WorldUnavailable

WHEEL = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ucx ofi\nMPICH CC:           cc\n"
TWO_NODES = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("variables", "library", "chosen"),
    [
        (TWO_NODES, WHEEL, "ofi"),
        (TWO_NODES | {"MPI_LOCALNRANKS": "4"}, WHEEL, None),  # one node, perhaps without a network
        ({}, WHEEL, None),
        (TWO_NODES | {"MPICH_CH4_NETMOD": "ucx"}, WHEEL, "ucx"),
        (TWO_NODES | {"MPIR_CVAR_CH4_NETMOD": "ucx"}, WHEEL, None),
        (TWO_NODES, WHEEL.replace("ucx ofi", "ofi"), None),
        (TWO_NODES, WHEEL.replace("ucx ofi", "ucx"), None),
        (TWO_NODES, "Open MPI v5.0.11, with ucx and ofi", None),
    ],
)
def test_on_several_nodes_mpich_goes_by_ofi_unless_told_otherwise(variables, library, chosen):
    environment = dict(variables)
    choose_netmod(environment, library)
    assert environment.pop("MPICH_CH4_NETMOD", None) == chosen
    assert environment == {name: value for name, value in variables.items() if name != "MPICH_CH4_NETMOD"}


def test_a_launcher_and_a_library_of_two_mpis_are_told(monkeypatch):
    world = SimpleNamespace(Abort=None, Dup=lambda: SimpleNamespace(Get_size=lambda: 1))
    version = "MPICH Version: 5.0.2 \0\nMPICH Device: ch4"
    mpi = SimpleNamespace(Is_initialized=lambda: True, Get_library_version=lambda: version, COMM_WORLD=world)
    monkeypatch.setattr(module, "MPI", mpi)
    told = (
        r"launcher says that there are 4 ranks, the MPI library \(MPICH Version: 5.0.2\) sees 1: start the job with the"
    )
    with pytest.raises(WorldUnavailable, match=told):
        join(SimpleNamespace(watchdog=SimpleNamespace(size=4)))


WITHOUT_MPI = """
import sys
sys.modules["mpi4py"] = None
import simdist as sd
from simdist.comm.guard import guard
try:
    sd.world()
except sd.errors.WorldUnavailable as error:
    print(guard().watchdog.lines[0].waiting, error)
"""


def test_a_program_without_a_world_may_go_on_without_a_deadline():
    place = {"PMI_RANK": "0", "PMI_SIZE": "1", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", WITHOUT_MPI]
    done = subprocess.run(words, env=os.environ | place, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("None there is no MPI library to be found"), done


@pytest.mark.parametrize("error", [None, ValueError])
def test_a_start_of_mpi_that_takes_too_long_is_ended_with_a_stack(monkeypatch, error):
    calls, files = [], []

    def dump_later(timeout_s, exit, file):
        files.append(file)
        calls.append((timeout_s, exit, os.path.sameopenfile(file, 2)))

    monkeypatch.setattr(faulthandler, "dump_traceback_later", dump_later)
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: calls.append("cancel"))
    with suppress(ValueError), _deadline(30.0):
        calls.append("MPI")
        if error:
            raise error
    assert calls == [(30.0, True, True), "MPI", "cancel"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(files[0])
    calls.clear()
    with _deadline(float("inf")):
        calls.append("MPI")
    assert calls == ["MPI", "cancel"]


def test_ranks_meet_at_a_barrier():
    guard, begun, over = SimpleNamespace(watchdog=SimpleNamespace(survives=False)), [], []

    def barrier():
        begun.append("barrier")
        return SimpleNamespace(Test=lambda: bool(over))

    ended = _meeting(SimpleNamespace(Ibarrier=barrier), guard)
    assert begun == ["barrier"] and not ended()
    over.append("all have come")
    assert ended() and begun == ["barrier"]


@pytest.mark.parametrize("living", [2, 3])
def test_where_a_rank_has_died_mpi_is_not_ended(living):
    guard = SimpleNamespace(watchdog=SimpleNamespace(survives=True), finalize=print)
    alive = SimpleNamespace(Get_size=lambda: living)
    ended = _meeting(SimpleNamespace(Shrink=lambda: alive, Get_size=lambda: 3), guard)
    assert guard.finalize is print
    assert ended() and guard.finalize is (print if living == 3 else None)


@pytest.mark.parametrize("already", [False, True])
def test_mpi_is_ended_once_though_the_program_may_have_ended_it(monkeypatch, already):
    calls = []
    monkeypatch.setattr(
        module, "MPI", SimpleNamespace(Is_finalized=lambda: already, Finalize=lambda: calls.append("end"))
    )
    _finalize()
    assert calls == ["end"] * (not already)


def test_a_spoiled_table_in_a_folder_whose_name_is_no_text_is_told(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caf\udce9"))
    Tuned.path().parent.mkdir(parents=True)
    Tuned.path().write_text("spoiled")
    assert _tuned(SimpleNamespace(Get_rank=lambda: 0, Bcast=lambda _: None)) is None
    assert "caf\\udce9" in capfd.readouterr().err


@needs_mpi
def test_all_ranks_go_by_the_table_that_rank_0_reads_or_by_none(tmp_path, monkeypatch, capsys):
    def picks(comm):
        return comm.cluster.tuned and dict(comm.cluster.tuned.picks)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sd.run(picks, 2, world="mpi").results == [None] * 2
    table = {("all_reduce", 2): (Pick(2048, "ring", "tree"), Pick(4096, "naive", "ring"))}
    Tuned(table).save(Tuned.path())
    assert sd.run(picks, 2, world="mpi").results == [table] * 2
    assert capsys.readouterr().err == ""
    Tuned.path().write_text("spoiled")
    assert sd.run(picks, 2, world="mpi").results == [None] * 2
    told = capsys.readouterr().err
    assert told.count("is no table of `simdist bench --tune`") == 1
    assert told.endswith("; until then `auto` goes by the model\n")
