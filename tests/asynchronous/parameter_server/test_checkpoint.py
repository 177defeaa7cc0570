"""Servers' states on disk: a run goes on from them, on other servers too."""

import numpy as np
import pytest
from servers import KEYS, weights_of, worked

import simdist as sd
from simdist.asynchronous.parameter_server import ParameterServer, ServerState, Synchronous
from simdist.optim import SGD
from simdist.training.checkpoint import ShardedTensor, load, save


def momentum(weights, start):
    return SGD(weights, 0.9, start=start)


def tensors(state):
    """A server's vectors as its parts of those of the whole model."""
    return {name: ShardedTensor.part(x, (KEYS,), [state.keys]) for name, x in state.vectors.items()}


@pytest.mark.parametrize("later_servers", [1, 2, 3])
def test_a_run_goes_on_from_disk_on_any_number_of_servers(tmp_path, later_servers):
    workers, steps = 3, 14

    def first(comm):
        report = worked(comm, ParameterServer(2, Synchronous(), momentum), 6)
        servers = comm.split(0 if comm.rank < 2 else None)
        if servers is not None:
            save(tmp_path, servers, 6, tensors(report.state), dict(report.state.numbers))

    def second(comm):
        how, state = ParameterServer(later_servers, Synchronous(), momentum), None
        servers = comm.split(0 if comm.rank < later_servers else None)
        if servers is not None:
            keys = how.layout(comm, KEYS).keys(comm.rank)
            empty = {name: np.empty(keys.stop - keys.start) for name in ("weights", "optimizer/velocity")}
            step, numbers = load(tmp_path, servers, tensors(ServerState(keys, empty, {})))
            assert step == 6
            state = ServerState(keys, empty, numbers)
        return worked(comm, how, steps, state=state)

    sd.run(first, 2 + workers)
    later = sd.run(second, later_servers + workers).results
    whole = sd.run(worked, 2 + workers, args=(ParameterServer(2, Synchronous(), momentum), steps)).results
    np.testing.assert_array_equal(weights_of(later, later_servers), weights_of(whole, 2))
    assert later[-1].clocks == list(range(6, steps))
    assert later[-1].losses == whole[-1].losses[6:]
