"""Group: the shared state of the members of a virtual communicator."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simdist.arrays import Array
from simdist.arrays.kind import address, owner
from simdist.cluster import Network
from simdist.comm.checks import mismatch
from simdist.comm.open_requests import unreceived
from simdist.comm.placement import Placement
from simdist.comm.virtual.channel import Channel, where
from simdist.comm.virtual.lookout import Lookout
from simdist.comm.virtual.scheduler import Fiber, Scheduler
from simdist.errors import ArrayError, CollectiveMismatch
from simdist.words import listed

__all__ = ["Agreement", "Group"]


@dataclass(eq=False, slots=True)
class Agreement:
    """One call of `agree`: what the ranks have said so far.

    A rank that says the same as the first one continues at once.
    """

    group: "Group"
    said: dict[str, list[int]] = field(default_factory=dict)

    def waits_for(self) -> tuple[str, list[int]]:
        """See Waiting: for a rank that disagrees with another."""
        return "waits for the others to say what they call", list(self.group.ranks)

    def give_up(self, fiber: Fiber) -> None:
        """See Waiting."""

    def error(self) -> CollectiveMismatch:
        """The error, the same for every rank."""
        calls = ["nothing"] * self.group.size
        for what, ranks in self.said.items():
            for rank in ranks:
                calls[rank] = what
        return mismatch(self.group.context, calls)


class Meeting:
    """A call that all members make together, and what each of them brought to it."""

    __slots__ = ("brought", "doing", "fibers", "group", "kind", "missing")

    def __init__(self, group: "Group", kind: str, doing: str) -> None:
        self.group = group
        self.kind = kind
        self.doing = doing
        self.brought: list[Any] = [None] * group.size
        self.missing = set(range(group.size))
        self.fibers: list[Fiber] = []

    def waits_for(self) -> tuple[str, list[int]]:
        """See Waiting: the ranks that have not come yet."""
        ranks = [self.group.ranks[r] for r in sorted(self.missing)]
        there = f"a {self.kind}{where(0, self.doing)} on {self.group.context!r}"
        return f"waits for {listed(ranks)} to come to {there}", ranks

    def give_up(self, fiber: Fiber) -> None:
        """See Waiting: it counts as one that has come."""
        self.fibers.remove(fiber)


@dataclass(slots=True)
class Owned:
    """The arrays that members have given to one call so far: of each memory the last one, and who gave it."""

    by_root: dict[int, tuple[int, weakref.ref[Any]]] = field(default_factory=dict)
    num_ranks: int = 0


class Group:
    """The members, the channels between them, and the collective calls under way.

    Attributes:
        context: its name.
        ranks, nodes: the global rank and the node of each member.
        channels: those in use, by destination and source.
        family: of a shadow, the name of its group; otherwise its own name.
        dispute: the first agreement in which members disagreed, if any.
    """

    def __init__(
        self, scheduler: Scheduler, network: Network, context: str, ranks: Sequence[int], nodes: Placement, family: str
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
        self._owned: dict[int, Owned] = {}  # by call
        self._meetings: dict[tuple[str, int], Meeting] = {}  # that are not complete
        self._kin: dict[str, Group] = {}
        self._parts: dict[int, dict[int, tuple[Group, int]]] = {}  # by split and member
        self._shared: dict[tuple[int, int], Array] = {}

    def twin(self, name: str, family: str | None = None) -> "Group":
        """The group of the same members under another name; its messages match only each other."""
        context = self.context + name
        if context not in self._kin:
            self._kin[context] = Group(self.scheduler, self.network, context, self.ranks, self.nodes, family or context)
        return self._kin[context]

    def part(self, number: int, notes: Sequence[str], rank: int) -> tuple["Group", int]:
        """This member's group after split `number`, and its rank there; all are made for the first member that asks.

        Args:
            notes: by rank, the color and the key that each gave; "" for no color.
        """
        if number not in self._parts:
            keys: dict[int, list[tuple[int, int]]] = {}
            for r, note in enumerate(notes):
                if note:
                    its_color, key = map(int, note.split())
                    keys.setdefault(its_color, []).append((key, r))
            parts = self._parts[number] = {}
            for its_color, alike in keys.items():
                members, context = [r for _, r in sorted(alike)], f"{self.context}/{number}:{its_color}"
                ranks, nodes = [self.ranks[r] for r in members], self.nodes.part(members)
                self._kin[context] = Group(self.scheduler, self.network, context, ranks, nodes, context)
                parts |= {r: (self._kin[context], place) for place, r in enumerate(members)}
        return self._parts[number][rank]

    def shared(self, call: int, node: int, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """The array of call number `call` of `shared` on a node: the first member that comes makes it."""
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
        """The lookout for all channels that end at this member."""
        lookout = self._lookouts.get(dst)
        if lookout is None:
            incoming = self.channels.setdefault(dst, {})
            lookout = self._lookouts[dst] = Lookout(self.scheduler, incoming)
            for channel in incoming.values():
                channel.lookout = lookout
        return lookout

    def unreceived(self) -> list[str]:
        """The messages that no receive has taken, in words, of this group and those made from it."""
        found = [
            unreceived(self.ranks[src], self.ranks[dst], data.nbytes, tag, self.context)
            for dst, incoming in self.channels.items()
            for src, channel in incoming.items()
            for data, tag, *_ in channel.messages
        ]
        return found + [row for kin in self._kin.values() for row in kin.unreceived()]

    def agree(self, call: int, rank: int, what: str) -> None:
        """Register what `rank` says in its call number `call`; block it if ranks disagree."""
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

    def own(self, call: int, rank: int, x: Array) -> None:
        """Register the memory that `rank` gives to its call number `call`, to which no other may give the same."""
        owned = self._owned.setdefault(call, Owned())
        root = id(owner(x))
        other, known = owned.by_root.get(root, (rank, None))
        theirs = None if known is None else known()  # it is gone when the other has left, and its memory is used again
        if theirs is not None and address(theirs) == address(x):
            raise ArrayError(
                f"ranks {other} and {rank} gave the same array, of shape {x.shape}, to a call that writes to it: "
                "virtual ranks share the variables of one process; each needs an array of its own, such as a copy"
            )
        owned.by_root[root] = rank, weakref.ref(x)
        owned.num_ranks += 1
        if owned.num_ranks == self.size:
            del self._owned[call]

    def meet(self, kind: str, call: int, rank: int, thing: Any, doing: str, latency_s: float = 0.0) -> list[Any]:
        """What each member brought to its call number `call` of this kind; all leave latency_s after the last has come.

        Args:
            rank, thing: the member that comes, and what it brings.
            doing: the operation that this is part of, for error messages.
        """
        self.scheduler.turn()
        meeting = self._meetings.get((kind, call))
        if meeting is None:
            meeting = self._meetings[kind, call] = Meeting(self, kind, doing)
        meeting.brought[rank] = thing
        meeting.missing.remove(rank)
        fiber = self.scheduler.running
        meeting.fibers.append(fiber)
        if meeting.missing:
            self.scheduler.block(meeting)
        else:
            del self._meetings[kind, call]
            end_s = max(f.clock_s for f in meeting.fibers) + latency_s
            for f in meeting.fibers:
                f.clock_s = end_s
                if f is not fiber:
                    self.scheduler.ready(f, end_s)
        return meeting.brought
