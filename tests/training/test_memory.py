"""What a run's ledger measures is what is predicted, whatever the method."""

import pytest

import simdist as sd
from simdist.arrays import CATEGORIES
from simdist.parallel.memory import memory_rows
from simdist.trace import memory
from simdist.training import Config, Trainer
from simdist.training.memory import predictions
from simdist.training.traffic import calls

GPT = {"model": "gpt", "layers": 2, "width": 16, "heads": 2, "context_bytes": 12, "global_batch_size": 13}
GPT |= {"steps": 8, "interval": 8, "validation_windows": 8, "precision": "bf16"}
METHODS = {
    "ddp": {},
    "micro-batches": {"micro_batches": 3, "recompute": "selective"},
    "server": {"method": "server"},
    "zero 1": {"zero": 1, "precision": "float64"},
    "zero 2": {"zero": 2, "bucket_bytes": 3000},
    "fsdp": {"zero": 3},
    "hybrid sharding": {"zero": 3, "shards": 2, "precision": "fp16"},
    "offload": {"zero": 2, "offload": "gradients"},
    "hybrid, offload": {"zero": 3, "shards": 1, "offload": "gradients", "micro_batches": 2},
    "8-bit": {"optimizer": "adamw8bit"},
    "tensor": {"tp": 2, "precision": "float32"},
    "ring": {"algorithm": "ring", "bucket_bytes": 3000},
    "llama": {"block": "llama", "kv_heads": 1, "zero": 3},
    "ring attention": {"sp": 2},
    "wide heads": {"sp": 2, "ulysses": True, "head_width": 16},
    "ring of narrow heads": {"sp": 2, "head_width": 2},
    "flash, ulysses": {"sp": 2, "ulysses": True, "flash_attention": True},
    "flash": {"flash_attention": True, "recompute": "selective"},
    "ring of shared heads": {"sp": 2, "kv_heads": 1, "precision": "float32"},
    "tree": {"method": "dp", "algorithm": "tree"},
    "zero 3, ring": {"zero": 3, "algorithm": "ring"},
    "map-reduce": {"method": "map-reduce"},
}


def rows(comm, settings):
    comm = comm.split(0, comm.rank)  # whose ranks have no memory in common yet
    trainer = Trainer(comm, Config(**settings))
    for _ in trainer.run():
        pass
    trace = trainer.trace()
    step = trace and calls(trace)
    found = memory_rows(trainer.ledger, predictions(trainer.method, trainer.config, trainer.data, step))
    inside = [start_s < end_s for start_s, end_s in trainer.remembered]
    return [tuple(row) for row in found], trainer.ledger.peak.at, len(inside), all(inside)


def test_a_pipelines_shards_are_of_its_own_buckets(text):
    """Of several layers each, whose remainders come together."""
    mesh = {"pp": 2, "dp": 3, "zero": 1, "micro_batches": 2, "optimizer": "sgd", "logits": "untied", "layers": 4}
    for found, *_ in sd.run(rows, 6, args=(GPT | {"data": text} | mesh,)).results:
        states = [row for row in found if row[0] == "optimizer state"]
        assert [measured for _, measured, _, _ in states] == [predicted for _, _, predicted, _ in states] != []


@pytest.mark.slow(but=6)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("p", [2, 4])
def test_measured_is_what_is_predicted(spmd, text, name, p):
    for rank, (found, at, remembered, took_time) in enumerate(spmd(rows, p, GPT | {"data": text} | METHODS[name])):
        for category, measured, predicted, _ in found:
            if category == "communication" and rank > 0:
                assert measured <= found[4][1]  # the record of all is with the first rank
            elif category == "communication" and spmd.num_nodes > 1:
                assert measured <= predicted  # as if what streams need for messages were needed at once
            elif category not in ("buffers", "all at once"):
                assert category in CATEGORIES
                assert measured == predicted, category
        assert at and remembered == 3 and took_time


def test_the_papers_16_bytes_a_weight_shared_by_the_ranks(spmd, text):
    for found, *_ in spmd(rows, 2, GPT | {"data": text, "zero": 3, "width": 32}):
        papers = {category: paper for category, _, _, paper in found}
        total = sum(papers[category] for category in ("parameters", "gradients", "optimizer state"))
        n = papers["parameters"] * 2 / 2  # of 2 bytes on each of 2 ranks
        assert total == 16 * n / 2


def test_of_another_model_nothing_is_said_of_activations(spmd, text):
    settings = {"data": text, "steps": 2, "hidden_width": 16, "validation_windows": 8}
    for found, *_ in spmd(rows, 2, settings):
        predicted = {category: number for category, _, number, _ in found}
        assert predicted["activations"] is None and predicted["parameters"] > 0


def test_a_long_run_remembers_its_first_and_last_steps(spmd, text):
    def program(comm):
        trainer = Trainer(comm, Config(**GPT | {"data": text, "steps": 12}))
        counts = [len(trainer.ledger.moments) for _ in trainer.run()]
        return [after - before for before, after in zip([0, *counts[:-1]], counts, strict=True)]

    for new in spmd(program, 1):
        assert all(new[:3]) and all(new[-3:])
        assert sum(new[3:9]) < min(new[:3])  # the freeing of what these held


def test_the_record_tells_what_memory_was_for_in_the_last_steps(spmd, text):
    def program(comm):
        trainer = Trainer(comm, Config(data=text, steps=4, hidden_width=16, validation_windows=8))
        list(trainer.run())
        start_s, end_s = trainer.remembered[0][0], trainer.remembered[-1][1]
        own = [list(m.live) for m in trainer.ledger.moments if start_s <= m.time_s <= end_s]
        trace = trainer.trace()
        return own, trace and {rank: [list(m.live) for m in told] for rank, told in memory.remembered(trace).items()}

    results = spmd(program, 2)
    found = {int(rank): told for rank, told in results[0][1].items()}  # as text it may have come
    assert found == {rank: own for rank, (own, _) in enumerate(results)}
    assert all(found.values())
