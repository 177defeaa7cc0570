import sys
from functools import partial

import numpy as np
import pytest
from jobs import executed
from oracle import every_algorithm, outcomes
from tqdm import tqdm

from simdist.bench import trial, verify
from simdist.bench.trial import Trial, contribution, expected
from simdist.cluster import preset
from simdist.collectives import algorithms, cost, registry
from simdist.collectives.registry import Algorithm, find
from simdist.errors import ArgumentError
from simdist.launch import run

simdist_verify = partial(executed, verify)


def test_every_algorithm_has_its_line_and_all_are_right(capsys):
    assert simdist_verify("--max-ranks", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    for operation in verify.OPERATIONS:
        for name in algorithms(operation):
            found = [line.split() for line in lines if line.split()[:2] == [operation, name]]
            assert [words[2] for words in found] == ["1", "2", "3"]
            assert all(words[-1] == "✓" for words in found)
            assert all(words[4] == words[5].strip("()") for words in found)  # messages
            assert all(words[6] == words[7].strip("()") for words in found)  # bytes


def test_of_one_operation_some_algorithms_on_some_numbers_of_ranks(capsys):
    assert simdist_verify("broadcast", "--algorithms", "Chain", "binomial", "--ranks", "5", "2") == 0
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert lines[1:-1] == [["broadcast", name, p] for p in "52" for name in ("chain", "binomial")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--algorithms", "ring"], "--algorithms ring: needs the operation"),
        (["all_reduce", "--algorithms", "rign"], "unknown all_reduce algorithm 'rign'; did you mean 'ring'"),
        (["all_redcue"], "unknown collective with a result 'all_redcue'; did you mean 'all_reduce'"),
        (["all_reduce", "--ranks", "2", "0"], r"--ranks is \[2, 0\]; needs at least 1"),
        (["--ranks-per-node", "-1"], "--ranks-per-node is -1; needs at least 0"),
        (["--ranks-per-node", "2", "--world", "mpi"], "--ranks-per-node 2 is for virtual ranks"),
    ],
)
def test_refuses_what_there_is_not(words, told):
    with pytest.raises(ArgumentError, match=told):
        simdist_verify(*words)


def test_takes_one_of_two_ways_to_say_how_many_ranks(capsys):
    with pytest.raises(SystemExit, match="2"):
        simdist_verify("broadcast", "--max-ranks", "3", "--ranks", "2")
    assert "argument --ranks: not allowed with argument --max-ranks" in capsys.readouterr().err


def lose_a_contribution(x, comm, op, right):
    if comm.rank == 1:
        x[:] = 0
    right(x, comm, op)


def send_too_much(x, comm, op, right):
    comm.barrier()
    right(x, comm, op)


def reduce_too_much(x, comm, op, right):
    if comm.size > 1:
        op(x.copy(), x)
    right(x, comm, op)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lose_a_contribution, "✗ result (length 1, float64, sum, rank 0)"),
        (send_too_much, "✗ traffic, messages (length 0, float64, sum, rank 0)"),
        (reduce_too_much, "✗ traffic, reduced_bytes (length 1, float64, sum, rank 0)"),
    ],
)
def test_a_fault_is_told_and_makes_the_exit_code(fault, told, capsys, monkeypatch):
    good = find("all_reduce", "ring")

    def wrong(x, comm, op):
        fault(x, comm, op, good.run)

    bad = Algorithm(good.operation, good.name, wrong, good.cost, good.formula)
    monkeypatch.setitem(registry._ALGORITHMS["all_reduce"], "ring", bad)
    assert simdist_verify("all_reduce", "--max-ranks", "2") == 1
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if told in line]
    assert line.split()[:3] == ["all_reduce", "ring", "2"]
    assert "1 of " in out.splitlines()[-1]


def test_a_fault_between_nodes_is_found_on_several(capsys, monkeypatch):
    good = find("all_reduce", "ring")

    def wrong(x, comm, op):
        if comm.num_nodes > 1 and comm.rank == 1:
            x[:] = 0
        good.run(x, comm, op)

    bad = Algorithm(good.operation, good.name, wrong, good.cost, good.formula)
    monkeypatch.setitem(registry._ALGORITHMS["all_reduce"], "ring", bad)
    words = "all_reduce", "--algorithms", "ring", "naive", "--ranks", "4"
    assert simdist_verify(*words) == 0
    assert "lines with a fault: none of 2;" in capsys.readouterr().out
    assert simdist_verify(*words, "--ranks-per-node", "2") == 1
    assert "lines with a fault: 1 of 2;" in capsys.readouterr().out


def test_a_message_too_many_that_a_later_trial_receives_is_told_with_the_trial_that_sent_it(capsys, monkeypatch):
    good = find("all_reduce", "ring")

    def wrong(x, comm, op):
        comm.isend(x[:0], (comm.rank + 1) % comm.size)
        good.run(x, comm, op)

    bad = Algorithm(good.operation, good.name, wrong, good.cost, good.formula)
    monkeypatch.setitem(registry._ALGORITHMS["all_reduce"], "ring", bad)
    assert simdist_verify("all_reduce", "--algorithms", "ring", "--ranks", "2") == 1
    out = capsys.readouterr().out
    assert "(length 0, float32, prod; traffic was wrong in length 0, float64, sum; " in out
    assert f"; {__file__}, line {wrong.__code__.co_firstlineno + 2})" in out


def test_refuses_no_ranks():
    with pytest.raises(ArgumentError, match="--max-ranks is 0; needs at least 1"):
        simdist_verify("--max-ranks", "0")


@pytest.mark.parametrize("operation", verify.OPERATIONS)
def test_what_ranks_get_by_numpy(operation):
    """The oracle itself, on a case small enough to write down: ranks 0, 1, 2 and rows of their contributions."""
    p, n = 3, 4
    trial = Trial(operation, "auto", n, "int64", "max", root=1)
    puts = [contribution(trial, p, rank) for rank in range(p)]
    got = [expected(trial, p, rank) for rank in range(p)]
    cuts = [slice(0, 2), slice(2, 3), slice(3, 4)]
    match operation:
        case "all_reduce" | "reduce" | "reduce_scatter":
            whole = np.max(puts, axis=0)
        case "all_gather" | "gather":
            whole = np.concatenate([x[cut] for x, cut in zip(puts, cuts, strict=True)])
        case "broadcast" | "scatter":
            whole = puts[1]
        case _:
            whole = np.swapaxes(puts, 0, 1)
    for rank in range(p):
        if operation in ("reduce", "gather") and rank != 1:
            assert got[rank] is None
        elif operation in ("reduce_scatter", "scatter"):
            assert np.array_equal(got[rank], whole[cuts[rank]])
        else:
            assert np.array_equal(got[rank], whole[rank] if operation == "all_to_all" else whole)


def test_an_outcome_sees_every_kind_of_fault():
    (good,) = run(outcomes, 2, args=([("all_reduce", "ring", 5)],)).results[0]
    assert good.good
    assert not good._replace(error=1.0).good
    assert not good._replace(counted=good.counted._replace(sent_bytes=0)).good
    assert not good._replace(counted=good.counted._replace(reduced_bytes=0)).good


def in_turn(comm, trials):
    """The outcomes of ranks that take turns on two nodes, as some MPIs place them by default."""
    group = comm.split(0, comm.rank % 2 * comm.size + comm.rank)
    assert group.num_nodes == 2 and not group.nodes.in_turn
    return outcomes(group, trials)


@pytest.mark.parametrize("p", [3, 4, 6])
def test_ranks_may_take_turns_on_nodes(p):
    cluster = preset("this-machine").with_(devices_per_node=-(-p // 2))
    trials = [(*each, n) for each in every_algorithm() for n in (0, 1, 2 * p + 1)]
    for rank in run(in_turn, p, cluster=cluster, args=(trials,)).results:
        assert all(outcome.good for outcome in rank)


def unequal(comm, trials, members):
    """The outcomes of some of the ranks, as a file of unequal hosts places them."""
    group = comm.split(0 if comm.rank in members else None)
    return [] if group is None else outcomes(group, trials)


@pytest.mark.parametrize("members", [(2, 3, 4, 5), (0, 3, 4, 6)], ids=["1 and 3", "1, 2 and 1"])
def test_nodes_may_have_unequal_numbers_of_ranks(members):
    """Costs are of ranks that fill one node after the other: what nodes matter to was called wrong."""
    cluster = preset("this-machine").with_(devices_per_node=3, eager_bytes=0)
    trials = [(*each, n) for each in every_algorithm() for n in (0, 1, 9)]
    found = run(unequal, 9, cluster=cluster, args=(trials, members)).results
    assert all(outcome.good for rank in found for outcome in rank) and sum(map(bool, found)) == 4


def test_where_nodes_do_not_matter_costs_are_compared_then_too(monkeypatch):
    """Those of `hierarchical` are for consecutive ranks."""
    monkeypatch.setattr(trial, "cost", lambda *args, **more: cost(*args, **more)._replace(messages=99))
    trials = [("all_reduce", name, 5) for name in ("ring", "hierarchical")]
    cluster = preset("this-machine").with_(devices_per_node=2)
    for ring, hierarchical in run(in_turn, 4, cluster=cluster, args=(trials,)).results:
        assert hierarchical.good and not ring.good


def test_products_of_many_ranks_are_numbers():
    """Of 1,000 ranks they were infinite, with a warning and with nothing left to compare."""
    made = Trial("all_reduce", "ring", 9, "float16", "prod")
    product = np.prod([contribution(made, 1000, rank) for rank in range(1000)], axis=0, dtype=np.float16)
    assert np.isfinite(product).all()
    assert product.all()


def test_on_a_terminal_a_bar_counts_the_trials(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(verify, "tqdm", lambda **options: tqdm(**options | {"delay": 0, "mininterval": 0}))
    assert simdist_verify("broadcast", "--algorithms", "chain", "--ranks", "3") == 0
    out, err = capsys.readouterr()
    assert "broadcast chain, 3 ranks:  92%" in err
    assert "ranks:" not in out
