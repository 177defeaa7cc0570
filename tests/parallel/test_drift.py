"""Replicas that drift are found, on all ranks alike, and named."""

import numpy as np
import pytest

from simdist.arrays import Meter, metered, phantom
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ReplicaDrift
from simdist.nn import Parameter, Parameters
from simdist.parallel.drift import check_replicas

NAMES = ("first", "middle", "last")


def look(comm, changed, dtype="float32"):
    """What the check says when some ranks have changed an item: None, or the message."""
    parameters = Parameters([Parameter(name, (4, 3)) for name in NAMES])
    parameters.bind(np.arange(36).astype(dtype), np.zeros(36, dtype))
    for rank, item, value in changed:
        if rank == comm.rank:
            parameters.data[item] = value
    try:
        check_replicas(parameters, comm)
    except ReplicaDrift as error:
        return str(error)
    return None


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_equal_copies_pass(spmd, p, dtype):
    assert spmd(look, p, [], dtype) == [None] * p


def test_the_rank_that_drifted_is_named_on_all_ranks_with_where(spmd):
    changed = [(2, 13, 13.5), (2, 30, 0.0)]
    assert spmd(look, 4, changed) == ["the weights of rank 2 (first in middle) differ from those of rank 0"] * 4


def test_the_majority_decides_even_against_rank_0(spmd):
    told = spmd(look, 4, [(0, 35, -1.0)])
    assert told == ["the weights of rank 0 (first in last) differ from those of rank 1"] * 4


def test_several_drifted_each_by_itself(spmd):
    told = spmd(look, 4, [(1, 0, 9.0), (1, 20, 9.0)])
    assert told[0].startswith("the weights of rank 1 (first in first) differ")
    (told, *others) = spmd(look, 4, [(1, 0, 9.0), (3, 14, 9.0)])
    assert told.startswith(
        "the weights of rank 1 (first in first), rank 3 (first in middle) differ from those of rank 0;"
    )
    assert "only 2 of 4 ranks agree" in told
    assert others == [told] * 3


def test_the_most_common_value_counts_without_a_majority(spmd):
    told = spmd(look, 5, [(0, 0, 7.0), (3, 0, 8.0), (4, 0, 9.0)])[0]
    assert told.startswith("the weights of rank 0 (first in first), rank 3 (first in first), rank 4 (first in first)")
    assert "differ from those of rank 1; only 2 of 5 ranks agree" in told


def test_two_ranks_have_no_majority(spmd):
    told = spmd(look, 2, [(1, 0, 9.0)])
    assert told == [told[0]] * 2
    assert "rank 1 (first in first) differ from those of rank 0; only 1 of 2 ranks agree" in told[0]


def test_bits_count_and_not_values(spmd):
    """0 and -0 are equal numbers; a nan is not equal to itself."""
    assert "rank 1" in spmd(look, 3, [(1, 0, -0.0)])[0]
    everywhere = [(rank, 5, np.nan) for rank in range(3)]
    assert spmd(look, 3, everywhere) == [None] * 3


def sent(comm):
    first = len(comm.recorder.rows)
    look(comm, [])
    return [span.bytes for span in comm.recorder.spans()[first:] if span.name.startswith("all_gather")]


def test_it_costs_a_digest_a_rank(spmd):
    assert spmd(sent, 4) == [[4 * 32]] * 4


def test_phantoms_are_taken_to_be_the_same(spmd):
    def program(comm):
        parameters = Parameters([Parameter("w", (4, 3))])
        parameters.bind(phantom(12), phantom(12))
        check_replicas(parameters, comm)

    assert spmd(program, 2) == [None, None]


def test_to_look_is_to_read_the_weights_once():
    with metered(meter := Meter()):
        assert look(SoloCommunicator(), []) is None
    assert (meter.flops, meter.bytes) == (0, 4 * 36)
