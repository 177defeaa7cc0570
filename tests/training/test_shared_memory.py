"""What collectives move through shared memory: on the record, by their costs, and beside what messages would send."""

import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.collectives import formula
from simdist.training import Config, Trainer, report
from simdist.training.shared_memory import shared_memory_bytes
from simdist.training.traffic import calls

SMALL = {"steps": 3, "global_batch_size": 8, "validation_windows": 4}


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 40)
    return SMALL | {"data": str(tmp_path / "text")}


def program(comm, settings):
    trainer = Trainer(comm, Config(**settings))
    line = [line for line in trainer.run() if line][-1]
    trace = trainer.trace()
    if trace is None:
        return None
    step = calls(trace)
    found = shared_memory_bytes(trace, step, comm, 4)
    told = report(trainer, line, trace, comm.cluster)
    rows = [tuple(row) for row in told.rows if row.quantity.startswith("bytes moved")]
    return None if found is None else tuple(found), [(tuple(call[:4]), n) for call, n in step.items()], rows


@pytest.mark.one_node
@pytest.mark.parametrize("method", [{"method": "dp"}, {"bucket_bytes": 1000}, {"zero": 2}, {"zero": 3}], ids=str)
@pytest.mark.parametrize("width", [4, 64])
def test_as_much_as_the_costs_say(spmd, settings, method, width):
    (measured, predicted, by_messages), step, rows = spmd(program, 2, settings | method | {"hidden_width": width})[0]
    assert measured == predicted > 0
    assert {call[1] for call, _ in step} == {"direct"}
    rivals = [formula(call[0], "ring", ranks=len(call[3]), num_bytes=call[2]).bytes * n for call, n in step]
    assert by_messages == pytest.approx(sum(rivals))
    assert [row[1:] for row in rows] == [(f"{measured:,}", f"{predicted:,}", f"by messages {by_messages:,.0f}")]


def test_each_takes_for_its_own_what_it_moved_itself(settings):
    """Of two that follow each other at one instant, where the first is posted and the second is not."""
    model = {"model": "gpt", "layers": 1, "width": 8, "heads": 4, "context_bytes": 8, "logits": "untied"}
    told = settings | model | {"bucket_bytes": 1000, "algorithm": "direct"}
    cluster = preset("a100").with_(devices_per_node=6)
    measured, predicted, _ = sd.run(program, 6, cluster=cluster, args=(told,)).results[0][0]
    assert measured == predicted > 0


@pytest.mark.parametrize("devices_per_node", [2, 3])
def test_over_several_nodes_too(settings, devices_per_node):
    cluster = preset("this-machine").with_(devices_per_node=devices_per_node)
    results = sd.run(program, 4, cluster=cluster, args=(settings | {"method": "dp"},)).results
    (measured, predicted, _), _, ((_, *row),) = results[0]
    assert measured == predicted > 0
    assert row[:2] == [f"{measured:,}", f"{predicted:,}"]


def test_nothing_where_messages_do_it(spmd, settings):
    assert spmd(program, 2, settings | {"algorithm": "ring"})[0][0] is None
