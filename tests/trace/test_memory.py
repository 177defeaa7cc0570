"""A ledger's moments on the record."""

import numpy as np

import simdist as sd
from simdist.arrays import Ledger, hold, recorded
from simdist.trace import Trace
from simdist.trace.memory import MEMORY, remember, remembered


def program(comm):
    ledger = Ledger(comm.clock)
    with recorded(ledger):
        for layer in range(2 + comm.rank):
            kept = np.ones(10 * (layer + 1))
            hold("activations", kept, f"layer {layer}")
            comm.compute(seconds=1.0)
    remember(ledger.moments, comm.recorder)
    return ledger.moments


def test_the_record_has_what_the_ledger_had(tmp_path):
    run = sd.run(program, ranks=2)
    assert remembered(run.trace) == {rank: run.results[rank] for rank in range(2)}
    run.trace.save(tmp_path / "t.json")
    assert remembered(Trace.load(tmp_path / "t.json")) == remembered(run.trace)


def test_it_takes_no_part_in_what_is_counted():
    run = sd.run(program, ranks=2)
    assert MEMORY not in run.trace.statistics()[0].operations
    assert run.trace.statistics()[1].computing_s == 3.0


def test_a_record_without_a_ledger():
    assert remembered(sd.run(lambda comm: comm.compute(seconds=1.0), ranks=2).trace) == {}
