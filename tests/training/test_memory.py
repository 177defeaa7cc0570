"""What a run's ledger measures is what is predicted, whatever the method."""

import pytest

from simdist.arrays import CATEGORIES
from simdist.parallel.memory import memory_rows
from simdist.training import Config, Trainer
from simdist.training.memory import predictions

GPT = {"model": "gpt", "layers": 2, "width": 16, "heads": 2, "context_bytes": 12, "global_batch_size": 13}
GPT |= {"steps": 8, "interval": 8, "validation_windows": 8, "precision": "bf16"}
METHODS = {
    "ddp": {},
    "micro-batches": {"micro_batches": 3, "recompute": "selective"},
    "server": {"method": "server"},
    "zero 1": {"zero": 1, "precision": "float64"},
    "zero 2": {"zero": 2, "bucket_bytes": 3000},
    "fsdp": {"zero": 3},
    "offload": {"zero": 2, "offload": "gradients"},
    "8-bit": {"optimizer": "adamw8bit"},
    "tensor": {"tp": 2, "precision": "float32"},
}


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(b"the quick brown fox jumps over the lazy dog; " * 60)
    return str(tmp_path / "text")


def rows(comm, settings):
    trainer = Trainer(comm, Config(**settings))
    for _ in trainer.run():
        pass
    found = memory_rows(trainer.ledger, predictions(trainer.method, trainer.config, trainer.data))
    inside = [start_s < end_s for start_s, end_s in trainer.remembered]
    return [tuple(row) for row in found], trainer.ledger.peak.at, len(inside), all(inside)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("p", [2, 4])
def test_measured_is_what_is_predicted(spmd, text, name, p):
    for found, at, remembered, took_time in spmd(rows, p, GPT | {"data": text} | METHODS[name]):
        for category, measured, predicted, _ in found:
            if category not in ("buffers", "all at once"):
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
        assert not any(new[4:9])
