"""Role: what one rank does in an asynchronous run, stretch by stretch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from operator import add
from typing import NamedTuple

from simdist.arrays import Array
from simdist.asynchronous.worker import Asked
from simdist.comm import Communicator
from simdist.nn import Parameters
from simdist.parallel.holding import Shard
from simdist.training.asynchronous.checkpoint import AsynchronousState, Origin
from simdist.training.asynchronous.measured_gradient import MeasuredGradient, StepCost
from simdist.training.config import Config

__all__ = ["RankReport", "Role"]


class RankReport(NamedTuple):
    """What one rank did in a stretch, or in several, and what that cost.

    Attributes:
        clocks, times_s, losses: of each step that this rank finished as a worker: its number, when its gradient
            was ready, on the communicator's clock, and the loss, in nats a byte.
        waited_s, elapsed_s: how long it waited for others, nan where only the record tells; how long it took in all.
        staleness: of each update that it applied as a server.
        num_late, num_given_up: updates that came too late to it as a server; steps that it gave up as a worker.
        costs: of its steps, as far as they are on the record.
        flops: of all its gradients.
        norm: of the last one, before clipping; nan without clipping.
        auxiliary_losses: of the layers themselves, by step, in nats, summed over this rank's tokens; also of steps
            that it gave up.
    """

    clocks: list[int]
    times_s: list[float]
    losses: list[float]
    waited_s: float = nan
    elapsed_s: float = 0.0
    staleness: Sequence[int] = ()
    num_late: int = 0
    num_given_up: int = 0
    costs: Sequence[StepCost] = ()
    flops: int = 0
    norm: float = nan
    auxiliary_losses: Sequence[tuple[int, float]] = ()

    def then(self, later: "RankReport") -> "RankReport":
        """This report and a later one as one; both hold lists."""
        return RankReport(*map(add, self, later))._replace(norm=later.norm)


@dataclass(eq=False, repr=False)
class Role(ABC):
    """One rank's part. Between two stretches no message is in flight: the ranks' states are one cut of the run.

    Args:
        comm: the ranks; later those that are left.
        weights: shape (n,), the initial ones. A peer trains them; a worker with servers keeps there what it read last.

    Attributes:
        done: how many steps each worker has made; the same on all ranks.
    """

    comm: Communicator
    _config: Config
    _parameters: Parameters
    _weights: Array
    _gradient: MeasuredGradient
    done: list[int] = field(init=False)

    @abstractmethod
    def __post_init__(self) -> None:
        """Set `done`, and what else the role needs."""

    @property
    def front(self) -> int:
        """The step from which the next stretch is measured."""
        return min(self.done)

    @abstractmethod
    def train(self, until: int, asked: Asked) -> RankReport:
        """Train until this many steps are done, or any rank is asked to stop; all ranks must call."""

    @abstractmethod
    def collect(self) -> None:
        """Set the weights on all ranks to the run's result; all must call."""

    @abstractmethod
    def vectors(self) -> dict[str, Shard]:
        """This rank's vectors for a checkpoint, each with one item a weight, by the prefix of their names there."""

    @abstractmethod
    def optimizer_steps(self) -> list[int]:
        """How many steps each worker's optimizer has made, or the servers'; all ranks must call."""

    @abstractmethod
    def wanted(self, origin: Origin) -> dict[str, Shard]:
        """The vectors to fill from a checkpoint of this kind.

        Raises:
            ArgumentError: this run cannot resume from such a checkpoint; on all ranks.
        """

    @abstractmethod
    def restore(self, wanted: dict[str, Shard], state: AsynchronousState) -> None:
        """Resume from these vectors, now filled.

        Raises:
            ArgumentError: as of `wanted`.
        """
