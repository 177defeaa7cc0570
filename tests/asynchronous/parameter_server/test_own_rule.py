"""A consistency rule of a program's own, made of public names."""

import numpy as np
import pytest

from simdist.asynchronous.parameter_server import Clocks, Consistency, ParameterServer, Push, train

STEPS, RATE = 8, 0.25


class InFours(Consistency):
    """A step of every four updates, in order of arrival, whose workers nobody waits for."""

    whole_steps = True

    def check(self, num_workers: int) -> None:
        """Any number will do."""

    def admits(self, clocks: Clocks, c: int) -> bool:
        return True

    def due(self, clocks: Clocks, held: list[Push]) -> list[list[Push]]:
        step, held[:4] = (held[:4], []) if len(held) >= 4 else ([], held[:4])
        return [step] if step else []

    def clock_of(self, clocks: Clocks, worker: int) -> int:
        return clocks.commits[worker]

    def num_whole_steps(self, clocks: Clocks) -> int:
        return min(clocks.applied)

    def end(self, clocks: Clocks) -> int:
        return 0

    def num_spare(self, num_workers: int) -> int:
        return num_workers - 1


def program(comm):
    ones, how = np.ones(1), ParameterServer(1, InFours())
    report = train(comm, np.zeros(1), lambda weights, step: (0.0, ones), STEPS, RATE, how)
    return report.state.vectors["weights"] if comm.rank == 0 else np.array(report.clocks)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_update_is_in_a_step_and_no_worker_skips_one(spmd, workers):
    weights, *clocks = spmd(program, 1 + workers)
    assert weights.tolist() == [-RATE * STEPS * workers / 4]
    assert [done.tolist() for done in clocks] == [[*range(STEPS)]] * workers
