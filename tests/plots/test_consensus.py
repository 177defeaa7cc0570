"""The consensus error over time, of runs that were made."""

import numpy as np
import pytest

import simdist as sd
from simdist.asynchronous.compute_time import Constant
from simdist.asynchronous.consensus import CONSENSUS, Snapshots, recorded
from simdist.asynchronous.gossip import d_psgd
from simdist.asynchronous.graphs import complete, exponential, ring, torus
from simdist.asynchronous.mixing import metropolis
from simdist.asynchronous.worker import Worker
from simdist.errors import ArgumentError
from simdist.plots import style
from simdist.plots.consensus import consensus
from simdist.trace import Span, Trace

MIXINGS = {
    "ring": metropolis(ring(16)),
    "torus": metropolis(torus(4, 4)),
    "exponential": metropolis(exponential(16)),
    "complete": metropolis(complete(16)),
}


@pytest.fixture(scope="module")
def traces():
    def program(comm, mixing):
        x = np.random.default_rng(comm.rank).normal(size=8)
        snapshots = Snapshots(comm, x)
        still = Worker(comm, x, lambda w, k: (0.0, 0 * w), 0.1, compute_time=Constant(1e-3), observe=snapshots.take)
        d_psgd(still, mixing, 24)
        snapshots.errors()

    return {name: sd.run(program, 16, args=(mixing,)).trace for name, mixing in MIXINGS.items()}


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_graphs_beside_what_their_eigenvalues_allow(draw, traces, width):
    bounds = {name: mixing.contraction for name, mixing in MIXINGS.items()}
    picture = draw(consensus, traces, bounds, width=width)
    assert picture.title.startswith("Consensus error left after 24 recorded steps, relative to the first: 0.")
    assert ", nothing on complete" in picture.title
    assert picture.key == [*MIXINGS, "at most, by eigenvalues"]
    (ax,) = picture.axes
    assert ax.get_yscale() == "log"
    for error, bound in zip(ax.lines[::2], ax.lines[1::2], strict=True):
        n = min(len(error.get_ydata()), len(bound.get_ydata()))
        np.testing.assert_array_equal(error.get_xdata()[:n], bound.get_xdata()[:n])
        assert (np.array(error.get_ydata()[:n]) <= np.array(bound.get_ydata()[:n]) * (1 + 1e-9)).all()


def test_errors_as_small_as_rounding_are_left_out_and_it_says_so(draw, traces):
    picture = draw(consensus, {"complete": traces["complete"]})
    assert picture.note.endswith("errors left out: as small as rounding.")
    assert len(picture.axes[0].lines) == 1


def test_it_draws_what_is_recorded(draw, traces):
    (line,) = draw(consensus, {"ring": traces["ring"]}).axes[0].lines
    assert list(line.get_ydata()) == [error for _, error in recorded(traces["ring"])]


@pytest.mark.parametrize(
    ("errors", "bounds", "fault"),
    [
        ({}, {}, "no trace"),
        ({"a": []}, {}, "record of 'a' has no consensus errors"),
        ({"a": [0.0, 1.0]}, {}, "start above 0"),
        ({"a": [1.0, float("nan")]}, {}, "are finite"),
        ({"a": [1.0]}, {"b": 0.5}, "a bound for 'b'"),
    ],
)
def test_what_cannot_be_drawn(errors, bounds, fault):
    traces = {
        name: Trace([Span(0, "states", CONSENSUS, k, k, detail=repr(e)) for k, e in enumerate(found)], 1)
        for name, found in errors.items()
    }
    with pytest.raises(ArgumentError, match=fault):
        consensus(traces, bounds)


def test_ranks_that_drift_apart(draw):
    spans = [Span(0, "main", CONSENSUS, t, t, detail=repr(error)) for t, error in ((0.0, 0.01), (1.0, 0.2), (2.0, 3.0))]
    picture = draw(consensus, {"ring": Trace(spans, 1)})
    assert picture.title == "Consensus error left after 2 recorded steps, relative to the first: 3e+02 on ring"
