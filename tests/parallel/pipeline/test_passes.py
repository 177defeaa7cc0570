"""Shapes that pass from stage to stage: found by the layers themselves, and at no cost that anybody is told of."""

from harness import xp as np
from pipeline_training import EXACT, mesh_of, pipeline

from simdist.arrays import Ledger, Meter, metered, recorded
from simdist.nn import Shape, gpt
from simdist.parallel.expert import routes
from simdist.parallel.parts import MeshParts
from simdist.parallel.pipeline import Pipeline, schedule
from simdist.parallel.pipeline.passes import StageShapes


def test_shapes_are_known_and_nothing_else_is(spmd):
    def program(comm):
        method = pipeline(comm, "gpt", "1f1b", 2)
        shapes = StageShapes(method.share, method.schedule, np.empty(0))
        with recorded(ledger := Ledger()), metered(meter := Meter()):
            found = shapes.of(np.zeros((2, 5), np.uint8))
        return found, ledger.peak.total, meter.flops

    assert spmd(program, 3) == [([(5,), (5, 8), (5, 8)], 0, 0)] * 3


def test_no_token_goes_to_an_expert_to_find_them(spmd):
    shape = Shape(layers=2, width=8, heads=2, context=5, experts=2)

    def program(comm):
        mesh = mesh_of(comm, pp=comm.size)
        one = schedule("1f1b", stages=comm.size, micro_batches=2)
        method = Pipeline(gpt(shape, MeshParts(mesh)), mesh, EXACT, 1, one)
        first = len(comm.recorder.spans())
        StageShapes(method.share, one, np.empty(0)).of(np.zeros((2, 5), np.uint8))
        return [routed.tokens for routed in routes(comm.recorder.spans()[first:]).values()]

    assert spmd(program, 2) == [[0], []]
