"""Times: how long the actions of a pipeline take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from simdist.errors import ArgumentError, require_least
from simdist.parallel.pipeline.action import Action, Backward, BackwardInput, BackwardWeight, Forward, Overlapped, Part
from simdist.parallel.pipeline.schedule import Schedule

__all__ = ["Clockwork", "Times"]

Seconds = float | Sequence[float]
_MOST = 1e100  # keeps sums and products finite


@dataclass(frozen=True, slots=True)
class Times:
    """How long actions take, in any unit: the T of the papers. Times(1, 1, 1) means a backward twice as long as a
    forward, because each half of it has its own time.

    Args:
        forward, backward_input, backward_weight: TF, TB, TW. A number is for a p-th part of the model: a stage of a
            schedule with S = vp stages takes 1/v of it. A sequence has the time of each of the S stages.
        communication: Tcomm, from the end of an action until its output can be used on another rank; or a mapping
            from (sender, receiver).
        ports: a mapping from (sender, receiver) to the kind of port that its buffered messages use, and how long
            each occupies it. A rank has one port of each kind to send by and one to receive by, through which
            messages go one after the other; those without a port do not wait.
        rendezvous: whether messages with ports wait until their receiver has a buffer for them, as long ones do under
            MPI: see `simdist.parallel.pipeline.schedule.expected`.
        overlapped: F&B, a forward and a whole backward at once, for a p-th part of the model; F+B+W if not given.
        starts: when each rank begins its row, such as after its update; 0 for all if not given.
        backward: of a whole Backward; TB + TW if not given. It takes less where its messages are hidden by both halves.

    Raises:
        ArgumentError: a time is negative, or not less than 1e100.
    """

    forward: Seconds = 1.0
    backward_input: Seconds = 1.0
    backward_weight: Seconds = 1.0
    communication: float | Mapping[tuple[int, int], float] = 0.0
    overlapped: float | None = None
    ports: Mapping[tuple[int, int], tuple[str, float]] | None = None
    rendezvous: bool = False
    starts: Sequence[float] = ()
    backward: Seconds | None = None

    def __post_init__(self) -> None:
        held = [seconds for _, seconds in (self.ports or {}).values()]
        for name in (name for name in self.__slots__ if name != "rendezvous"):
            for value in _numbers(held if name == "ports" else getattr(self, name)):
                require_least(name, value, 0)
                if value >= _MOST:
                    raise ArgumentError(f"{name} is {value}; needs a time of at least 0 and less than {_MOST:g}")

    def hop(self, src: int, dst: int) -> float:
        """Tcomm from one rank to another; the longest of all if this pair is not given."""
        given = self.communication
        return given[src, dst] if isinstance(given, Mapping) and (src, dst) in given else self.longest_hop

    @property
    def longest_hop(self) -> float:
        """The longest Tcomm of any pair of ranks."""
        given = self.communication
        return max(given.values(), default=0.0) if isinstance(given, Mapping) else given


class Clockwork:
    """The times of the actions of one schedule.

    Attributes:
        starts: when each rank begins its row.

    Raises:
        ArgumentError: the number of times is not the number of stages, or that of starts not the number of ranks.
    """

    def __init__(self, schedule: Schedule, times: Times) -> None:
        if times.starts and len(times.starts) != schedule.num_ranks:
            raise ArgumentError(f"starts has {len(times.starts)} times; {schedule.name} has {schedule.num_ranks} ranks")
        self.starts = times.starts or [0.0] * schedule.num_ranks
        self._placement = schedule.placement
        self._pair = None if times.overlapped is None else times.overlapped * schedule.share
        forward, inputs, weights = (
            _of_stages(name, getattr(times, name), schedule)
            for name in ("forward", "backward_input", "backward_weight")
        )
        whole = [i + w for i, w in zip(inputs, weights, strict=True)]
        if times.backward is not None:
            whole = _of_stages("backward", times.backward, schedule)
        self._of: dict[type[Part], list[float]] = {
            Forward: forward,
            Backward: whole,
            BackwardInput: inputs,
            BackwardWeight: weights,
        }

    def of(self, rank: int, action: Action) -> float:
        """How long an action of this rank takes."""
        if self._pair is not None and isinstance(action, Overlapped) and isinstance(action.backward, Backward):
            return self._pair
        stages, of = self._placement[rank], self._of
        return sum(of[type(part)][stages[part.chunk]] for part in action.parts)

    def part(self, kind: type[Part], stage: int) -> float:
        """How long an action of this kind takes on this stage."""
        return self._of[kind][stage]


def _numbers(given: float | Sequence[float] | Mapping[tuple[int, int], float] | None) -> Iterable[float]:
    """All numbers of an argument; none if it was not given."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return given.values()
    return given if isinstance(given, Iterable) else (given,)


def _of_stages(name: str, given: Seconds, schedule: Schedule) -> list[float]:
    """The time of each stage."""
    if isinstance(given, (int, float)):
        return [given * schedule.share] * schedule.num_stages
    if len(given) != schedule.num_stages:
        raise ArgumentError(f"{name} has {len(given)} times; {schedule.name} has {schedule.num_stages} stages")
    return list(given)
