"""The mesh: who is whose neighbour along which axis."""

import re

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.comm import AXES, Mesh
from simdist.comm.virtual.world import run_virtual
from simdist.errors import ArgumentError, CollectiveMismatch


def run(program, ranks):
    return run_virtual(program, ranks, preset("this-machine"))[0]


def test_axes_are_those_of_numpys_reshape():
    sizes = {"pp": 2, "dp": 3, "tp": 2}
    grid = np.arange(12).reshape(2, 3, 1, 1, 2)

    def program(comm):
        mesh = Mesh(comm, **sizes)
        place = tuple(mesh.coordinates[axis] for axis in AXES)
        assert grid[place] == comm.rank
        for i, axis in enumerate(AXES):
            along = list(place)
            along[i] = slice(None)
            group = getattr(mesh, axis)
            assert list(group.ranks) == grid[tuple(along)].tolist()
            assert group.rank == mesh.coordinates[axis]
        plane = [slice(None) if axis in ("dp", "tp") else place[i] for i, axis in enumerate(AXES)]
        assert list(mesh.group("dp", "tp").ranks) == grid[tuple(plane)].ravel().tolist()

    run(program, 12)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"dp": 2, "tp": 3}, r"dp 2 x tp 3 = 6 ranks, but there are 4"),
        ({}, "1 = 1 ranks, but there are 4"),
        ({"dp": 4, "tp": 0}, "the size of axis tp is 0; needs at least 1"),
        ({"dp": 2.0, "tp": 2}, r"the size of axis dp is 2\.0; needs a whole number"),
        ({"dp": "4"}, "the size of axis dp is '4'"),
        ({"dp": 2, "cp": 2}, "unknown axis 'cp'"),
    ],
)
def test_a_wrong_mesh_is_refused_with_its_arithmetic(sizes, says):
    with pytest.raises(ArgumentError, match=says):
        run(lambda comm: Mesh(comm, **sizes), 4)


def test_a_mesh_that_one_rank_alone_cannot_have_is_refused_on_all(spmd):
    def program(comm):
        with pytest.raises(CollectiveMismatch, match=r"ranks 0, 2: mesh of tp 3\n +rank 1: mesh of tp 2"):
            Mesh(comm, tp=2 if comm.rank == 1 else 3)

    spmd(program, 3)


def test_meshes_in_other_words_are_the_same(spmd):
    def program(comm):
        return Mesh(comm, tp=3, dp=1).coordinates if comm.rank else Mesh(comm, tp=3).coordinates

    assert [found["tp"] for found in spmd(program, 3)] == [0, 1, 2]


def test_meshes_that_differ_are_refused_on_all_ranks(spmd):
    def program(comm):
        sizes = {"dp": 3, "tp": 1} if comm.rank == 1 else {"dp": 1, "tp": 3}
        with pytest.raises(CollectiveMismatch, match=r"ranks 0, 2: mesh of tp 3\n +rank 1: mesh of dp 3"):
            Mesh(comm, **sizes)

    spmd(program, 3)


def test_a_group_along_an_unknown_axis_is_refused():
    with pytest.raises(ArgumentError, match="unknown axis 'data'"):
        run(lambda comm: Mesh(comm, dp=2).group("data"), 2)


def test_what_is_printed_says_which_rank_it_is():
    def program(comm):
        mesh = Mesh(comm, dp=2, tp=2)
        return repr(comm), repr(mesh), repr(mesh.tp)

    run = sd.run(program, 4)
    comm, mesh, tp = run.results[3]
    assert (comm, mesh) == ("<rank 3 of 4 of 'world'>", "<mesh of dp 2 x tp 2, rank 3>")
    assert tp.startswith("<rank 1 of 2 of 'world")
    assert re.fullmatch(r"<trace of 4 ranks: \d+ spans?>", repr(run.trace))
    assert repr(sd.run(lambda comm: None, 1).trace) == "<trace of 1 rank: 0 spans>"
