"""TeraPipe's time on virtual ranks, and Seq1F1B's bubble and memory by simulation."""

import numpy as np
import pytest

import simdist as sd
from simdist.cluster import Link, preset
from simdist.errors import ArgumentError
from simdist.parallel.pipeline import Memory, Times, seq1f1b, simulate, terapipe_s, validate
from simdist.parallel.pipeline.formulas import formula

AT_ONCE = preset("h100").with_(inside=Link(0.0, float("inf")))


@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("slices_s", [(2.0,), (1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0), (4.0, 1.0, 3.0)])
def test_slices_pass_through_virtual_ranks_in_terapipes_time(slices_s, stages):
    """arXiv 2102.07988, and `evaluate_split` of its code: the sum, and the longest for each further stage."""

    def program(comm):
        x = np.zeros(1)
        for seconds in slices_s:
            if comm.rank > 0:
                comm.recv(x, comm.rank - 1)
            comm.compute(seconds=seconds)
            if comm.rank + 1 < comm.size:
                comm.isend(x, comm.rank + 1).wait()

    took = sd.run(program, stages, cluster=AT_ONCE).elapsed_s
    assert took == pytest.approx(terapipe_s(np.array(slices_s), stages))


def test_equal_slices_are_micro_batches_to_gpipe():
    forward_s, texts, slices, stages = 8.0, 3, 4, 5
    said = formula("gpipe", stages=stages, micro_batches=texts * slices, times=Times(forward_s / slices, 0, 0))
    assert terapipe_s([forward_s / slices] * texts * slices, stages) == pytest.approx(texts * forward_s + said.bubble)


@pytest.mark.parametrize(("stages", "texts", "slices"), [(4, 8, 1), (4, 8, 2), (4, 4, 4), (8, 16, 4), (1, 2, 3)])
def test_seq1f1b_has_the_bubble_and_the_memory_of_its_table(stages, texts, slices):
    """(p-1)(F+B)/s and (s+p-1)/s M, in MindSpeed-LLM's description of Seq1F1B, of 1F1B's (p-1)(F+B) and p M."""
    made, times = seq1f1b(stages, texts, slices), Times(1 / slices, 1 / slices, 1 / slices)
    memory = validate(made, Memory(backward=1 / slices)).memory
    assert simulate(made, times).bubble == pytest.approx((stages - 1) * 3 / slices)
    assert memory[0] == pytest.approx((slices + stages - 1) / slices)
    assert memory == pytest.approx([(stages - r + slices - 1) / slices for r in range(stages)])


def test_what_cannot_be_cut():
    for made in (lambda: terapipe_s([], 1), lambda: terapipe_s([1.0, np.nan], 1), lambda: terapipe_s([1.0], 0)):
        with pytest.raises(ArgumentError, match="needs at least"):
            made()
    for slices in (0, 1.5):
        with pytest.raises(ArgumentError, match=f"slices is {slices}"):
            seq1f1b(2, 2, slices)
