"""Group: what the members of a virtual communicator have in common."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.cluster import Network
from simdist.comm.mismatch import listed, mismatch
from simdist.comm.placement import Placement
from simdist.comm.virtual.channel import Channel, where
from simdist.comm.virtual.lookout import Lookout
from simdist.comm.virtual.scheduler import Fiber, Scheduler
from simdist.errors import CollectiveMismatch

__all__ = ["Agreement", "Group"]


class Agreement:
    """One call of `agree`: who has said what so far.

    Nobody waits for it: a rank that says what the first one said goes on at once.
    """

    __slots__ = ("group", "said")

    def __init__(self, group: "Group") -> None:
        self.group = group
        self.said: dict[str, list[int]] = {}

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, for a rank that found itself contradicted."""
        return "waits for the others to say what they call", list(self.group.ranks)

    def error(self) -> CollectiveMismatch:
        """The verdict, the same for every rank."""
        calls = ["nothing"] * self.group.size
        for what, ranks in self.said.items():
            for rank in ranks:
                calls[rank] = what
        return mismatch(self.group.context, calls)


class Meeting:
    """One call that all members make: who has come, and what each brought, for everybody."""

    __slots__ = ("brought", "doing", "fibers", "group", "kind", "missing")

    def __init__(self, group: "Group", kind: str, doing: str) -> None:
        self.group = group
        self.kind = kind
        self.doing = doing
        self.brought: list[Any] = [None] * group.size
        self.missing = set(range(group.size))
        self.fibers: list[Fiber] = []

    def waits_for(self) -> tuple[str, list[int]]:
        """In words, and who has not come yet."""
        ranks = [self.group.ranks[r] for r in sorted(self.missing)]
        there = f"a {self.kind}{where(0, self.doing)} on {self.group.context!r}"
        return f"waits for {listed(ranks)} to come to {there}", ranks


class Group:
    """The members, the channels between them, and the calls in which they find together.

    Attributes:
        context: its name.
        ranks, nodes: the global rank and the node of each member.
        channels: those that have been used, by the rank where they end and the rank where they begin.
        family: the name of the group that this one is a shadow or a stream's twin of, or its own.
        dispute: the agreement in which members contradicted each other, if they did.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        context: str,
        ranks: Sequence[int],
        nodes: Placement,
        family: str,
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.context = context
        self.ranks = ranks
        self.nodes = nodes
        self.size = len(ranks)
        self.family = family
        self.channels: dict[int, dict[int, Channel]] = {}
        self._lookouts: dict[int, Lookout] = {}
        self.dispute: Agreement | None = None
        self._agreements: dict[int, Agreement] = {}
        self._meetings: dict[tuple[str, int], Meeting] = {}  # to which some have come and some not
        self._kin: dict[str, Group] = {}
        self._parts: dict[int, tuple[dict[int, list[int]], list[int]]] = {}  # by split
        self._shared: dict[tuple[int, int], Array] = {}

    def twin(self, name: str, family: str | None = None) -> "Group":
        """The same members under another name, whose messages match only each other."""
        context = self.context + name
        if context not in self._kin:
            self._kin[context] = Group(self.scheduler, self.network, context, self.ranks, self.nodes, family or context)
        return self._kin[context]

    def subgroup(self, name: str, members: Sequence[int]) -> "Group":
        """Some of the members, in this order; whoever asks for the same name gets the same group."""
        context = self.context + name
        if context not in self._kin:
            ranks, nodes = [self.ranks[m] for m in members], self.nodes.part(members)
            self._kin[context] = Group(self.scheduler, self.network, context, ranks, nodes, context)
        return self._kin[context]

    def part(self, number: int, notes: Sequence[str], color: int, rank: int) -> tuple["Group", int]:
        """The group of a color in split `number`, and this member's rank there; worked out once for all of them.

        Args:
            notes: by rank, the color and the key that each gave; "" for no color.
        """
        if number not in self._parts:
            keys: dict[int, list[tuple[int, int]]] = {}
            for r, note in enumerate(notes):
                if note:
                    its_color, key = map(int, note.split())
                    keys.setdefault(its_color, []).append((key, r))
            parts = {c: [r for _, r in sorted(members)] for c, members in keys.items()}
            places = [-1] * self.size
            for members in parts.values():
                for place, r in enumerate(members):
                    places[r] = place
            self._parts[number] = parts, places
        parts, places = self._parts[number]
        return self.subgroup(f"/{number}:{color}", parts[color]), places[rank]

    def shared(self, call: int, node: int, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """The array of a node's members' call number `call` of `shared`: made by the first that comes."""
        if (call, node) not in self._shared:
            self._shared[call, node] = np.zeros(shape, dtype)
        return self._shared[call, node]

    def channel(self, src: int, dst: int) -> Channel:
        """The channel from one member to another."""
        incoming = self.channels.get(dst)
        if incoming is None:
            incoming = self.channels[dst] = {}
        channel = incoming.get(src)
        if channel is None:
            path = self.network.path(self.ranks[src], self.ranks[dst])
            channel = incoming[src] = Channel(src, path, self.scheduler, self._lookouts.get(dst))
        return channel

    def lookout(self, dst: int) -> Lookout:
        """What watches all channels that end at this member."""
        lookout = self._lookouts.get(dst)
        if lookout is None:
            incoming = self.channels.setdefault(dst, {})
            lookout = self._lookouts[dst] = Lookout(self.scheduler, incoming)
            for channel in incoming.values():
                channel.lookout = lookout
        return lookout

    def agree(self, call: int, rank: int, what: str) -> None:
        """Register what `rank` says in its call number `call`; block it if that is disputed."""
        agreement = self._agreements.get(call)
        if agreement is None:
            agreement = self._agreements[call] = Agreement(self)
        agreement.said.setdefault(what, []).append(rank)
        if len(agreement.said) > 1 and self.dispute is None:
            self.dispute = agreement
        if self.dispute is not None:
            self.scheduler.block(self.dispute)
        elif len(agreement.said[what]) == self.size:
            del self._agreements[call]

    def meet(self, kind: str, call: int, rank: int, thing: Any, doing: str, latency_s: float = 0.0) -> list[Any]:
        """What each member brought to its call number `call` of this kind; all leave so long after the last has come.

        Args:
            rank, thing, doing: who comes, what it brings, and in what.
        """
        meeting = self._meetings.get((kind, call))
        if meeting is None:
            meeting = self._meetings[kind, call] = Meeting(self, kind, doing)
        meeting.brought[rank] = thing
        meeting.missing.remove(rank)
        fiber = self.scheduler.running
        meeting.fibers.append(fiber)
        if meeting.missing:
            try:
                self.scheduler.block(meeting)
            except Exception:  # it goes on without the others, who are not to wake it from what it does then
                meeting.fibers.remove(fiber)
                raise
        else:
            del self._meetings[kind, call]
            end_s = max(f.clock_s for f in meeting.fibers) + latency_s
            for f in meeting.fibers:
                f.clock_s = end_s
                if f is not fiber:
                    self.scheduler.ready(f, end_s)
        return meeting.brought
