"""Server: a rank that holds a shard of the weights, takes updates from workers and sends them weights."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from math import inf

from simdist.arrays import moved
from simdist.asynchronous.parameter_server.clocks import Clocks, Push
from simdist.asynchronous.parameter_server.consistency import Consistency
from simdist.asynchronous.parameter_server.layout import Layout
from simdist.asynchronous.parameter_server.message import REQUEST, Kind, Message, buffer_for
from simdist.asynchronous.parameter_server.outbox import Outbox
from simdist.asynchronous.parameter_server.shard import ServerState, Shard
from simdist.asynchronous.worker import Asked
from simdist.comm import Communicator
from simdist.errors import PeerLost, RankFailed

__all__ = ["WAIT", "Counts", "Server"]

WAIT = "wait for workers"
"""The span of a server's wait for the next request."""


@dataclass
class Counts:
    """The counts of one server.

    Attributes:
        staleness: of each update applied, in order of application: the number of times that the weights changed
            between its worker's read and its application.
        applied: (worker, clock) of each update, in the same order.
        num_late: updates that arrived after their step was closed, and were dropped.
        num_duplicates: updates that had arrived before, and were ignored.
    """

    staleness: list[int] = field(default_factory=list)
    applied: list[tuple[int, int]] = field(default_factory=list)
    num_late: int = 0
    num_duplicates: int = 0


@dataclass(eq=False, repr=False)
class Server:
    """Answers workers until all have left.

        take a request    PUSH, PULL, …        from any worker, in order of arrival
        apply updates     that are due         by the consistency rule
        answer reads      that are admitted    by the same rule

    It never waits in a send, so servers and workers cannot wait for each other in a cycle. Its memory is its shard and
    a sum of updates of the same size, and a copy of each update held and each answer in flight, at most one of either
    per worker.

    Args:
        comm: all ranks, servers and workers.
        consistency: the rule by which reads and updates wait; equal on all servers.
        learning_rate: of each step. A step applies the mean of the updates of all workers; an update that is applied
            separately has 1/p of the rate, for p workers alive: so p of them decay weights once, and make one of Adam's
            steps.
        staleness_aware: give such an update 1/τ of the rate instead, where τ is its staleness, at least 1.
        deadline_s: a worker that owes a request and is silent for this long counts as dead; None for no limit.
        until: after this many whole steps all workers are released, including those ahead.
        asked: whether this server has been asked to release them.

    Raises:
        RankFailed: more workers have died than the rule tolerates.

    Source of the staleness-aware rate: Zhang, Gupta, Lian, Liu 2016, IJCAI, "Staleness-aware Async-SGD for
    Distributed Deep Learning".
    """

    comm: Communicator
    layout: Layout
    shard: Shard
    consistency: Consistency
    learning_rate: Callable[[int], float]
    _: KW_ONLY
    staleness_aware: bool = False
    deadline_s: float | None = None
    until: int | None = None
    asked: Asked = lambda: False

    def __post_init__(self) -> None:
        num_workers = self.layout.num_workers
        self.consistency.check(num_workers)
        self.clocks = Clocks(num_workers)
        self.counts = Counts()
        self.waited_s = 0.0  # for requests
        self._held: list[Push] = []
        self._waiting: dict[int, dict[int, slice]] = {}  # clock -> worker -> the keys it reads
        self._versions = [0] * num_workers  # of the weights that each worker read last
        self._last_contact_s = [0.0] * num_workers
        self._outbox = Outbox(self.comm, self.layout, self._restart_deadline)
        self._release_clock: float = inf  # the clock from which on workers are released
        self._newest_push: Push | None = None  # a view of the packet
        self._packet = buffer_for(self.shard.weights, self.layout.row_width)

    def serve(self) -> None:
        """Answer until no worker is left."""
        self._last_contact_s = [self.comm.clock()] * self.layout.num_workers
        while self.clocks.present:
            arrived = self._receive()
            if arrived is not None:
                self._handle(*arrived)
            self._apply_and_answer()
        self._outbox.finish()

    def halt(self) -> None:
        """Release all workers as soon as the rule allows it, each with the weights for a step that it will not make.

        Calling it on one server is enough: at the end all servers have applied all updates of the steps before.
        """
        self._release_clock = min(self._release_clock, self.consistency.end(self.clocks))

    # -- requests ---------------------------------------------------------------------------------------

    def _receive(self) -> tuple[int, Message] | None:
        """The next request and its worker; None if a worker has died instead."""
        comm, start_s, limits_s = self.comm, self.comm.clock(), self._limits_s()
        try:
            with comm.span(WAIT):
                if limits_s and not comm.probe(REQUEST, min(limits_s.values())):
                    self._drop_silent(limits_s)
                    return None
                status = comm.recv(self._packet, tag=REQUEST)
        except PeerLost:
            self._drop_lost()
            return None
        finally:
            self.waited_s += comm.clock() - start_s
        worker = self.layout.worker(status.src)
        self._restart_deadline(worker)
        message = Message.unpacked(self._packet[: status.num_bytes], self.shard.weights.dtype)
        return worker, message._replace(values=moved(message.values, self.shard.weights))

    def _handle(self, worker: int, message: Message) -> None:
        kind, clock = message.kind, message.clock
        if kind == Kind.HALT:
            self.halt()
        elif worker in self.clocks.dead or kind == Kind.LEAVE:
            self.clocks.leave(worker)
            if kind != Kind.PUSH:  # a worker taken for dead expects no answer to a PUSH
                self._outbox.send(worker, Message(Kind.BYE))
            return
        if kind in (Kind.PUSH, Kind.PUSH_PULL):
            self._hold_push(worker, message)
            clock += 1
        if kind in (Kind.PULL, Kind.PUSH_PULL):
            if clock < 0:
                clock = self.consistency.clock_of(self.clocks, worker)
            self._waiting.setdefault(clock, {})[worker] = message.keys

    def _hold_push(self, worker: int, message: Message) -> None:
        """Keep an update, unless it is a duplicate or too late."""
        clocks, clock = self.clocks, message.clock
        if clock < clocks.commits[worker]:
            self.counts.num_duplicates += 1
            return
        clocks.commit(worker, clock)
        if not self.consistency.wants(clocks, clock):
            self.counts.num_late += 1
            return
        self._newest_push = Push(worker, clock, self._versions[worker], message.keys, message.values, message.rows)
        self._held.append(self._newest_push)

    # -- what follows from them ---------------------------------------------------------------------------

    def _apply_and_answer(self) -> None:
        """Apply all that is due and answer all that is admitted; each may enable the other."""
        again = True
        while again:
            for pushes in self.consistency.due(self.clocks, self._held):
                self._apply(pushes)
            over = self.until is not None and self.consistency.num_whole_steps(self.clocks) >= self.until
            if self.asked() or over:
                self.halt()
            again = self._answer_admitted()
        if self._held and self._held[-1] is self._newest_push:
            self._packet = buffer_for(self.shard.weights, self.layout.row_width)
        self._newest_push = None

    def _apply(self, pushes: list[Push]) -> None:
        """Make one step with these updates."""
        shard, first = self.shard, pushes[0]
        stale = [shard.version - push.version for push in pushes]
        rate = self.learning_rate(first.clock)
        if not self.consistency.whole_steps:
            rate *= 1 / max(1, stale[0]) if self.staleness_aware else 1 / self.clocks.num_alive
        with self.comm.span("update"):
            shard.apply(pushes, rate)
        self.counts.staleness += stale
        for push in pushes:
            self.counts.applied.append((push.worker, push.clock))
            self.clocks.applied[push.worker] = push.clock + 1
        if self.consistency.announces:  # to those still computing for the step just closed
            step = self.clocks.step
            for worker in self.clocks.present - {push.worker for push in pushes}:
                if self.clocks.reads[worker] == step:
                    self._outbox.send(worker, Message(Kind.OVER, step))

    def _answer_admitted(self) -> bool:
        """Send weights to all workers that may read now; returns whether there were any."""
        admitted = [clock for clock in sorted(self._waiting) if self.consistency.admits(self.clocks, clock)]
        for clock in admitted:
            for worker, keys in self._waiting.pop(clock).items():
                # A step may have been closed since the request: the worker begins with the current one.
                now = max(clock, self.clocks.step)
                self.clocks.read(worker, now)
                self._versions[worker] = self.shard.version
                kind = Kind.END if now >= self._release_clock else Kind.WEIGHTS
                self._outbox.send(worker, Message(kind, now, keys, self.shard.read(keys)))
        return bool(admitted)

    # -- workers that die -----------------------------------------------------------------------------------

    def _restart_deadline(self, worker: int) -> None:
        """Restart the deadline of a worker: it has sent a request, or has just been sent an answer."""
        self._last_contact_s[worker] = self.comm.clock()

    def _limits_s(self) -> dict[int, float]:
        """By worker that owes a request, when its deadline passes; empty without a deadline."""
        if self.deadline_s is None:
            return {}
        waiting = {worker for workers in self._waiting.values() for worker in workers}
        return {worker: self._last_contact_s[worker] + self.deadline_s for worker in self.clocks.present - waiting}

    def _drop_silent(self, limits_s: dict[int, float]) -> None:
        """Continue without the workers that have been silent for too long."""
        now_s = self.comm.clock()
        for worker in [worker for worker, limit_s in limits_s.items() if limit_s <= now_s]:
            self._drop(worker)

    def _drop_lost(self) -> None:
        """Continue without the workers that are known to have died; without a server that is impossible."""
        for rank in self.comm.lost():
            worker = self.layout.worker(rank)
            if worker < 0:
                raise RankFailed(f"server {rank} of {self.layout.num_servers} has died, and its weights with it")
            if worker in self.clocks.present:
                self._drop(worker)

    def _drop(self, worker: int) -> None:
        """Continue without this worker, if the consistency rule tolerates that."""
        clocks, p = self.clocks, self.layout.num_workers
        clocks.leave(worker, died=True)
        self._outbox.drop(worker)
        for workers in self._waiting.values():
            workers.pop(worker, None)
        spare = self.consistency.num_spare(p)
        if len(clocks.dead) > spare:
            raise RankFailed(
                f"worker {worker} of {p} (rank {self.layout.rank_of(worker)}) has died; "
                f"{self.consistency} can do without {spare}, and {len(clocks.dead)} are dead"
            )

    # -- checkpoints ----------------------------------------------------------------------------------------

    def state(self) -> ServerState:
        """The state to resume from. Updates that are held but not applied are not in it; their workers repeat them."""
        numbers = {"steps": self.shard.optimizer.num_steps} | self.clocks.numbers()
        return ServerState(self.shard.keys, self.shard.vectors(), numbers)

    def restore(self, state: ServerState) -> None:
        """Resume from a state; to be called before `serve`.

        Raises:
            ArrayError: the state is of other keys, another optimizer, or another number of workers.
        """
        self.clocks.restore({name: number for name, number in state.numbers.items() if name != "steps"})
        self.shard.restore(state)
