"""The memory that collectives take beside the arrays they work on, as a ledger counts it."""

import pytest
from harness import xp as np

import simdist as sd
from simdist.arrays import Ledger, partition, recorded
from simdist.collectives import all_gather, all_reduce, reduce_scatter
from simdist.comm.peers import HEAD_BYTES, ROOM_BYTES

N, ITEM_BYTES = 1000, 8


def taken(comm, operation, algorithm):
    """The most bytes while it lasts, and what is left of them."""
    comm = comm.split(0, comm.rank)  # whose ranks have no memory in common yet
    x, ledger = np.zeros(N), Ledger(comm.clock)
    with recorded(ledger):
        if operation == "all_reduce":
            all_reduce(x, comm, algorithm=algorithm)
        elif operation == "reduce_scatter":
            reduce_scatter(x, comm, algorithm=algorithm)
        else:
            all_gather(x[: N // comm.size], comm, algorithm, out=x[: N // comm.size * comm.size])
    return ledger.peaks["communication"], ledger.now.of("communication")


ITEMS = {
    ("all_reduce", "ring"): lambda p: -(-N // p),
    ("all_reduce", "tree"): lambda p: N,
    ("all_reduce", "recursive_doubling"): lambda p: N,
    # Half of it; of three one is a guest, whose whole array its host folds.
    ("all_reduce", "rabenseifner"): lambda p: N if p == 3 else sum(partition(N, p).size(i) for i in range(p // 2)),
    ("all_reduce", "multi_ring"): lambda p: -(-N // p),
    ("all_reduce", "naive"): lambda p: p * N,
    ("reduce_scatter", "ring"): lambda p: -(-N // p),
    ("reduce_scatter", "pairwise"): lambda p: -(-N // p),
    ("all_gather", "ring"): lambda p: 0,
    ("all_gather", "bruck"): lambda p: N // p * p,
}


@pytest.mark.parametrize(("operation", "algorithm"), ITEMS)
@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_what_the_first_rank_takes(spmd, operation, algorithm, p):
    promised = ITEMS[operation, algorithm](p) * ITEM_BYTES
    assert spmd(taken, p, operation, algorithm)[0] == (promised, 0)


@pytest.mark.one_node
@pytest.mark.parametrize("p", [2, 4])
def test_in_memory_that_ranks_share_rooms_stay(spmd, p):
    rooms = HEAD_BYTES + 2 * ROOM_BYTES
    assert spmd(taken, p, "all_reduce", "direct") == [(rooms, rooms)] * p


@pytest.mark.parametrize(("operation", "algorithm"), ITEMS)
def test_who_is_alone_takes_nothing(operation, algorithm):
    assert sd.run(taken, 1, args=(operation, algorithm)).results == [(0, 0)]
