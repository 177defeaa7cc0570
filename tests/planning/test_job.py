"""What a job says of a run that nobody has made, against the record of the run."""

from collections import Counter
from dataclasses import replace
from math import prod

import pytest

import simdist as sd
from simdist.cluster import preset
from simdist.planning import Workbench
from simdist.planning.job import Job
from simdist.training import Config, Trainer
from simdist.training.traffic import calls

H100 = preset("h100")
GPT = {"model": "gpt", "layers": 3, "width": 40, "heads": 4, "context_bytes": 16, "vocabulary": 257}
GPT |= {"global_batch_size": 12, "device": "phantom", "clip_norm": 0.0}


def recorded(config, ranks):
    """The collectives of a step of rank 0."""

    def program(comm):
        trainer = Trainer(comm, replace(config, steps=2))
        list(trainer.run())
        return trainer.trace()

    return calls(sd.run(program, ranks, cluster=H100).results[0])


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
    config, found = Config(**GPT | settings), Counter[int]()
    for call, count in recorded(config, 3).items():
        found[call.num_bytes] += count if call.operation != "all_gather" else 0
    job = Job(config, Workbench(H100, 3))
    assert Counter(job.reduced_bytes(job.parts[0])) == +found


@pytest.mark.parametrize(
    ("settings", "sums"),
    [
        ({"sp": 2}, 1),
        ({"tp": 2, "sequence_parallel": True}, 1),
        ({"tp": 2, "sequence_parallel": True, "sp": 2}, 2),
        ({"ep": 2, "experts": 4}, 1),
        ({"ep": 2, "tp": 2, "experts": 4}, 2),
    ],
    ids=str,
)
def test_what_is_summed_over_other_axes(settings, sums):
    """Of the embedding, too, and in ranks that differ in these axes alone."""
    config = Config(**GPT | settings | {"dp": 2, "vocabulary": 258})
    job = Job(config, Workbench(H100, 2 * prod(settings.get(axis, 1) for axis in ("tp", "sp", "ep"))))
    expected = [(group.ranks, num_bytes) for group, num_bytes in job.summed(job.parts[0])]
    found = recorded(config, job.bench.ranks)
    assert len(expected) == sums
    assert {*expected} <= {(call.members, call.num_bytes) for call in found if call.operation == "all_reduce"}
