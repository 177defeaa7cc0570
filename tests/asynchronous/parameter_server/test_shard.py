import numpy as np
import pytest

from simdist.arrays import Meter, metered
from simdist.asynchronous.parameter_server import ServerState, Shard
from simdist.asynchronous.parameter_server.clocks import Push
from simdist.errors import ArrayError
from simdist.optim import SGD


def shard(keys=slice(4, 10), momentum=0.9):
    weights = np.zeros(keys.stop - keys.start)
    return Shard(weights, keys, 2, SGD(weights, momentum, start=keys.start))


def test_it_reads_by_keys_of_the_whole_vector():
    one = shard()
    one.weights[:] = range(6)
    assert one.read(slice(5, 8)).tolist() == [1, 2, 3]


def test_it_takes_over_what_another_kept():
    one, two = shard(), shard()
    one.optimizer.step(one.weights, np.arange(6.0), 0.1)
    two.restore(ServerState(slice(4, 10), one.vectors(), {"steps": 1}))
    for kept in (one, two):
        kept.optimizer.step(kept.weights, np.ones(6), 0.1)
    np.testing.assert_array_equal(two.weights, one.weights)
    assert two.optimizer.num_steps == 2


@pytest.mark.parametrize(
    ("keys", "vectors", "fault"),
    [
        (slice(0, 6), {"weights": np.zeros(6), "optimizer/velocity": np.zeros(6)}, "keys 0 to 6.* holds 4 to 10"),
        (slice(4, 10), {"weights": np.zeros(5), "optimizer/velocity": np.zeros(6)}, r"needs \(6,\)"),
        (slice(4, 10), {"optimizer/velocity": np.zeros(6)}, "weights have none"),
        (slice(4, 10), {"weights": np.ones(6)}, "keeps"),
        (slice(4, 10), {"weights": np.ones(6), "optimizer/velocity": np.zeros(5)}, "velocity has shape"),
    ],
)
def test_what_does_not_fit_changes_nothing(keys, vectors, fault):
    one = shard()
    with pytest.raises(ArrayError, match=fault):
        one.restore(ServerState(keys, vectors, {"steps": 1}))
    assert not one.weights.any()


@pytest.mark.parametrize(
    ("pushes", "passes"),
    [
        ([Push(0, 0, 0, slice(4, 10), np.arange(6.0))], 3),  # plain SGD, with what came as it is
        ([Push(w, 0, 0, slice(4, 10), w + np.arange(6.0)) for w in range(3)], 3 + 1 + 3 * 3),  # zeros, then each added
        ([Push(0, 0, 0, slice(5, 8), np.arange(1.0, 4))], 3 + 1 + 3 / 2),
        ([Push(0, 0, 0, slice(4, 10), np.array([[1.0, 2.0]]), np.array([3]))], 3 + 1 + 3 / 3),  # one row of three
    ],
)
def test_the_more_updates_a_step_has_the_longer_it_takes(pushes, passes):
    one = shard(momentum=0.0)
    with metered(meter := Meter()):
        one.apply(pushes, 0.1 * len(pushes))  # by their mean
    assert meter.bytes == passes * one.weights.nbytes
    whole = np.zeros(10)
    for push in pushes:
        if push.rows is None:
            whole[push.keys] += push.values
        else:
            whole.reshape(-1, 2)[push.rows] += push.values
    np.testing.assert_allclose(one.weights, -0.1 * whole[4:10], rtol=1e-15)
