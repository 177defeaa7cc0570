"""Lookout: receives from any source, at one member of a group."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from simdist.comm.communicator import ANY
from simdist.comm.virtual.channel import Channel, where
from simdist.comm.virtual.scheduler import Fiber, Scheduler

if TYPE_CHECKING:
    from simdist.comm.virtual.group import Group

__all__ = ["AnyReceive", "Lookout"]


@dataclass(eq=False, slots=True)
class AnyReceive:
    """A fiber that is blocked in a receive from any source.

    Attributes:
        due_s: when it is due to continue; inf if not yet known.
    """

    group: "Group"
    doing: str
    fiber: Fiber
    tag: int
    due_s: float = inf

    def waits_for(self) -> tuple[str, list[int]]:
        """See Waiting: any other rank could end it."""
        ranks = [r for r in self.group.ranks if r != self.fiber.rank]
        return f"waits to receive from any rank{where(self.tag, self.doing)}", ranks

    def give_up(self, fiber: Fiber) -> None:
        """See Waiting."""
        self.due_s = -inf

    def continue_by(self, scheduler: Scheduler, time_s: float) -> None:
        """Let the fiber continue at this time, if that is earlier than due_s."""
        due_s = max(self.fiber.clock_s, time_s)
        if due_s < self.due_s:
            if self.due_s < inf:
                scheduler.withdraw(self.fiber, self.due_s)
            scheduler.ready(self.fiber, due_s)
            self.due_s = due_s


class Lookout:
    """Watches all channels that end at one member; each of them reports its messages here.

    Attributes:
        channels: those that may hold messages, by source.
        receives: the blocked receives.
    """

    def __init__(self, scheduler: Scheduler, channels: dict[int, Channel]) -> None:
        self.channels = dict(channels)
        self.receives: list[AnyReceive] = []
        self._scheduler = scheduler

    def tell(self, channel: Channel, tag: int, ready_s: float) -> None:
        """Report a new message: let the receives that it matches continue."""
        self.channels[channel.src] = channel
        for receive in self.receives:
            if receive.tag in (tag, ANY):
                receive.continue_by(self._scheduler, ready_s)

    def first(self, tag: int) -> tuple[float, Channel | None]:
        """When the first message with this tag is ready, and its channel; of several, that of the lowest rank."""
        self.channels = {src: channel for src, channel in self.channels.items() if channel.messages}
        oldest = ((channel.first(tag), src) for src, channel in self.channels.items())
        ready_s, src = min(((message[2], src) for message, src in oldest if message), default=(inf, -1))
        return ready_s, self.channels.get(src)

    def await_first(self, group: "Group", doing: str, tag: int, until_s: float) -> Channel | None:
        """The channel of the message that arrives first; the clock advances to its arrival.

        None if none arrives until until_s; then the clock advances to that. A message in flight may be overtaken by one
        that is not sent yet: so this waits until no other rank is at a time before its arrival.

        Args:
            group, doing: the group and the operation of the wait, for error messages.
        """
        scheduler = self._scheduler
        scheduler.turn()
        fiber = scheduler.running
        while True:
            ready_s, channel = self.first(tag)
            if ready_s <= fiber.clock_s or until_s <= fiber.clock_s:
                return channel if ready_s <= fiber.clock_s else None
            receive = AnyReceive(group, doing, fiber, tag)
            receive.continue_by(scheduler, min(ready_s, until_s))
            self.receives.append(receive)
            try:
                scheduler.block(receive)
            finally:
                self.receives.remove(receive)
            next_s = min(self.first(tag)[0], until_s)
            if next_s < inf:
                fiber.clock_s = max(fiber.clock_s, next_s)
