"""The oracle for the factor is PyTorch's GradScaler; that ranks agree needs none."""

import numpy as np
import pytest
from oracle import outgoing

from simdist.arrays import Meter, metered
from simdist.comm.solo import SoloCommunicator
from simdist.errors import ArgumentError
from simdist.parallel.loss_scale import LossScale

BAD = {(3, 1): np.inf, (4, 0): np.nan, (9, 2): -np.inf, (10, 1): np.nan, (10, 2): np.nan}
"""(step, rank): what goes wrong there."""


def program(comm, steps, dtype):
    first, scale = len(comm.recorder.rows), LossScale(comm, 2.0**10, interval=4, most=2.0**12)
    weights, values, moved = np.ones(3000, np.float32), [], []
    for step in range(steps):
        gradient = np.full(3000, scale.value, dtype)
        if (step, comm.rank) in BAD:
            gradient[1234] = BAD[step, comm.rank]
        values.append(scale.value)
        finite = scale.agree(gradient)
        if finite:
            weights -= gradient.astype(np.float32) / scale.value
        moved.append(finite)
        scale.update(finite)
    sent = outgoing(comm.recorder.spans()[first:])
    return values, moved, float(weights[0]), scale.state(), max(sent, default=0)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_all_ranks_skip_the_steps_in_which_one_fails(spmd, dtype):
    found = spmd(program, 3, 24, dtype)
    bad = {step for step, _ in BAD}
    for values, moved, weight, state, largest_message in found:
        assert moved == [step not in bad for step in range(24)]
        assert weight == 1 - (24 - len(bad))
        assert values == found[0][0]
        assert state["skipped_steps"] == len(bad)
        assert state["value"] == 2.0**10
        assert largest_message == 1
    assert min(found[0][0]) == 2.0**7  # it halved twice, doubled once, halved twice, and doubled three times
    assert found[0][0][3:6] == [2.0**10, 2.0**9, 2.0**8]


def test_to_agree_is_to_read_the_gradient_once():
    with metered(meter := Meter()):
        assert LossScale(SoloCommunicator()).agree(np.ones(3000, np.float16))
    assert (meter.flops, meter.bytes) == (3000, 2 * 3000)


def test_the_factor_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    ours = LossScale(SoloCommunicator(), 2.0**10, interval=3, least=2.0**-20, most=2.0**60)
    theirs, tracker = torch.tensor(2.0**10), torch.tensor(0, dtype=torch.int32)
    for finite in (np.random.default_rng(0).random(200) > 0.2).tolist():
        ours.update(finite)
        torch._amp_update_scale_(theirs, tracker, torch.tensor(float(not finite)), 2.0, 0.5, 3)
        assert (ours.value, ours.good_steps) == (float(theirs), int(tracker))


def test_it_stays_within_its_limits():
    scale = LossScale(SoloCommunicator(), 4.0, interval=1, least=1.0, most=16.0)
    for value in (8.0, 16.0, 16.0):
        scale.update(True)
        assert scale.value == value
    for count, value in enumerate((8.0, 4.0, 2.0, 1.0, 1.0), start=1):
        scale.update(False)
        assert (scale.value, scale.skipped_in_a_row) == (value, count)
    scale.update(True)
    assert (scale.skipped_in_a_row, scale.skipped_steps) == (0, 5)


def test_it_goes_on_from_a_checkpoint():
    one, two = LossScale(SoloCommunicator(), interval=3), LossScale(SoloCommunicator(), interval=3)
    history = [True, False, True, True, False, False, True, True]
    for finite in history[:5]:
        one.update(finite)
    two.restore(one.state())
    for finite in history[5:]:
        one.update(finite)
        two.update(finite)
    assert one.state() == two.state()


@pytest.mark.parametrize(
    "wrong",
    [{"value": 0.0}, {"value": float("nan")}, {"good_steps": -1}, {"skipped_steps": 0.5}, {"other": 1}],
)
def test_a_state_that_is_none_changes_nothing(wrong):
    scale = LossScale(SoloCommunicator())
    before = scale.state()
    with pytest.raises(ArgumentError, match="is no loss scale; needs|was given .*other"):
        scale.restore({**before, **wrong})
    with pytest.raises(ArgumentError, match="given nothing"):
        scale.restore({})
    assert scale.state() == before


@pytest.mark.parametrize("wrong", [{"value": 0.5}, {"value": float("inf")}, {"interval": 0}, {"least": 0}])
def test_arguments_have_limits(wrong):
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))}"):
        LossScale(SoloCommunicator(), **wrong)
