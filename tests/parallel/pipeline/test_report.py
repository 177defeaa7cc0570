"""A run's figures, measured beside predicted beside formula: in virtual time with given times all three are one."""

from math import inf

import numpy as np
import pytest
from pipeline_training import EXACT, mesh_of

import simdist as sd
from simdist.arrays import Ledger, phantom, recorded
from simdist.cluster import Cluster, Device, Link
from simdist.nn import Shape, gpt
from simdist.parallel.pipeline import (
    Memory,
    PipeDream,
    Pipeline,
    Times,
    compare,
    executed,
    footprints,
    paper,
    predicted_taken,
    schedule,
    simulate,
    split,
    taken,
)
from simdist.parallel.pipeline.formulas import formula

SHAPE = Shape(layers=6, width=16, heads=2, context=8, tied=False)
COSTS = [1.0] * 8
WIRE = Cluster("wire", Device("", inf, inf, inf), Link(0.0, inf), Link(0.0, inf), 1 << 20, eager_bytes=1 << 60)


def go(comm, one, times, steps=1):
    mesh, m = mesh_of(comm, pp=comm.size), one.num_micro_batches
    kind = Pipeline if one.weights.policy == "flush" else PipeDream
    with recorded(ledger := Ledger(comm.clock)):
        method = kind(gpt(SHAPE), mesh, EXACT, 1, one, costs=COSTS, times=times, memory=phantom)
        batch = [phantom((2, 9), np.uint8) for _ in range(m)]
        if isinstance(method, PipeDream):
            method.train(batch, 1.0, 0.1)
        else:
            for i in range(steps * m):
                method.backward(batch[i % m], 1.0, last=i % m == m - 1)
    return taken(method, ledger)


def test_bytes_sent_are_those_of_the_last_step():
    args = schedule("1f1b", stages=2, micro_batches=3), Times()
    once, twice = (sd.run(go, 2, args=(*args, steps), cluster=WIRE).results for steps in (1, 2))
    assert [rank.sent_bytes for rank in twice] == [rank.sent_bytes for rank in once] == [3 * 2 * 8 * 16 * 8] * 2


SLOW = Cluster("slow", Device("", inf, inf, inf), Link(3.0, inf), Link(3.0, inf), 1 << 20, eager_bytes=0)


def figures(name, m, times, cluster=WIRE):
    one = schedule(name, stages=4, micro_batches=m)
    run = sd.run(go, 4, args=(one, times), cluster=cluster)
    stages = footprints(gpt(SHAPE), split(COSTS, one.num_stages), 2, 9, np.dtype(np.float64))
    kept = Memory(*(sum(s.levels[letter].after for s in stages) / 4 for letter in "FI"))
    said = {"stages": 4, "micro_batches": m, "times": times}
    measured, predicted = executed(one, run.trace), simulate(one, times)
    promised = predicted_taken(one, stages)
    rows = compare(
        measured, predicted, run.results, promised, formula(name, **said), formula(name, **said, memory=kept)
    )
    return {row.what: row for row in rows}


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2"])
def test_three_ways_to_the_same_figures(name):
    found = figures(name, 12, Times(1.0, 1.0, 0.5))
    for what in ("makespan, s", *(f"bytes sent, rank {r}" for r in range(4))):
        assert found[what].measured == found[what].predicted > 0
    own = found["bubble of the longest rank's span"]
    assert own.measured == own.predicted == pytest.approx(own.formula)
    for r in range(4):
        kept, versions = found[f"activations, micro-batches, rank {r}"], found[f"weight versions, rank {r}"]
        # The papers count what is left for W beside what is not; here a micro-batch counts until nothing is left.
        assert kept.measured == kept.predicted <= kept.formula
        assert versions.measured == versions.predicted == versions.formula == 1
        num_bytes = found[f"activations, bytes, rank {r}"]
        assert num_bytes.measured == num_bytes.predicted
        busy = found[f"utilisation, rank {r}"]
        assert busy.measured == busy.predicted
        assert busy.measured == pytest.approx(busy.formula)


def test_no_formula_of_the_makespan_where_ranks_end_one_after_the_other():
    found = figures("zb-h2", 12, Times())
    assert found["bubble of the longest rank's span"].formula == 0
    assert found["bubble of the makespan"].formula is found["utilisation, rank 0"].formula is None


@pytest.mark.parametrize("name", ["zb-h1", "zb-v"])
def test_what_waits_to_be_used_again_is_no_activation(name):
    # Where messages are slow there are more arrays to receive in than are in use at any one time.
    found = figures(name, 8, Times(1.0, 1.0, 1.0), SLOW)
    for r in range(4):
        kept = found[f"activations, bytes, rank {r}"]
        assert kept.measured == kept.predicted


def test_a_stage_that_no_micro_batch_comes_to_takes_nothing():
    found = figures("dualpipe", 1, Times())  # all of the batch goes down, and on rank 3 stage 0 is of the way up
    for r in range(4):
        kept = found[f"activations, bytes, rank {r}"]
        assert kept.measured == kept.predicted


def test_pipedream_keeps_a_version_for_each_stage_after():
    found = figures("pipedream", 12, Times())
    for r in range(4):
        versions = found[f"weight versions, rank {r}"]
        assert versions.measured == versions.predicted == versions.formula == 4 - r
    assert found["bubble of the makespan"].formula is None


def test_all_that_is_sent():
    item = 2 * 8 * 16 * 8  # samples, tokens, width, bytes of a number
    for name, crossings in {"1f1b": 3, "zb-v": 6, "interleaved-1f1b": 7}.items():
        found = figures(name, 8, Times())
        total = sum(found[f"bytes sent, rank {r}"].measured for r in range(4))
        assert total == 2 * 8 * crossings * item


def test_a_paper_is_told_of_pairs_and_of_stages_on_average():
    for name, stages, said in (("dualpipe", 8, 4.5), ("dualpipe-v", 16, 5.25)):
        one = schedule(name, stages=8, micro_batches=20)
        share = one.share
        times = Times([0.5 * share, 1.5 * share] * (stages // 2), 1, 1, overlapped=2.5)
        assert paper(one, times).bubble == pytest.approx(said)


def test_of_a_whole_backward_papers_count_what_it_takes():
    """The bubble of 1F1B, (p - 1) (F + B): Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1."""
    found = paper(schedule("1f1b", stages=4, micro_batches=8), Times(1, 1, 1, backward=1.5))
    assert found.bubble == 3 * 2.5
    assert found.makespan_rate == pytest.approx(3 / (8 + 3))
