"""Two streams, by hand."""

import pytest

from simdist.planning.overlap import Layer, Streams, Travel, micro_batches_s

# F takes 1 and B takes 2; a unit a layer.
THREE = [[Layer(seconds, (k,), (k,)) for k in range(3)] for seconds in (1.0, 2.0)]
TIED = [[Layer(seconds, (0,), ()), Layer(seconds, (1,), (1,)), Layer(seconds, (), (0,))] for seconds in (1.0, 2.0)]


@pytest.mark.parametrize(
    ("reduce_s", "found"),
    [
        ([0.0, 0.0, 0.0], 9),  # F 0-3, B2 3-5, B1 5-7, B0 7-9
        ([1.0, 1.0, 1.0], 10),  # r0 9-10
        ([1.0, 3.0, 1.0], 11),  # r2 5-6, r1 7-10, r0 10-11
        ([1.0, 1.0, 9.0], 16),  # r2 5-14, r1 14-15, r0 15-16
    ],
)
def test_gradients_beneath_backward(reduce_s, found):
    assert micro_batches_s(*THREE, Travel(reduce_s), 1) == found
    assert micro_batches_s(*THREE, Travel(reduce_s), 3) == 18 + found  # with the last alone


def test_a_unit_waits_for_the_one_before_it_in_its_slot():
    # r2 5-9; B0 shares the slot and begins at 9, B1 7-… does not: 9-11, r1 9-10, r0 11-12
    assert micro_batches_s(*THREE, Travel([1.0, 1.0, 4.0], slots=[0, 1, 0]), 1) == 12
    # the second begins at 11, and its B1 (slot 1) and B2 (slot 0) find theirs free: 20 + r0
    assert micro_batches_s(*THREE, Travel([1.0, 1.0, 1.0], slots=[0, 1, 0]), 2) == 19
    # each micro-batch is reduced: F 11-14, B2 14-16, r2 16-20, B1 16-18, r1 20-21, B0 20-22, r0 22-23
    assert micro_batches_s(*THREE, Travel([1.0, 1.0, 4.0], slots=[0, 1, 0]), 2) == 23


def test_copies_are_told_of_the_last_micro_batch():
    # B2 3-5, B1 5-7, B0 7-9, r0 9-10; 9 later B2 12-14, r2 14-16, B1 14-16, r1 16-18, B0 16-18, r0 18-20
    assert micro_batches_s(*THREE, Travel([1.0] * 3, [0, 1, 2], last_s=[1.0] * 3), 2) == 20
    assert micro_batches_s(*THREE, Travel([1.0] * 3, last_s=[1.0] * 3), 2) == 20
    # the last alone takes longer: r2 14-18, r1 18-22, r0 22-26
    assert micro_batches_s(*THREE, Travel([1.0] * 3, [0, 1, 2], last_s=[3.0] * 3), 2) == 26


def test_weights_are_gathered_a_layer_ahead():
    quick = Travel([0.0] * 3, gather_s=[0.5] * 3)
    assert micro_batches_s(*THREE, quick, 1) == 0.5 + 3 + 0.5 + 6  # for the first, and again for the last
    assert micro_batches_s(*THREE, quick, 2) == 2 * (0.5 + 3 + 0.5 + 6)  # they do not stay
    slow = Travel([0.0] * 3, gather_s=[3.0] * 3)
    # g0 0-3, F0 3-4 beneath g1 3-6, F1 6-7 beneath g2 6-9, F2 9-10; g2 10-13, B2 13-15 beneath g1 13-16, B1 16-18, …
    assert micro_batches_s(*THREE, slow, 1) == 21


def test_a_tied_unit_stays_from_its_first_layer_to_its_last():
    travel = Travel([0.0, 0.0], gather_s=[1.0, 1.0])
    # g0 0-1, F0 1-2 beneath g1, F1 2-3, F2 3-4; g0 4-5, B2 5-7 beneath g1 5-6, B1 7-9, B0 9-11: nothing comes again
    assert micro_batches_s(*TIED, travel, 1) == 11


def test_on_a_shared_link_both_streams_are_late():
    # F sends for half of its time, B always
    half = [[Layer(seconds, (k,), (k,), sent_s) for k in range(3)] for seconds, sent_s in ((1.0, 0.5), (2.0, 2.0))]
    assert micro_batches_s(*half, Travel([0.0, 0.0, 0.0]), 1) == 9
    assert micro_batches_s(*half, Travel([1.0, 1.0, 1.0]), 1) == 10 + 2  # r2 with B1, r1 with B0, r0 alone
    assert micro_batches_s(*half, Travel([1.0, 3.0, 1.0]), 1) == 11 + 3  # r2 1 s with B1, r1 2 s with B0
    # weights: F0 1 s with g1, F1 with g2; B2 1 s with g1, B1 with g0, each of 1 s: 2 * 0.5 + 2 late
    assert micro_batches_s(*half, Travel([0.0] * 3, gather_s=[1.0] * 3), 1) == 1 + 3 + 1 + 6 + 2 * 0.5 + 2 * 1.0


@pytest.mark.parametrize("reduce_bytes", [(3.0, 7.0, 5.0), (5.0, 3.0, 7.0), (7.0, 5.0, 3.0)])
def test_of_all_that_may_be_under_way_the_largest_takes_its_room(reduce_bytes):
    streams = Streams(Travel([9.0] * 3, reduce_bytes=reduce_bytes))
    streams.forward(THREE[0])
    assert streams.beside_bytes == 0
    streams.backward(THREE[1], last=True)
    assert streams.beside_bytes == 7
