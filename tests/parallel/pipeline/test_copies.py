"""Parameters on several ranks of a pipeline: their sums, by digits, and who is in which group."""

import numpy as np
import pytest

from simdist.nn import Parameter, Parameters
from simdist.parallel.pipeline.copies import Copies, holders


def summed(comm, held):
    """Each rank's gradients are 10**rank: the sums, who counts what, and the groups that were made for it."""
    own = Parameters([Parameter(name, (2, 3)) for name in held[comm.rank]])
    own.bind(np.zeros(own.size), np.full(own.size, 10**comm.rank, float))
    copies = Copies(held, list(own), comm)
    copies.sum()
    return {p.name: p.gradient.tolist() for p in own}, sorted(copies.counted), sorted(comm.attached)


@pytest.mark.parametrize(
    "held",
    [
        [["a"], ["b"], ["c"], ["d"]],
        [["table", "a"], ["b"], ["c", "d"], ["table"]],
        [["a", "b"], ["c", "d"], ["d", "c"], ["b", "a"]],  # in two ways
        [["a", "b"], ["a", "b", "c"], ["c", "b"], ["d"]],
    ],
    ids=str,
)
def test_copies_have_the_sum_of_their_gradients_and_are_counted_once(spmd, held):
    by_name = holders(held)
    found = spmd(summed, 4, held)
    for gradients, _, _ in found:
        assert gradients == {name: [[sum(10**rank for rank in by_name[name])] * 3] * 2 for name in gradients}
    assert sorted(name for _, counted, _ in found for name in counted) == sorted(by_name)
    shared = sorted({f"ranks {ranks}" for ranks in by_name.values() if len(ranks) > 1})
    assert [groups for _, _, groups in found] == [shared] * 4, "none for what one rank has alone"
