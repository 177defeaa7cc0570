import re

import pytest

from simdist.bench import jobs
from simdist.bench.jobs import foretell
from simdist.bench.trial import OPERATIONS, Trial
from simdist.collectives import algorithms, cost


def test_what_takes_long_is_told_before_it_begins(capsys):
    foretell([Trial("all_reduce", "ring", 100, "float32")] * 3, 4000)
    told = capsys.readouterr().err
    assert told.startswith("4,000 virtual ranks have about 9.6e+07 messages to send, which takes some 8 min; ")


@pytest.mark.parametrize(("algorithm", "ranks"), [("tree", 4000), ("ring", 99)])
def test_what_is_soon_done_is_not(algorithm, ranks, capsys):
    foretell([Trial("all_reduce", algorithm, 100)], ranks)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_messages_are_about_as_many_as_are_sent(operation, capsys, monkeypatch):
    monkeypatch.setattr(jobs, "_LONG", 0)
    for name in algorithms(operation, 128):
        ranks = [cost(operation, name, ranks=128, num_bytes=1 << 20, rank=r).messages for r in range(128)]
        foretell([Trial(operation, name, (1 << 17) // (128 if operation == "all_to_all" else 1))], 128)
        told = re.search(r"about ([0-9.e+]+) messages", capsys.readouterr().err)
        assert sum(ranks) / 3 <= float(told[1] if told else 0) <= 3 * sum(ranks), name
