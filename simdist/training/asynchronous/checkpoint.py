"""Checkpoint: writes an asynchronous run between two stretches to a checkpoint, and restores it.

Ranks that need not wait for each other have no common step, but they can have a consistent cut: no message is in
flight. A stretch ends like this:

    bsp, backup, ssp       all workers are before the same step; the servers have all updates of the steps before
    async                  each worker is before a step of its own; the servers have every update that was made
    d-psgd                 all ranks have made the same steps, and have averaged after the last
    ad-psgd                each rank has made its own number of steps; no averaging is under way
    local-sgd, post-local  all ranks have just averaged
    diloco                 all ranks have just made the outer step
    a program's own        each rank has made its own number of steps; no message is under way

A run that resumes from a checkpoint does what the run that wrote it did next. bsp, d-psgd and those that average do so
to the last bit, if the order of sums is the same. In the others it depends on who comes first; on virtual ranks, where
times follow from seeds, only where two ranks come within microseconds of each other.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from simdist.comm import Communicator
from simdist.errors import ArgumentError, CheckpointMismatch, CorruptCheckpoint
from simdist.nn import Parameters
from simdist.parallel.holding import Shard
from simdist.training.asynchronous.methods import SERVED, gossips
from simdist.training.checkpoint import ShardedTensor, load, read_manifest, save
from simdist.training.checkpoint.together import on_rank_0
from simdist.training.config import Config
from simdist.training.state import State, amount, count, number, plain, tensors

__all__ = ["AsynchronousState", "Origin", "load_checkpoint", "rank_prefix", "read_origin", "save_checkpoint"]


class Origin(NamedTuple):
    """What must be known about a checkpoint before it can be read.

    Attributes:
        step: after which it was written.
        method: the one that wrote it; "" for those with a common step.
        ranks: how many wrote it.
        optimizer: of the run that wrote it, as `_optimizer_words`; "" if it does not say.
    """

    step: int
    method: str
    ranks: int
    optimizer: str = ""

    @property
    def optimizer_per_rank(self) -> bool:
        """Whether it has an optimizer's state for each rank."""
        return self.method not in ("", *SERVED)

    @property
    def weights_per_rank(self) -> bool:
        """Whether it has weights for each rank."""
        return gossips(self.method)

    @contextmanager
    def read_with(self, config: Config) -> Iterator[None]:
        """A context for reading it into a run: its CheckpointMismatch names the optimizers of both, if they differ.

        Not every other optimizer is refused: one without any state misses none.
        """
        try:
            yield
        except CheckpointMismatch as error:
            optimizer = _optimizer_words(config.optimizer, config.momentum)
            if self.optimizer in ("", optimizer):
                raise
            told = f"the optimizer of the checkpoint is {self.optimizer}, and that of this run {optimizer}"
            raise CheckpointMismatch(f"{told}: {error}") from error


class AsynchronousState(NamedTuple):
    """What a checkpoint of a run has beside its vectors.

    Attributes:
        common: what the checkpoint of any run has.
        done: how many steps each worker had made.
        optimizer_steps: how many each one's optimizer, or the servers'.
        judged: (mark, validation loss) of the marks that have no line yet.
        tallies: sums over the steps since the last line; see `Log`.
        logged_s: how long the run had taken at the last line.
    """

    common: State
    done: list[int]
    optimizer_steps: list[int]
    judged: list[tuple[int, float]]
    tallies: list[tuple[int, list[float]]]
    logged_s: float = 0.0


def read_origin(root: Path, comm: Communicator, step: int | None = None) -> Origin:
    """The kind of the checkpoint of a step, or of the latest; rank 0 reads it, and all must call.

    Raises:
        CheckpointError: as of `load`, on all ranks.
    """

    def look() -> str:
        manifest = read_manifest(root, step)
        method = _word(manifest.extra, "asynchronous", "method")
        optimizer = _optimizer_words(*(_word(manifest.extra, "run", "config", of) for of in ("optimizer", "momentum")))
        return json.dumps([manifest.step, method, manifest.num_ranks, optimizer])

    return Origin(*json.loads(on_rank_0(comm, look)))


def _optimizer_words(name: str, momentum: object) -> str:
    """The optimizer by what its state depends on; SGD has none without momentum."""
    return f"{name} without momentum" if name and str(momentum) in ("0", "0.0") else name


def _word(extra: Any, *keys: str) -> str:
    """What a checkpoint's extra, which may be anything, has under these keys, as a short text; "" if nothing."""
    for key in keys:
        extra = extra.get(key, "") if isinstance(extra, dict) else ""
    return str(extra)[:100]


def save_checkpoint(
    root: Path,
    comm: Communicator,
    parameters: Parameters,
    vectors: Mapping[str, Shard],
    state: AsynchronousState,
    keep: int | None,
) -> None:
    """Write a checkpoint, called after the steps that all workers have made; all ranks must call.

    The errors are those of `save`, and so is what a crash leaves: the checkpoints before this one, and it or not.
    """
    told = {"method": state.common.config["method"]} | state._asdict()
    told.pop("common")
    extra = {
        "run": plain(state.common._asdict()),
        "method": {"optimizer.num_steps": state.optimizer_steps[0]},
        "asynchronous": plain(told),
    }
    save(root, comm, min(state.done), _tensors(parameters, vectors), extra, keep=keep)


def load_checkpoint(
    root: Path, comm: Communicator, parameters: Parameters, wanted: Mapping[str, Shard], origin: Origin, workers: int
) -> AsynchronousState:
    """Fill these vectors from a checkpoint; all ranks must call.

    Args:
        workers: the number in this run. A cut of another number will do if all of those had made equally many steps.

    Raises:
        CheckpointError: as of `load`, on all ranks.
        CorruptCheckpoint: also where it is not that of a training run.
        ArgumentError: it is of another number of workers, at different steps.
    """
    found: list[AsynchronousState] = []

    def accept(step: int, extra: Any) -> None:
        state = _decoded(root, step, extra)
        found.append(state._replace(done=_done_by(workers, state.done, origin)))

    load(root, comm, _tensors(parameters, wanted), origin.step, accept=accept)
    return found[0]


def _decoded(root: Path, step: int, extra: Any) -> AsynchronousState:
    """The state that a checkpoint's extra tells of."""
    try:
        common = State.of(extra["run"])
        beside = 0, 0, 0.0, common.targets, common.auxiliary_loss
        told = extra.get("asynchronous") or {
            "done": [step],
            "optimizer_steps": [extra["method"]["optimizer.num_steps"]],
            "judged": [],
            "tallies": [(step + 1, [common.loss, common.targets, common.seconds, *beside])],
            "logged_s": common.seconds,
        }
        done, optimizer_steps = list(map(count, told["done"])), list(map(count, told["optimizer_steps"]))
        if not done or not optimizer_steps:
            raise ValueError("no worker")
        judged = [(count(mark), number(loss)) for mark, loss in told["judged"]]
        tallies = [(count(mark), _tally(numbers)) for mark, numbers in told["tallies"]]
        return AsynchronousState(common, done, optimizer_steps, judged, tallies, amount(told["logged_s"]))
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptCheckpoint(
            f"the checkpoint of step {step} in {root} is not one of a training run: {error!r}"
        ) from error


def _tally(told: list[Any]) -> list[float]:
    """Sums over the steps since a line, as `Log` has them; losses may be nan, and the last one was not always kept."""
    loss, *amounts, auxiliary_loss = told if len(told) == 8 else [*told, 0.0]
    if len(amounts) != 6:
        raise ValueError(f"{len(told)} sums where 8 should be")
    return [number(loss), *map(amount, amounts), number(auxiliary_loss)]


def _done_by(workers: int, done: list[int], origin: Origin) -> list[int]:
    """How many steps each of this many workers has made, by a checkpoint of perhaps another number."""
    if len(done) == workers:
        return done
    if min(done) < max(done):
        raise ArgumentError(
            f"the checkpoint of step {origin.step} is of {len(done)} workers that were {max(done) - min(done)} steps "
            f"apart by {origin.method}; this run has {workers}"
        )
    return done[:1] * workers


def rank_prefix(origin: Origin, comm: Communicator, per_rank: bool, has_state: bool) -> str:
    """The prefix of what a checkpoint has for this rank alone; "" if all have the same.

    Args:
        per_rank: whether each rank of this run has its own optimizer.
        has_state: whether that has any state.

    Raises:
        ArgumentError: the checkpoint has state for each rank, and this run has none, or another number of ranks.
    """
    if not origin.optimizer_per_rank or not (has_state or origin.weights_per_rank):
        return ""
    if not per_rank or origin.ranks != comm.size:
        what = "weights" if origin.weights_per_rank else "an optimizer's state"
        here = f"this run has {comm.size}" if per_rank else "this run's have it in common"
        raise ArgumentError(
            f"the checkpoint of step {origin.step} is of {origin.ranks} ranks by {origin.method}, each with {what} "
            f"of its own; {here}"
        )
    return f"rank{comm.rank}/"


def _tensors(parameters: Parameters, vectors: Mapping[str, Shard]) -> dict[str, ShardedTensor]:
    """As `tensors`, for vectors of one shard each."""
    return tensors(parameters, {prefix: [shard] for prefix, shard in vectors.items()})
