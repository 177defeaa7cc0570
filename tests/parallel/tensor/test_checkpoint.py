"""A checkpoint of a cut model is one of the whole model: any other mesh goes on from it, with the same bits."""

from pathlib import Path

import pytest
from checkpointing import shared
from harness import xp as np
from mesh_training import BATCH, ONE_LAYER, Whole, batch_of, exact, joined, parts_of

from simdist.collectives import all_reduce
from simdist.comm import Mesh
from simdist.nn import gpt
from simdist.parallel import DataParallel
from simdist.parallel.parts import MeshParts
from simdist.parallel.zero import ZeRO
from simdist.training.state import State, restore_state, save_state


def make(comm, sizes, zero_stage, seed, sequence_parallel=False):
    mesh = Mesh(comm, **sizes)
    parts = MeshParts(mesh, sequence_parallel=sequence_parallel) if comm.size > 1 else Whole(mesh)
    model, spread = gpt(ONE_LAYER, parts), parts.spread()
    if zero_stage:
        return mesh, ZeRO(model, mesh.dp, exact(), seed, zero_stage, spread=spread)
    return mesh, DataParallel(model, mesh.dp, exact(), seed, spread=spread)


def steps(mesh, method, numbers):
    for step in numbers:
        windows, noise = batch_of(mesh, step)
        method.backward(windows, 1 / (BATCH * ONE_LAYER.context), noise)
        method.step(0.01)


def vectors(mesh, method):
    """The weights and the optimizer's state of this rank, by prefix."""
    parameters, found = method.model.parameters, []
    for prefix, shards in method.vectors().items():
        flat = np.zeros(parameters.size)
        for start, data in shards:
            flat[start : start + len(data)] = data
        if isinstance(method, ZeRO):
            all_reduce(flat, mesh.dp)
        found += [(prefix + name, *rest) for name, *rest in parts_of(parameters, flat)]
    return found


def first(comm, sizes, zero_stage, folder):
    """Three steps, a checkpoint, three steps more: what there was at both times."""
    mesh, method = make(comm, sizes, zero_stage, 1)
    steps(mesh, method, range(3))
    save_state(Path(shared(comm, folder)), comm, 3, method, State({}, "text"), None)
    before = vectors(mesh, method)
    steps(mesh, method, range(3, 6))
    return before, vectors(mesh, method)


def then(comm, sizes, zero_stage, folder, sequence_parallel=False):
    """Goes on from the checkpoint, for three steps."""
    mesh, method = make(comm, sizes, zero_stage, 2, sequence_parallel)
    done, _ = restore_state(Path(shared(comm, folder)), comm, method)
    assert done == 3
    before = vectors(mesh, method)
    steps(mesh, method, range(3, 6))
    return before, vectors(mesh, method)


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_saved_at_dp2_tp2_loaded_anywhere(spmd, zero_stage, tmp_path):
    saved = spmd(first, 4, {"dp": 2, "tp": 2}, zero_stage, tmp_path)
    weights, after = (joined([found[i] for found in saved]) for i in (0, 1))
    for sizes, stage, sharded in (({}, 0, False), ({"tp": 4}, 0, True), ({"dp": 2, "tp": 2}, 3, False)):
        p = int(np.prod(list(sizes.values()) or [1]))
        found = spmd(then, p, sizes, stage, tmp_path, sharded)
        loaded, later = (joined([each[i] for each in found]) for i in (0, 1))
        assert loaded.keys() == weights.keys()
        for name, x in weights.items():
            np.testing.assert_array_equal(loaded[name], x, err_msg=name)
            np.testing.assert_allclose(later[name], after[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_first_weights_are_those_of_the_whole_model(spmd):
    def program(comm, sizes):
        mesh, method = make(comm, sizes, 0, 1)
        return vectors(mesh, method)

    [whole] = spmd(program, 1, {})
    parts = joined(spmd(program, 4, {"tp": 4}))
    for name, x in joined([whole]).items():
        np.testing.assert_array_equal(parts[name], x, err_msg=name)
