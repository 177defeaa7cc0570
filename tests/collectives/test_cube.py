"""Who meets whom on the cube, and where guests sit."""

import pytest

from simdist.arrays import partition
from simdist.collectives.cube import Cube


def test_the_table_of_eight_places():
    met = [[Cube(8, r).rounds[k].partner for r in range(8)] for k in range(3)]
    assert met == [[1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [4, 5, 6, 7, 0, 1, 2, 3]]


def test_the_guests_of_six_ranks():
    cubes = [Cube(6, r) for r in range(6)]
    assert [cube.place for cube in cubes] == [0, 0, 1, 1, 2, 3]
    assert [cube.host for cube in cubes] == [0, 0, 2, 2, 4, 5]
    assert [cube.is_guest for cube in cubes] == [False, True, False, True, False, False]
    assert [cube.has_guest for cube in cubes] == [True, False, True, False, False, False]
    assert [len(cube.rounds) for cube in cubes] == [2, 0, 2, 0, 2, 2]


@pytest.mark.parametrize("p", range(1, 40))
def test_partners_agree_and_runs_grow_from_one_place_to_all(p):
    cubes = [Cube(p, r) for r in range(p)]
    for cube in cubes:
        if cube.is_guest:
            continue
        known = {cube.place}
        for k, (partner, mine, theirs) in enumerate(cube.rounds):
            assert cubes[partner].rounds[k] == (cube.host, theirs, mine)
            assert set(range(*mine)) == known
            known |= set(range(*theirs))
        assert known == set(range(cube.size))


@pytest.mark.parametrize("p", range(1, 40))
def test_the_runs_of_a_place_are_the_chunks_of_its_ranks(p):
    chunks = partition(3 * p + 2, p)
    cubes = [Cube(p, r) for r in range(p)]
    block = cubes[0].of_ranks(chunks)
    for cube in cubes:
        part = block(cube.place, cube.place + 1)
        assert (part.start, part.stop) == (chunks[cube.host].start, chunks[cube.guest].stop)
    assert block(0, cubes[0].size) == slice(0, 3 * p + 2)


@pytest.mark.parametrize("p", range(1, 40))
def test_the_widest_run_of_each_round_is_the_first(p):
    cubes = [Cube(p, r) for r in range(p)]
    chunks = list(partition(p, p))
    for k in range(len(cubes[0].rounds)):
        runs = [cube.of_ranks(chunks)(*cube.rounds[k].mine) for cube in cubes if cube.rounds]
        assert cubes[0].ranks_at(1 << k) == max(run.stop - run.start for run in runs)
