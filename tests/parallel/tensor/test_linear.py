"""Linear maps cut into columns or rows, against the whole one."""

import numpy as np
import pytest

from simdist.arrays import partition
from simdist.errors import ArgumentError
from simdist.nn.layers import Linear
from simdist.parallel.tensor import ColumnParallelLinear, Overlapped, Replicated, RowParallelLinear, Sharded

IN, OUT = 24, 48
X = np.random.default_rng(0).normal(size=(2, 24, IN))
DY = np.random.default_rng(1).normal(size=(2, 24, OUT))
KINDS = {"column": ColumnParallelLinear, "row": RowParallelLinear}


def bound(layer):
    for parameter in layer.parameters:
        parameter.data = parameter.draw(5) + np.linspace(0, 1, parameter.place.shape[-1])[parameter.place.index[-1:]]
        parameter.gradient = np.ones(parameter.shape)
    return layer


def part(x, axis, comm):
    """This rank's part of an array along an axis."""
    own = partition(x.shape[axis], comm.size)[comm.rank]
    return np.ascontiguousarray(x[(slice(None),) * axis + (own,)])


def run(comm, kind, region):
    """y, dx and the gradients of this rank."""
    region = region(comm)
    layer = bound(KINDS[kind]("it", IN, OUT, region, std=0.3))
    sharded = isinstance(region, Sharded)
    x, dy = (part(a, 1, comm) if sharded and side else a for a, side in ((X, kind == "column"), (DY, kind == "row")))
    x, dy = (x, part(dy, 2, comm)) if kind == "column" else (part(x, 2, comm), dy)
    y, context = layer.forward(x)
    dx, pending = layer.backward_input(context, dy)
    layer.backward_weight(context, pending)
    return y, dx, [p.gradient for p in layer.parameters], [p.data for p in layer.parameters]


@pytest.mark.parametrize("t", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("region", [Replicated, Sharded, Overlapped])
def test_against_the_whole(spmd, kind, t, region):
    whole = bound(Linear("it", IN, OUT, std=0.3))
    y, context = whole.forward(X)
    dx = whole.backward(context, DY)
    found = spmd(run, t, kind, region)
    along = None if region is Replicated else 1
    for i, expected in enumerate((y, dx)):  # where the features are whole, and where they are cut
        inside = (i == 0) == (kind == "column")
        axis = 2 if inside else along
        parts = [results[i] for results in found]
        joined = np.concatenate(parts, axis) if axis else parts[-1]
        np.testing.assert_allclose(joined, expected, rtol=1e-12, atol=1e-13)
    cut = [1, 0] if kind == "column" else [0, None]
    for j, (parameter, axis) in enumerate(zip(whole.parameters, cut, strict=True)):
        for i, expected in ((2, parameter.gradient), (3, parameter.data)):
            parts = [results[i][j] for results in found]
            joined = parts[-1] if axis is None else np.concatenate(parts, axis)
            np.testing.assert_allclose(joined, expected, rtol=1e-12, atol=1e-13)


def test_features_that_do_not_go_evenly(spmd):
    def program(comm):
        with pytest.raises(ArgumentError, match=r"10 columns of a.w on tp 3 .* evenly on tp 1, 2, 5, 10"):
            ColumnParallelLinear("a", 9, 10, Replicated(comm), std=1.0)
        with pytest.raises(ArgumentError, match=r"10 rows of a.w on tp 3 leave 1 over"):
            RowParallelLinear("a", 10, 9, Replicated(comm), std=1.0)

    spmd(program, 3)
