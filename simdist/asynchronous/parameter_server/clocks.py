"""Clocks: the progress of each worker, as one server knows it."""

from collections.abc import Mapping
from typing import NamedTuple

from simdist.arrays import Array
from simdist.errors import ArrayError

__all__ = ["Clocks", "Push"]

_NEVER = 1 << 62


class Push(NamedTuple):
    """A received update, with its worker, its clock stamp, and the version of the weights that it was computed from."""

    worker: int
    clock: int
    version: int
    keys: slice
    values: Array
    rows: Array | None = None


class Clocks:
    """The progress of each worker, and the current step of the server.

    Attributes:
        commits: by worker, one more than the stamp of its last update received.
        applied: by worker, one more than the stamp of its last update applied.
        reads: by worker, one more than the highest clock at which it has read, or can no longer read.
        step: the number of steps closed, where the rule closes steps, which workers that come later skip.
        present: the workers that have neither left nor died.
        dead: the workers that died.
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
        """The number of workers that have not died, including those that have left."""
        return len(self.commits) - len(self.dead)

    @property
    def unread(self) -> int:
        """The lowest clock above all reads so far; one that is never reached if a worker has left."""
        return max(read for worker, read in enumerate(self.reads) if worker not in self.dead)

    def commit(self, worker: int, clock: int) -> None:
        """An update of this stamp arrived; its worker will not read at this clock again."""
        self.commits[worker] = clock + 1
        self.read(worker, clock)

    def read(self, worker: int, clock: int) -> None:
        """The worker has received the weights for this clock."""
        self.reads[worker] = max(self.reads[worker], clock + 1)

    def leave(self, worker: int, died: bool = False) -> None:
        """From now on nothing waits for this worker."""
        self.present.discard(worker)
        if died:
            self.dead.add(worker)
        self.commits[worker] = self.reads[worker] = _NEVER

    # -- checkpoints ----------------------------------------------------------------------------------

    def numbers(self) -> dict[str, int]:
        """The progress included in the weights so far."""
        return {"clock": self.step} | {f"worker {worker}": applied for worker, applied in enumerate(self.applied)}

    def restore(self, numbers: Mapping[str, int]) -> None:
        """Resume from these numbers, before any request.

        Raises:
            ArrayError: they are of another number of workers.
        """
        if set(numbers) != set(self.numbers()):
            raise ArrayError(
                f"the state has the numbers {sorted(numbers)}; this server has {len(self.applied)} workers"
            )
        self.step = numbers["clock"]
        self.applied = [numbers[f"worker {worker}"] for worker in range(len(self.applied))]
        self.commits = list(self.applied)
