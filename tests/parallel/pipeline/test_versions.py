"""Versions of weights, against the papers' formulas."""

import pytest

from simdist.errors import ArgumentError, ScheduleError, UnknownNameError
from simdist.parallel.pipeline import Schedule, Weights, parse, schedule, versions


def used(one):
    """[stage][micro-batch] -> version."""
    return [[stage.used[i] for i in range(one.num_micro_batches)] for (stage,) in versions(one)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_stashing(n):
    # w(t+1) = w(t) - ν ∇f(w_1(t-n+1), …, w_n(t)): micro-batch t sees t-(n-s) on stage s = 1 … n.
    one = schedule("pipedream", stages=n, micro_batches=3 * n)
    assert used(one) == [[max(0, t - (n - s)) for t in range(3 * n)] for s in range(1, n + 1)]
    assert [stage.most for (stage,) in versions(one)] == [n - s + 1 for s in range(1, n + 1)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_vertical_sync(n):
    one = schedule("pipedream-vertical-sync", stages=n, micro_batches=3 * n)
    assert used(one) == [[max(0, t - n + 1) for t in range(3 * n)]] * n
    assert [stage.most for (stage,) in versions(one)] == [n] * n


@pytest.mark.parametrize(("n", "group"), [(1, 1), (2, 2), (4, 4), (4, 6), (8, 8)])
def test_2bw(n, group):
    m = 4 * group + 1
    one = schedule("pipedream-2bw", stages=n, micro_batches=m, group=group)
    assert used(one) == [[max(0, t // group - 1) for t in range(m)]] * n
    assert [stage.most for (stage,) in versions(one)] == [2] * n
    assert all(len(stage.updates) == 5 for (stage,) in versions(one))


def test_flush():
    for stages in versions(schedule("zb-v", stages=4, micro_batches=6)):
        for stage in stages:
            assert set(stage.used.values()) == {0}
            assert stage.most == 1
            assert len(stage.updates) == 1


def test_an_update_comes_after_the_last_gradient_of_its_group():
    one = Schedule("mine", parse("F0 I0 F1 W0 I1 W1").rows, weights=Weights("stashing", 1))
    ((stage,),) = versions(one)
    assert (stage.updates, stage.used) == ([3, 5], {0: 0, 1: 0})


def test_a_version_whose_users_are_gone_before_the_update_was_never_old():
    one = Schedule("mine", parse("F0 B0 F1 F2 B1 B2").rows, weights=Weights("stashing", 1))
    ((stage,),) = versions(one)
    assert (stage.most, stage.used) == (2, {0: 0, 1: 1, 2: 1})


def test_few_micro_batches_need_few_versions():
    assert [stage.most for (stage,) in versions(schedule("pipedream", stages=8, micro_batches=2))] == [2] * 7 + [1]


def test_a_version_that_is_not_there_yet():
    rows = parse("F0 F1 F2 B0 B1 B2").rows
    with pytest.raises(ScheduleError, match=r"F2 on rank 0 needs version 1 of the weights, but only 0(.|\n)*>F2<"):
        versions(Schedule("mine", rows, weights=Weights("2bw", 1)))


def test_groups_that_do_not_end_in_order():
    rows = parse("F0 F1 B1 B0").rows
    with pytest.raises(ScheduleError, match=r"B1 on rank 0 completes group 1(.|\n)*>B1<"):
        versions(Schedule("mine", rows, weights=Weights("stashing", 1)))


def test_policies_and_groups():
    with pytest.raises(UnknownNameError, match="did you mean 'stashing'"):
        Weights("stash")
    for policy, group in (("flush", 1), ("stashing", 0)):
        with pytest.raises(ArgumentError, match=f"{policy} with {group} micro-batches"):
            Weights(policy, group)
    with pytest.raises(ArgumentError, match="group is -1; needs at least 0"):
        Weights("2bw", -1)
    with pytest.raises(ArgumentError, match="groups of 3 on 4 stages"):
        schedule("pipedream-2bw", stages=4, micro_batches=8, group=3)
