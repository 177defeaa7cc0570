"""Joining a job: what is set before MPI starts, and what rank 0 reads for all."""

import pytest
from jobs import needs_mpi

import simdist as sd
from simdist.cluster import Tuned
from simdist.cluster.tuned import Pick
from simdist.comm.join import choose_netmod

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
