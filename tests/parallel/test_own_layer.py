"""A layer of a program's own in a GPT that is cut over a mesh."""

from dataclasses import replace

import pytest
from harness import virtual
from mesh_training import ONE_LAYER, Whole, close, joined, trained

from simdist.comm import Mesh
from simdist.errors import ArgumentError
from simdist.nn import Layer, Parameter, gpt
from simdist.nn.layers import Sequence
from simdist.parallel import DataParallel, Recipe
from simdist.parallel.parts import MeshParts
from simdist.parallel.pipeline import Pipeline, schedule

SHAPE = replace(ONE_LAYER, width=24, heads=4)
STEPS = 3


class LayerScale(Layer):
    """y = gain · x: Touvron et al. 2021, arXiv 2103.17239."""

    def __init__(self, name, width):
        self.gain = Parameter(f"{name}.gain", (width,), mean=0.5)
        self.parameters = (self.gain,)

    def forward(self, x, noise=None):
        return self.gain.data * x, x

    def backward_input(self, x, dy):
        return self.gain.data * dy, dy

    def backward_weight(self, x, dy):
        self.gain.gradient += (x * dy).sum(axis=(0, 1))


class Scaling:
    """Parts whose maps to the stream are scaled, by layers that nothing else knows of."""

    def row(self, name, in_features, out_features, std, bias=True):
        scale = self.own(LayerScale(name, out_features))
        return Sequence([super().row(name, in_features, out_features, std, bias), scale])

    def own(self, layer):
        return layer


class ScaledWhole(Scaling, Whole):
    pass


class Forgotten(Scaling, MeshParts):
    pass


class Scaled(Scaling, MeshParts):
    def own(self, layer):
        return self.on_stream(layer)


SIZES = [
    ({"sp": 2}, {}),
    ({"tp": 2}, {"sequence_parallel": True}),
    ({"dp": 2, "tp": 2}, {"sequence_parallel": True, "zero_stage": 3}),
    ({"sp": 2, "tp": 2}, {"zero_stage": 2}),
]


@pytest.mark.parametrize(("sizes", "options"), SIZES, ids=str)
def test_its_gradient_is_summed_over_all_ranks_that_see_other_tokens(spmd, sizes, options):
    [(*_, weights)] = virtual(trained, 1, {}, SHAPE, 0, STEPS, ScaledWhole)
    found = spmd(lambda comm: trained(comm, sizes, SHAPE, steps=STEPS, parts=Scaled, **options), 2 * len(sizes))
    close(joined([parts for *_, parts in found]), joined([weights]))


@pytest.mark.parametrize(("sizes", "options"), SIZES, ids=str)
def test_one_that_would_not_be_is_refused(sizes, options):
    with pytest.raises(ArgumentError, match=r"block0\.attended\.gain is in none of the parts.*MeshParts\.on_stream"):
        virtual(lambda comm: trained(comm, sizes, SHAPE, parts=Forgotten, **options), 2 * len(sizes))


def test_a_pipeline_refuses_it_too():
    def program(comm):
        mesh = Mesh(comm, pp=2, sp=2)
        parts = Forgotten(mesh)
        Pipeline(gpt(SHAPE, parts), mesh, Recipe(), 1, schedule("1f1b", 2, 2), spread=parts.spread())

    with pytest.raises(ArgumentError, match=r"gain is in none of the parts"):
        virtual(program, 4)


def test_where_nothing_is_to_be_summed_none_is_refused():
    def program(comm):
        mesh = Mesh(comm, tp=2)
        parts = Forgotten(mesh)
        return DataParallel(gpt(SHAPE, parts), mesh.dp, Recipe(), 1, spread=parts.spread()).spread.sums

    assert virtual(program, 2) == [()] * 2
