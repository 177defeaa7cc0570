"""Numbers of 16 bits through every algorithm: they travel as they are, and each addition rounds."""

import ml_dtypes
import pytest
from harness import xp as np
from oracle import every_algorithm, outgoing

from simdist.collectives import algorithms, all_gather, all_reduce, broadcast, reduce, reduce_scatter

SHORT = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
every_dtype = pytest.mark.parametrize("dtype", SHORT, ids=str)


@every_dtype
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_small_whole_numbers_are_summed_exactly_by_every_algorithm(spmd, dtype, p):
    def program(comm):
        found = []
        for name in algorithms("all_reduce"):
            x = comm.empty(37, dtype)
            x[...] = np.arange(37) % 5 + comm.rank
            all_reduce(x, comm, algorithm=name)
            found.append(x.astype(np.float64))
        return np.stack(found)

    expected = np.arange(37) % 5 * p + sum(range(p))
    for found in spmd(program, p):
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


@every_dtype
def test_the_other_operations_know_them_too(spmd, dtype):
    def program(comm):
        x = np.arange(10).astype(dtype)
        shard = reduce_scatter(x, comm)
        whole, told, top = all_gather(shard, comm), np.full(3, comm.rank + 5, dtype), np.full(2, comm.rank, dtype)
        broadcast(told, comm)
        all_reduce(top, comm, "max")
        reduce(x, comm, 1, "prod")
        same = all(a.dtype == dtype for a in (shard, whole, told, top, x))
        return [same, whole.astype(int).tolist(), told.astype(int).tolist(), top.astype(int).tolist()]

    for same, whole, told, top in spmd(program, 3):
        assert same
        assert whole == [3 * i for i in range(10)]
        assert told == [5] * 3
        assert top == [2] * 2


@every_dtype
@pytest.mark.parametrize("p", [2, 3, 4])
def test_each_addition_rounds(spmd, dtype, p):
    def program(comm):
        x = np.random.default_rng(comm.rank).normal(size=200).astype(dtype)
        mine = x.astype(np.float64)
        all_reduce(x, comm, algorithm="ring")
        return np.stack([x.astype(np.float64), mine])

    found = np.array(spmd(program, p))
    sizes = np.abs(found[:, 1]).sum(axis=0)
    limit = (p - 1) * float(ml_dtypes.finfo(dtype).eps) / 2 * sizes
    assert (np.abs(found[0, 0] - found[:, 1].sum(axis=0)) <= limit).all()
    np.testing.assert_array_equal(found[:, 0], np.broadcast_to(found[0, 0], found[:, 0].shape))


@pytest.mark.parametrize(("operation", "name"), every_algorithm(["all_reduce"]))
def test_a_message_has_two_bytes_an_item(spmd, operation, name):
    def program(comm):
        rows = {}
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
            first = len(comm.recorder.rows)
            all_reduce(np.zeros(64, dtype), comm, algorithm=name)
            rows[np.dtype(dtype).name] = sum(outgoing(comm.recorder.spans()[first:]))
        return [rows[key] for key in ("float16", "bfloat16", "float32")]

    for half, brain, single in spmd(program, 4):
        assert half == brain == single / 2 > 0
