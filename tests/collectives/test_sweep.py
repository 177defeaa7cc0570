"""Every algorithm of every collective, against NumPy and against its own cost, on any number of ranks.

Each trial checks three things (see simdist/bench/trial.py): the result, the messages and bytes on the record, and the
bytes reduced. On real ranks a fourth: the bits are those of the virtual world.
"""

import pytest
from harness import placed
from harness import xp as np
from oracle import DTYPES, OPERATIONS, OPS, every_algorithm, hold

import simdist as sd
from simdist.bench.trial import REDUCING, ROOTED, Trial
from simdist.cluster import preset
from simdist.collectives import algorithms, all_reduce

RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16)


def lengths(p):
    """None, one, around p, no multiple of p, a multiple of p."""
    return sorted({0, 1, p - 1, p, p + 1, 3 * p + 2, 4 * p})


def same_bits(spmd, p, trials):
    """Hold the ranks to the trials; what an all_reduce or a broadcast gives must be the same bits on all ranks."""
    trials = [tuple(trial) for trial in trials]
    prints = spmd(hold, p, trials)
    for i, trial in enumerate(trials):
        if trial[0] in ("all_reduce", "all_gather", "broadcast"):
            assert len({prints[rank][i] for rank in range(p)}) == 1, f"ranks differ in {trial}"
    if spmd.real:
        cluster = preset("this-machine").with_(devices_per_node=spmd.world.nodes.most)
        virtual = sd.run(placed(hold), p, cluster=cluster, args=(trials,)).results
        assert prints == virtual, "the virtual world gives other bits"


@pytest.mark.slow(but=49)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), every_algorithm())
def test_every_length_and_root(spmd, operation, name, p):
    roots = range(p) if operation in ROOTED else (0,)
    same_bits(spmd, p, [Trial(operation, name, n, "int64", root=root) for n in lengths(p) for root in roots])


@pytest.mark.slow(but=8)
@pytest.mark.parametrize("p", [1, 3, 4])
@pytest.mark.parametrize(("operation", "name"), every_algorithm(REDUCING))
def test_every_dtype_and_op(spmd, operation, name, p):
    root = p - 1 if operation in ROOTED else 0
    same_bits(spmd, p, [Trial(operation, name, 2 * p + 1, dtype, op, root) for dtype in DTYPES for op in OPS])


@pytest.mark.parametrize("p", [3, 4])
@pytest.mark.parametrize(("operation", "name"), every_algorithm([each for each in OPERATIONS if each not in REDUCING]))
def test_every_dtype(spmd, operation, name, p):
    root = p - 1 if operation in ROOTED else 0
    same_bits(spmd, p, [Trial(operation, name, 2 * p + 1, dtype, root=root) for dtype in DTYPES])


@pytest.mark.slow
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("operation", "name"), every_algorithm())
def test_the_full_product(spmd, operation, name, p):
    ops = OPS if operation in REDUCING else ("sum",)
    roots = sorted({0, p // 2, p - 1}) if operation in ROOTED else (0,)
    sizes = [*lengths(p), 257]
    trials = [Trial(operation, name, *rest) for rest in _product(sizes, DTYPES, ops, roots)]
    same_bits(spmd, p, trials)


def _product(sizes, dtypes, ops, roots):
    return [(n, dtype, op, root) for n in sizes for dtype in dtypes for op in ops for root in roots]


@pytest.mark.parametrize("name", algorithms("all_reduce"))
@pytest.mark.parametrize("p", RANKS)
def test_each_rank_counts_once(spmd, name, p):
    """Rank r gives 10**r: digit r of the sum counts how often its contribution came in."""

    def program(comm):
        x = np.full(2 * p + 1, 10**comm.rank)
        all_reduce(x, comm, algorithm=name)
        return x

    for x in spmd(program, p):
        assert x.tolist() == [int("1" * p)] * (2 * p + 1)


@pytest.mark.slow(but=16)
@pytest.mark.parametrize("name", algorithms("all_reduce"))
@pytest.mark.parametrize("devices_per_node", [2, 3, 4])
@pytest.mark.parametrize("p", [4, 6, 8, 12])
def test_on_several_nodes(name, devices_per_node, p):
    cluster = preset("a100").with_(devices_per_node=devices_per_node)
    trials = [Trial("all_reduce", name, n, "int64") for n in (*lengths(p), 10_000)]
    sd.run(hold, p, args=(trials,), cluster=cluster)


@pytest.mark.parametrize(("operation", "name"), every_algorithm())
def test_messages_too_long_to_leave_at_once(operation, name):
    """With no eager messages every send waits for its receive, as large ones do under MPI."""
    rendezvous = preset("this-machine").with_(eager_bytes=0)
    sd.run(hold, 5, args=([Trial(operation, name, 23)],), cluster=rendezvous)
    sd.run(hold, 4, args=([Trial(operation, name, 23)],), cluster=rendezvous)
