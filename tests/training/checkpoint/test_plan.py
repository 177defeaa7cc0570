"""Who writes what: every item once, and no rank much more than its share."""

import numpy as np

from simdist.training.checkpoint.plan import holdings, plan
from simdist.training.checkpoint.tensors import ShardedTensor


def loads(held):
    """Bytes that each rank writes, where by rank `held` has names and lengths of float64 vectors, whole ones."""
    made = plan([holdings({k: ShardedTensor.whole(np.zeros(n)) for k, n in rank.items()}) for rank in held])
    written = [name for share in made.shares for name, _ in share]
    assert sorted(written) == sorted({name for rank in held for name in rank})
    return [sum(8 * box.size for _, box in share) for share in made.shares]


def test_what_one_rank_alone_holds_is_assigned_first():
    assert loads([{"shared": 100, "own": 100}, {"shared": 100}]) == [800, 800]


def test_large_parts_are_assigned_before_small_ones():
    assert loads([{"a": 1, "b": 1, "c": 2}] * 2) == [16, 16]


def test_what_is_large_is_told_by_bytes():
    held = {"a": np.zeros(2), "b": np.zeros(3, np.int8), "c": np.zeros(3, np.int8)}
    made = plan([holdings({name: ShardedTensor.whole(x) for name, x in held.items()})] * 2)
    assert [{name for name, _ in share} for share in made.shares] == [{"a"}, {"b", "c"}]


def test_wide_items_are_written_first_and_those_alike_in_the_order_of_names():
    """So each tensor begins at a multiple of its item's size, though it is the smallest part."""
    held = {"x": np.zeros(90, np.int8), "b": np.zeros(2), "a": np.zeros(3), "h": np.zeros(9, np.float16)}
    (share,) = plan([holdings({name: ShardedTensor.whole(x) for name, x in held.items()})]).shares
    assert "".join(name for name, _ in share) == "bahx"
