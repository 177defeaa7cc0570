"""Shapes that pass from stage to stage: found by the layers themselves, and at no cost that anybody is told of."""

from harness import xp as np
from pipeline_training import pipeline

from simdist.arrays import Ledger, Meter, metered, recorded


def test_shapes_are_known_and_nothing_else_is(spmd):
    def program(comm):
        method = pipeline(comm, "gpt", "1f1b", 2)
        tails = method.share.tails(method.schedule, np.empty(0))
        with recorded(ledger := Ledger()), metered(meter := Meter()):
            found = tails.of(np.zeros((2, 5), np.uint8))
        return found, ledger.peak.total, meter.flops

    assert spmd(program, 3) == [([(5,), (5, 8), (5, 8)], 0, 0)] * 3
