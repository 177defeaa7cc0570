"""Prepared: the same array reduced again and again gives what it gave, and whatever has changed since is noticed."""

import numpy as np
import pytest
from harness import xp

from simdist.collectives import all_reduce
from simdist.collectives.perform import prepared
from simdist.errors import ArgumentError, ArrayError, CollectiveMismatch

N = 3000  # items, too many to be copied at once


def new(comm, value, dtype=np.int64, items=N):
    x = comm.empty(items, dtype)[:]
    x[...] = value
    return x


def is_prepared(comm, x, algorithm="direct", op="sum"):
    return prepared(comm, x, algorithm, op) is not None


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("algorithm", ["direct", "ring", "auto"])
@pytest.mark.parametrize("items", [1, 100, N])
def test_every_call_counts_each_rank_once(spmd, algorithm, p, items):
    def program(comm):
        x, found = new(comm, 0, items=items), []
        for k in range(4):
            x[...] = (k + 1) * 10**comm.rank
            all_reduce(x, comm, algorithm=algorithm)
            found.append((int(x.min()), int(x.max())))
        return found, is_prepared(comm, x)

    ones = int("1" * p)
    for found, known in spmd(program, p):
        assert found == [((k + 1) * ones, (k + 1) * ones) for k in range(4)]
        assert known == (algorithm == "direct" and p > 1 and xp.device == "cpu")


def test_what_is_recorded_is_what_was_recorded_the_first_time(spmd):
    def program(comm):
        x = new(comm, 1)
        for _ in range(3):
            all_reduce(x, comm, algorithm="direct")
        rows = [(row[2], row[5], row[8], row[10]) for row in comm.recorder.rows if row[2] != "compute"]
        return [rows[i * len(rows) // 3 : (i + 1) * len(rows) // 3] for i in range(3)]

    for first, second, third in spmd(program, 2, record=True):
        assert first == second == third
        assert {name for name, *_ in first} >= {"all_reduce direct"}


def test_each_operation_and_each_array_has_its_own(spmd):
    def program(comm):
        x, y = new(comm, 1), new(comm, 1)
        found = []
        for op in ("sum", "max", "prod", "sum"):
            x[...], y[...] = 2 + comm.rank, 3 + comm.rank
            all_reduce(x, comm, op, "direct")
            all_reduce(y, comm, op, "direct")
            found.append((int(x[0]), int(y[-1])))
        return found

    assert spmd(program, 2) == [[(5, 7), (3, 4), (6, 12), (5, 7)]] * 2


def test_an_array_in_the_place_of_one_that_is_no_more_is_another(spmd):
    def program(comm):
        found = []
        for k in range(40):
            x = new(comm, 10**comm.rank, (np.int64, np.float32, np.float64)[k % 3])[: N - k]
            for _ in range(2):
                x[...] = 10**comm.rank
                all_reduce(x, comm, algorithm="direct")
            found.append(float(x.min()) == float(x.max()) == 11)
            del x
        return found

    assert spmd(program, 2) == [[True] * 40] * 2


def test_one_rank_may_come_with_another_array(spmd):
    def program(comm):
        x, other = new(comm, 0), xp.zeros(N, np.int64)
        found = []
        for k in range(4):
            mine = other if k % 2 and comm.rank else x
            mine[...] = 10**comm.rank
            all_reduce(mine, comm, algorithm="direct")
            found.append((int(mine.min()), int(mine.max())))
        return found

    assert spmd(program, 2) == [[(11, 11)] * 4] * 2


def test_an_array_that_may_not_be_written_to_any_more_is_refused(spmd):
    def program(comm):
        x = np.zeros(N)[:]
        all_reduce(x, comm, algorithm="direct")
        x.flags.writeable = False
        with pytest.raises(ArrayError, match="read-only"):
            all_reduce(x, comm, algorithm="direct")

    spmd(program, 2)


@pytest.mark.filterwarnings("ignore:.*shape:DeprecationWarning")  # of NumPy 2.5
@pytest.mark.parametrize("items", [24, N])
def test_an_array_of_another_shape_is_reduced_as_one_row_all_the_same(spmd, items):
    def program(comm):
        x = new(comm, 0, items=items)
        for shape in ((items,), (items // 3, 3)):
            x.shape = shape
            x[...] = 10**comm.rank
            all_reduce(x, comm, algorithm="direct")
        return int(x.min()), int(x.max()), is_prepared(comm, x)

    assert spmd(program, 2) == [(11, 11, False)] * 2


def test_an_array_that_owns_its_memory_can_still_grow(spmd):
    def program(comm):
        x = np.ones(8)
        all_reduce(x, comm, algorithm="direct")
        x.resize(300_000, refcheck=False)
        x[...] = 10**comm.rank
        all_reduce(x, comm, algorithm="direct")
        return float(x.min()), float(x.max())

    assert spmd(program, 2) == [(11.0, 11.0)] * 2


def test_what_is_no_op_is_told_as_before(spmd):
    def program(comm):
        x = new(comm, 1)
        all_reduce(x, comm, algorithm="direct")
        with pytest.raises(ArgumentError, match="op must be a name"):
            all_reduce(x, comm, ["sum"], "direct")

    spmd(program, 2)


def test_ranks_that_ask_for_different_things_all_hear_of_it(spmd):
    def program(comm):
        x = new(comm, 1)
        for op in ("sum", "max"):
            all_reduce(x, comm, op, "direct")
        with pytest.raises(CollectiveMismatch) as caught:
            all_reduce(x, comm, ("sum", "max")[comm.rank], "direct")
        return str(caught.value)

    one, other = spmd(program, 2)
    assert one == other
    assert "op sum" in one and "op max" in one
