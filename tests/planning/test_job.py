"""What a job says of a run that nobody has made, against the record of the run."""

from collections import Counter
from dataclasses import replace

import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.planning import Workbench
from simdist.planning.job import Job
from simdist.training import Config, Trainer
from simdist.training.traffic import calls

GPT = {"model": "gpt", "layers": 3, "width": 40, "heads": 4, "context_bytes": 16, "vocabulary": 257}
GPT |= {"global_batch_size": 12, "device": "phantom", "clip_norm": 0.0}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bucket_bytes": 1},
        {"bucket_bytes": 70_001},
        {"method": "dp"},
        {"optimizer": "adamw8bit", "bucket_bytes": 1},
        {"zero": 1},
        {"zero": 2, "bucket_bytes": 70_001},
        {"zero": 2, "optimizer": "adamw8bit"},
        {"zero": 3, "logits": "untied"},
    ],
    ids=str,
)
def test_what_is_reduced(settings):
    """By three ranks, among whom few weights go evenly."""
    config, cluster = Config(**GPT | settings), preset("h100")

    def program(comm):
        trainer = Trainer(comm, replace(config, steps=2))
        list(trainer.run())
        return trainer.trace()

    step = calls(sd.run(program, 3, cluster=cluster).results[0])
    found = Counter[int]()
    for call, count in step.items():
        found[call.num_bytes] += count if call.operation != "all_gather" else 0
    job = Job(config, Workbench(cluster, 3))
    assert Counter(job.reduced_bytes(job.parts[0])) == +found
