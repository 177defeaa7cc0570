"""What of a cut model is added up and counted, and that all ranks of a mesh step together or not at all."""

import numpy as np
import pytest
from mesh_training import BATCH, SHAPE, batch_of

from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Parameter, Parameters, gpt
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.holding import Holding
from simdist.parallel.parts import MeshParts
from simdist.parallel.precision import precision
from simdist.parallel.spread import Spread

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5}


@pytest.fixture
def parameters():
    return Parameters(Parameter(name, (n,)) for name, n in SIZES.items())


@pytest.mark.parametrize("names", [set(), {"b"}, {"a", "b"}, {"a", "c", "d"}, {"a", "b", "c", "d"}], ids=sorted)
def test_only_what_is_named_is_added_up(spmd, parameters, names):
    holdings = [Holding.of_all(14), Holding([slice(1, 4), slice(6, 6), slice(8, 11)], [4, 0, 3])]

    def program(comm, which):
        holding = holdings[which]
        gradient = np.full(holding.size, 10**comm.rank, np.int64)
        first = len(comm.recorder.rows)
        Spread(comm, comm, ((comm, frozenset(names)),)).complete(gradient, parameters, holding)
        calls = [span for span in comm.recorder.spans()[first:] if span.name.startswith("all_reduce")]
        return gradient, len(calls)

    owners = np.repeat(list(SIZES), list(SIZES.values()))
    for which, holding in enumerate(holdings):
        own = np.full(holding.size, -1)
        for stretch, place in zip(holding.stretches, holding.places, strict=True):
            own[place] = np.arange(14)[stretch]
        named = np.array([i >= 0 and owners[i] in names for i in own])
        for rank, (gradient, calls) in enumerate(spmd(program, 3, which)):
            used = own >= 0  # padding may be added up along with what lies around it
            np.testing.assert_array_equal(gradient[used], np.where(named, 111, 10**rank)[used])
            assert calls == named.any(), "one message of all instead of many small ones"


def test_a_parameter_counts_once_in_the_norm(parameters):
    spread = Spread(None, counted=lambda name: name in ("a", "b", "d"))
    parts = spread.own_parts(np.arange(14), parameters, Holding.of_all(14))
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5, 6], [9, 10, 11, 12, 13]]


@pytest.mark.parametrize(("sizes", "p"), [({"tp": 3}, 3), ({"dp": 2, "tp": 2}, 4)])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_of_all_ranks_that_make_up_a_model_each_item_is_counted_once(spmd, sizes, p, sequence_parallel):
    def program(comm):
        mesh = Mesh(comm, **sizes)
        parts = MeshParts(mesh, sequence_parallel=sequence_parallel)
        parameters, spread = gpt(SHAPE, parts).parameters, parts.spread()
        assert spread.model.size == mesh.sizes["tp"]
        assert spread.comm is comm
        return sum(p.size for p in parameters if spread.counted(p.name)), mesh.coordinates["dp"]

    whole = gpt(SHAPE).parameters.size
    found = spmd(program, p)
    for dp in range(sizes.get("dp", 1)):
        assert sum(counted for counted, at in found if at == dp) == whole


def test_a_rank_that_overflows_skips_the_step_of_the_whole_mesh(spmd):
    """Only one part of one copy of the model has an Inf, and all loss scales stay alike."""

    def program(comm):
        mesh = Mesh(comm, dp=2, tp=2)
        parts = MeshParts(mesh)
        model = gpt(SHAPE, parts)
        method = DataParallel(model, mesh.dp, Recipe("adamw", precision=precision("fp16")), 1, spread=parts.spread())
        changed = []
        for step in range(2):
            windows, noise = batch_of(mesh, step)
            method.backward(windows, 1 / (BATCH * SHAPE.context), noise)
            if step == 0 and comm.rank == 3:
                model.parameters.gradient[-1] = np.inf
            changed.append(method.step(0.01))
        return changed, method.update.scale

    found = spmd(program, 4)
    assert found == [([False, True], 2.0**15)] * 4


def test_rules_that_need_whole_matrices(spmd):
    def program(comm):
        parts = MeshParts(Mesh(comm, tp=2))
        model = gpt(SHAPE, parts)
        with pytest.raises(ArgumentError, match="lamb needs the whole model on each .* cut over 2 ranks"):
            DataParallel(model, parts.mesh.dp, Recipe("lamb"), 1, spread=parts.spread())
        with pytest.raises(ArgumentError, match="block0.qkv.w has shape .* of .*; Muon needs whole matrices"):
            DataParallel(model, parts.mesh.dp, Recipe("muon"), 1, spread=parts.spread())

    spmd(program, 2)
