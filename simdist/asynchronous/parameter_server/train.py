"""Training through a parameter server: the parts of servers and workers, and their reports.

server    | wait |update| wait |update|     wait     |update| …
                 ^      |      ^      |              ^
               push  weights  push  weights        push
                 |      v      |      v              |
workers   compute --- wait --- | compute --- compute --- …

Workers can be released before the last step. The servers' states are then one consistent cut of the run: all have
applied the same updates, namely all that any worker has made. Under a rule with a bound all workers then stand before
the same step; otherwise each stands before its own. A resumed run begins with the weights that workers read last.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from simdist.arrays import Array
from simdist.asynchronous.compute_time import ComputeTime, Constant
from simdist.asynchronous.parameter_server.client import Client, Rows
from simdist.asynchronous.parameter_server.consistency import Consistency, Synchronous
from simdist.asynchronous.parameter_server.layout import Layout
from simdist.asynchronous.parameter_server.server import Counts, Server
from simdist.asynchronous.parameter_server.shard import ServerState, Shard
from simdist.asynchronous.worker import Asked, Rate
from simdist.comm import Communicator
from simdist.errors import require_least, require_more
from simdist.optim import SGD, Optimizer

__all__ = ["Gradient", "ParameterServer", "ServerReport", "WorkerReport", "plain_sgd", "train", "waited_shares"]

Gradient: TypeAlias = Callable[[Array, int], tuple[float, Array | Rows]]
"""gradient(weights, step) -> (loss, gradient), of this worker's own data; it does not change the weights."""


def plain_sgd(weights: Array, start: int) -> Optimizer:
    """weights ← weights - learning_rate · gradient."""
    return SGD(weights, momentum=0.0, start=start)


@dataclass(frozen=True)
class ParameterServer:
    """How ranks train through servers; equal on all ranks.

    Args:
        num_servers: the first ranks, each with a slice of the weights; the others are workers.
        consistency: the rule by which reads and updates wait.
        optimizer: makes each server's optimizer, from its weights and their start in the whole vector.
        staleness_aware: whether staler updates have less weight; see `Server`.
        row_width: the width of the rows of sparse gradients.
        deadline_s: how long a worker may be silent before the others continue without it; None for no limit. A worker
            that comes back while they train is dismissed; one that comes back later waits for a server in vain.
        compute_time: extra time of each rank's step, in addition to its actual computation.
        stops: rank -> the step before which it falls silent, to test what the others do.

    Raises:
        ArgumentError: deadline_s is not above 0.
    """

    num_servers: int = 1
    consistency: Consistency = field(default_factory=Synchronous)
    optimizer: Callable[[Array, int], Optimizer] = plain_sgd
    staleness_aware: bool = False
    row_width: int = 1
    deadline_s: float | None = None
    compute_time: ComputeTime = field(default_factory=Constant)
    stops: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            require_more("deadline_s", self.deadline_s, 0)

    def layout(self, comm: Communicator, num_keys: int) -> Layout:
        """Which ranks are servers and workers, and which server holds which keys.

        Raises:
            ArgumentError: there are too few ranks.
        """
        layout = Layout(comm.size, self.num_servers, num_keys, self.row_width)
        self.consistency.check(layout.num_workers)
        return layout


@dataclass
class ServerReport:
    """A server's report.

    Attributes:
        state: its weights, and all else that is needed to resume.
        counts: of updates.
        elapsed_s, waited_s: the time that it served, and the part of that in which it waited for requests.
    """

    state: ServerState
    counts: Counts
    elapsed_s: float
    waited_s: float


@dataclass
class WorkerReport:
    """A worker's report.

    Attributes:
        clocks, times_s, losses: of each step that it finished: its number, its time, and the loss at its weights.
        num_given_up: steps abandoned because they were over before this worker had finished.
        elapsed_s, waited_s: the time that it trained, and the part of that in which it waited for servers.
        ended: "done"; "let go", released early with all others; "stopped", as planned; "dismissed", taken for dead.
    """

    clocks: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    num_given_up: int = 0
    elapsed_s: float = 0.0
    waited_s: float = 0.0
    ended: str = "done"


def train(
    comm: Communicator,
    weights: Array,
    gradient: Gradient,
    steps: int,
    learning_rate: Rate,
    server: ParameterServer | None = None,
    *,
    state: ServerState | None = None,
    until: int | None = None,
    asked: Asked = lambda: False,
) -> ServerReport | WorkerReport:
    """Train through parameter servers, each rank in its role.

    Args:
        weights: shape (n,), the initial values, equal on all ranks; a worker's end as it last read them.
        gradient, steps, learning_rate: of this worker's data; in total, with those before `state`; of a step of all.
        server, state: how to train; and for a server, the state to resume from. Workers get it from the servers.
        until, asked: see `Server`; if any rank is asked, all workers are released.

    Cost of a step: each server with n_j keys receives and sends p · (40 bytes + n_j items), for p workers.

    Raises:
        ArgumentError, ArrayError, CollectiveMismatch: there are too few ranks, arrays do not fit, or ranks disagree.
        RankFailed: a worker has died, and the rest cannot continue without it.
    """
    require_least("steps", steps, 0)
    setup = server or ParameterServer()
    layout = setup.layout(comm, len(weights))
    comm.agree(f"parameter server: {layout} of {weights.dtype}, {setup.consistency}, {steps} steps")
    comm.exchange("")  # a server still in an earlier run would take requests of this run for its own
    if setup.consistency.num_spare(layout.num_workers):
        comm.survive()
    if layout.serves(comm):
        return _serve(comm, layout, weights, learning_rate, setup, state, until, asked)
    return _work(comm, layout, weights, gradient, steps, setup, asked)


def _serve(
    comm: Communicator,
    layout: Layout,
    weights: Array,
    rate: Rate,
    setup: ParameterServer,
    state: ServerState | None,
    until: int | None,
    asked: Asked,
) -> ServerReport:
    """The part of a server."""
    keys = layout.keys(comm.rank)
    own = weights[keys].copy()
    shard = Shard(own, keys, layout.row_width, setup.optimizer(own, keys.start))
    server = Server(
        comm,
        layout,
        shard,
        setup.consistency,
        rate if callable(rate) else lambda step: rate,
        staleness_aware=setup.staleness_aware,
        deadline_s=setup.deadline_s,
        until=until,
        asked=asked,
    )
    if state is not None:
        server.restore(state)
    start_s = comm.clock()
    server.serve()
    return ServerReport(server.state(), server.counts, comm.clock() - start_s, server.waited_s)


def _work(
    comm: Communicator,
    layout: Layout,
    weights: Array,
    gradient: Gradient,
    steps: int,
    setup: ParameterServer,
    asked: Asked,
) -> WorkerReport:
    """The part of a worker."""
    report, client, start_s = WorkerReport(), Client(comm, layout, weights.dtype), comm.clock()
    last, halted = min(steps, setup.stops.get(comm.rank, steps)), False
    clock = client.pull(weights)
    while clock is not None and clock < last and not client.ended:
        loss, g, now = _compute(client, gradient, weights, clock, setup)
        if not halted and (halted := asked()):
            client.halt()
        if now is None:
            report.clocks.append(clock)
            report.times_s.append(comm.clock())
            report.losses.append(float(loss))
            clock = client.push_pull(clock, g, weights)
        else:
            report.num_given_up += 1
            clock = client.pull(weights, now)
    if clock is None:
        report.ended = "dismissed"
    elif clock < steps:
        report.ended = "let go" if client.ended else "stopped"
    if report.ended != "stopped":
        client.leave()
    report.elapsed_s, report.waited_s = comm.clock() - start_s, client.waited_s
    return report


def _compute(
    client: Client, gradient: Gradient, weights: Array, clock: int, setup: ParameterServer
) -> tuple[float, Array | Rows, int | None]:
    """The loss and the gradient of a step; and the current step, if this one is over before they are there."""
    comm, times, now = client.comm, setup.compute_time, None
    start_s = comm.clock()
    with comm.span("compute"):
        loss, g = gradient(weights, clock)
        worked_s = comm.clock() - start_s
        if setup.consistency.announces:
            now = client.is_over(clock, comm.clock() + times.more_s(comm.rank, clock, worked_s))
    if not setup.consistency.announces:
        times.spend(comm, clock, worked_s)
    return loss, g, now


def waited_shares(comm: Communicator, report: ServerReport | WorkerReport) -> list[float]:
    """By rank, the share of its time that it waited. All ranks must call it."""
    share = report.waited_s / report.elapsed_s if report.elapsed_s else 0.0
    return [float(told) for told in comm.exchange(repr(share))]
