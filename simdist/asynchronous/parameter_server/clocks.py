"""Clocks: the progress of each worker, as known to one server."""

from collections.abc import Mapping
from typing import NamedTuple

from simdist.arrays import Array
from simdist.errors import ArrayError

__all__ = ["Clocks", "Push"]


class Push(NamedTuple):
    """A received update: its worker, its clock stamp, and the version of the weights that it was computed from."""

    worker: int
    clock: int
    version: int
    keys: slice
    values: Array
    rows: Array | None = None


class Clocks:
    """What each worker has done, and the current step of the server.

    Attributes:
        commits: how many updates of each worker arrived: those stamped 0 … commits - 1.
        applied: how many of these have been applied so far; dropped ones do not count.
        reads: one more than the highest clock at which each has read, or can no longer read.
        step: how many steps have been closed, where the rule closes steps.
        present: the workers that have neither left nor died.
        dead: those that died.
    """

    def __init__(self, num_workers: int) -> None:
        self.commits = [0] * num_workers
        self.applied = [0] * num_workers
        self.reads = [0] * num_workers
        self.step = 0
        self.present = set(range(num_workers))
        self.dead: set[int] = set()

    @property
    def num_alive(self) -> int:
        """How many workers there are whose updates count, whether they have left or not."""
        return len(self.commits) - len(self.dead)

    @property
    def unread(self) -> int:
        """A clock at which nobody has read yet; one that never comes, if somebody has left and no longer reads."""
        return max(read for worker, read in enumerate(self.reads) if worker not in self.dead)

    def commit(self, worker: int, clock: int) -> None:
        """An update of this stamp came; its worker will not read at this clock again."""
        self.commits[worker] = clock + 1
        self.read(worker, clock)

    def read(self, worker: int, clock: int) -> None:
        """The worker has been given the weights for this clock."""
        self.reads[worker] = max(self.reads[worker], clock + 1)

    def leave(self, worker: int, died: bool = False) -> None:
        """Nobody waits for this worker any more."""
        self.present.discard(worker)
        if died:
            self.dead.add(worker)
        self.commits[worker] = self.reads[worker] = _NEVER

    # -- checkpoints ----------------------------------------------------------------------------------

    def numbers(self) -> dict[str, int]:
        """The updates included in the weights so far."""
        return {"clock": self.step} | {f"worker {worker}": applied for worker, applied in enumerate(self.applied)}

    def restore(self, numbers: Mapping[str, int]) -> None:
        """Resume from there, before any request.

        Raises:
            ArrayError: these are the numbers of other workers.
        """
        if set(numbers) != set(self.numbers()):
            raise ArrayError(
                f"the state has the numbers {sorted(numbers)}; this server has {len(self.applied)} workers"
            )
        self.step = numbers["clock"]
        self.applied = [numbers[f"worker {worker}"] for worker in range(len(self.applied))]
        self.commits = list(self.applied)


_NEVER = 1 << 62
