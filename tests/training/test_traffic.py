"""What a report predicts of a step is what the record of one shows, for every method."""

from copy import deepcopy

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.collectives import algorithm, all_gather, all_reduce, formula, reduce_scatter, registry
from simdist.training import Config, Trainer, report
from simdist.training.traffic import Call, Scratch, calls, scratch

SMALL = {"model": "gpt", "layers": 1, "width": 8, "heads": 2, "context_bytes": 6, "steps": 3, "global_batch_size": 8}
METHODS = [
    {"bucket_bytes": 1000},
    {"method": "dp", "algorithm": "rabenseifner"},
    {"zero": 1},
    {"zero": 2, "precision": "fp16"},
    {"zero": 3, "precision": "bf16"},
    {"zero": 3, "shards": 2},
    {"zero": 3, "shards": 1, "offload": "gradients"},
    {"method": "server"},
    {"compress": "top-k"},
    {
        "compress": "top-k",
        "compress_share": 0.011,
        "precision": "float64",
    },  # packets of 12 bytes an item, an odd number
    {"compress": "8-bit"},
    {"compress": "power-sgd"},
]


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 4)
    return SMALL | {"data": str(tmp_path / "text"), "validation_windows": 4}


def reported(comm, settings):
    """Train; on rank 0 the rows of the report."""
    trainer = Trainer(comm, Config(**settings))
    line = [line for line in trainer.run() if line][-1]
    trace = trainer.trace()
    return trace and [tuple(row) for row in report(trainer, line, trace, comm.cluster).rows]


@pytest.mark.parametrize("method", METHODS, ids=lambda told: " ".join(map(str, told.values())))
@pytest.mark.parametrize("p", [2, 4])
def test_bytes_and_messages(spmd, settings, method, p):
    rows = spmd(reported, p, settings | method)[0]
    assert rows[0][1] == rows[0][2]
    assert rows[1][1] == rows[1][2]


def test_a_group_may_be_on_more_nodes_than_the_fewest():
    """Of ranks on nodes 0, 0, 1 and 2 the first two were taken for one node, and the last two for the other."""

    def program(comm):
        group = comm.split(0 if comm.rank % 3 == 0 else None)
        if group is None:
            return None
        all_reduce(np.ones(12), group, algorithm="hierarchical")
        call = Call("all_reduce", "hierarchical", 96, tuple(group.ranks), group.context)
        return call.cost(comm, 8)

    run = sd.run(program, 12, cluster=preset("a100").with_(devices_per_node=4))
    sent = [span.bytes for span in run.trace if span.rank == 0 and span.name == "send"]
    assert (len(sent), sum(sent)) == run.results[0][1:3]


def test_messages_of_ranks_with_nothing_left_are_counted(settings):
    """Of three micro-batches of two windows the last is empty, and so is what is added up of it over tp."""
    model = {"layers": 3, "tp": 2, "dp": 2, "micro_batches": 3, "global_batch_size": 4}

    rows = sd.run(reported, 4, args=(settings | model,), cluster=preset("a100").with_(devices_per_node=4)).results[0]
    assert rows[0][1] == rows[0][2]
    assert rows[1][1] == rows[1][2]


def test_calls_are_those_of_the_last_step(settings):
    def program(comm):
        trainer = Trainer(comm, Config(**settings | {"method": "dp", "algorithm": "ring"}))
        list(trainer.run())
        trace = trainer.trace()
        n = trainer.method.gradient.nbytes
        return trace and (dict(calls(trace)), [(call.cost(comm, 4), n) for call, n in calls(trace).items()], n)

    found, counted, n = sd.run(program, 3).results[0]
    assert [(call[:4], count) for call, count in found.items()] == [(("all_reduce", "ring", n, (0, 1, 2)), 1)]
    assert [(cost.messages, times) for cost, times in counted] == [(4, 1)]


def test_collectives_of_which_an_algorithm_is_made_are_not_counted_beside_it(settings, monkeypatch):
    monkeypatch.setattr(registry, "_ALGORITHMS", deepcopy(registry._ALGORITHMS))

    ring = registry.find("all_reduce", "ring")

    @algorithm("all_reduce", "halves", cost=ring.cost, formula=ring.formula)
    def halves(x, comm, op):
        x[...] = all_gather(reduce_scatter(x, comm, algorithm="ring"), comm, algorithm="ring")

    rows = sd.run(reported, 3, args=(settings | {"method": "dp", "algorithm": "halves"},)).results[0]
    assert rows[0][1] == rows[0][2]
    assert rows[1][1] == rows[1][2] == "4"
    assert rows[2][1] == rows[2][2]


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
@pytest.mark.parametrize("ranks", [8, 16])
def test_a_formula_takes_the_links_that_its_phases_cross(algorithm, ranks):
    cluster, n = preset("h100"), 1 << 30
    paper = formula("all_reduce", algorithm, ranks=ranks, num_bytes=n, ranks_per_node=8)
    found_s = Call("all_reduce", algorithm, n, tuple(range(ranks)), "world").seconds(paper, cluster)
    assert found_s == paper.on(cluster, ranks)
    share = n * (ranks - 1) / ranks
    slow = {"ring": 2 * share, "hierarchical": 2 * n / 8 / 2}[algorithm] if ranks > 8 else 0.0
    expected_s = slow / 50e9 + (2 * share - slow) / 450e9 + share * 3 / 3350e9
    assert found_s == pytest.approx(expected_s, rel=0.03)  # latencies


def test_without_a_record_there_is_nothing_to_predict_from(settings):
    rows = sd.run(reported, 2, args=(settings | {"trace_steps": 0, "algorithm": "ring"},)).results[0]
    assert [row[2:] for row in rows[:2]] == [("", "")] * 2
    assert rows[0][1] != "0"


@pytest.mark.parametrize(
    ("p", "method"),
    [
        (6, {"method": "dp", "algorithm": "hierarchical"}),  # on nodes of 4 and 2
        (8, {"method": "dp", "algorithm": "hierarchical"}),
        (8, {"tp": 2, "method": "dp", "algorithm": "ring"}),  # copies on two nodes, halves of each on one
        (6, {"compress": "power-sgd"}),
        (3, {"zero": 3, "precision": "fp16"}),  # shards of unequal length
        (4, {"compress": "8-bit"}),
    ],
    ids=str,
)
def test_on_the_nodes_where_its_ranks_are(settings, p, method):
    cluster = preset("h100").with_(devices_per_node=4)
    rows = sd.run(reported, p, args=(settings | method,), cluster=cluster).results[0]
    for row in rows[:3]:
        assert row[1] == row[2]


@pytest.mark.parametrize(("stream", "found"), [("main", 512), ("side", 512 + 128)])
def test_streams_take_memory_at_once_and_groups_on_one_in_turn(stream, found):
    """In a ring of two ranks half of an array comes in at a time. Between its calls the main stream takes 10 bytes."""
    step = [Call("all_reduce", "ring", 1024, (0, 1), "a"), Call("all_reduce", "ring", 256, (0, 1), "b", stream)]
    assert scratch(preset("h100"), (), step, 4, 10, "ring") == Scratch(0, found)
