"""State: writes a training run between two steps to a checkpoint, and restores it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from simdist.comm import Communicator
from simdist.errors import CheckpointMismatch, CorruptCheckpoint
from simdist.nn import Parameters
from simdist.parallel import Learner
from simdist.parallel.holding import Shard
from simdist.parallel.pipeline.schedules import FILES
from simdist.parallel.pipeline.text import load as load_schedule
from simdist.parallel.pipeline.text import to_text
from simdist.training.checkpoint import ShardedTensor, flat_shard, load, save
from simdist.training.config import Config
from simdist.training.option import differing

__all__ = [
    "State",
    "amount",
    "changes",
    "count",
    "number",
    "plain",
    "restore_state",
    "save_state",
    "saved_config",
    "tensors",
]

_HARMLESS = ("checkpoint_every", "keep_checkpoints", "interval", "trace_steps", "sample_bytes", "temperature")


class State(NamedTuple):
    """The state of a run that a checkpoint holds besides the weights and the method's own state.

    Attributes:
        config: as a dictionary; all but the name of the text.
        text: the digest of what it trains on.
        loss, targets: since the last line of the log: the summed loss of all ranks, and over how many bytes.
        seconds: inside its steps.
        auxiliary_loss: of the layers themselves, summed as the loss is.
    """

    config: dict[str, Any]
    text: str
    loss: float = 0.0
    targets: int = 0
    seconds: float = 0.0
    auxiliary_loss: float = 0.0

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "State":
        """The state that `plain` was given.

        Raises:
            TypeError, ValueError: it is anything else.
        """
        state = cls(**told)
        if not isinstance(state.config, dict) or not isinstance(state.text, str):
            raise ValueError(f"{state.config!r:.50} and {state.text!r:.50} where a config and a text should be")
        loss, auxiliary_loss = number(state.loss), number(state.auxiliary_loss)
        return cls(state.config, state.text, loss, count(state.targets), amount(state.seconds), auxiliary_loss)


def plain(value: Any) -> Any:
    """A value for JSON, which has no nan and no infinity, as in a diverged loss: these become None."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def number(told: Any) -> float:
    """The number that `plain` was given: nan for None. ValueError if it is anything else."""
    if told is not None and type(told) not in (int, float):
        raise ValueError(f"{told!r:.50} where a number should be")
    return nan if told is None else float(told)


def amount(told: Any) -> float:
    """The same number, if it is finite and at least 0; ValueError if not."""
    if not isfinite(found := number(told)) or found < 0:
        raise ValueError(f"{told!r:.50} where a finite number of at least 0 should be")
    return found


def count(told: Any) -> int:
    """The same number, if it is whole and at least 0; ValueError if not."""
    if type(told) is not int or not 0 <= told < 2**63:
        raise ValueError(f"{told!r:.50} where a whole number of at least 0 should be")
    return told


def save_state(root: Path, comm: Communicator, step: int, method: Learner, state: State, keep: int | None) -> None:
    """Write a checkpoint after this many steps; all ranks must call. The arguments and errors are those of `save`."""
    extra = {"run": plain(state._asdict()), "method": method.numbers()}
    save(root, comm, step, tensors(method.model.parameters, method.vectors()), extra, keep=keep)


def restore_state(root: Path, comm: Communicator, method: Learner, step: int | None = None) -> tuple[int, State]:
    """Restore the method from a checkpoint, the latest if no step is given; all ranks must call.

    Returns:
        after how many steps it was written, and the rest of the state.

    Raises:
        CheckpointError: on all ranks, as of `load`.
        CorruptCheckpoint: also where it is not that of a training run.
    """
    parameters, vectors = method.model.parameters, method.vectors()

    def accept(step: int, extra: Any) -> None:
        try:
            count(extra["method"]["optimizer.num_steps"])
            method.update.check(extra["method"])
            State.of(extra["run"])
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise CorruptCheckpoint(
                f"the checkpoint of step {step} in {root} is not one of a training run: {error}"
            ) from error

    try:
        done, extra = load(root, comm, tensors(parameters, vectors), step, accept=accept)
    except CheckpointMismatch:
        # Another method may have put nothing off, so its checkpoint has no such vectors.
        lasting = {name: shards for name, shards in vectors.items() if not name.startswith("compression.")}
        if len(lasting) == len(vectors):
            raise
        done, extra = load(root, comm, tensors(parameters, lasting), step, accept=accept)
    method.restore(vectors, extra["method"])
    return done, State.of(extra["run"])


def saved_config(config: Config) -> dict[str, Any]:
    """The config as a checkpoint keeps it: without the names of files, as equal files may have other names."""
    known = asdict(config) | {"data": ""}
    if (config.schedule or "").endswith(FILES):
        rows = to_text(replace(load_schedule(config.schedule), name=""))
        known["schedule"] = f"of rows {sha256(rows.encode()).hexdigest()[:8]}"
    return known


def changes(config: Config, text: str, state: State) -> list[str]:
    """The settings in which a resumed run differs from the original one, in words.

    Settings that are of use in one of them only, as bucket_bytes in some methods, are left out, but for those of the
    resumed run that are not the defaults.
    """
    now = saved_config(config) | {"data": text}
    then = state.config | {"data": state.text}
    chosen = {name for name, value in now.items() if value is not None and then.get(name) is not None}
    chosen |= {"data", *differing(config)}
    names = [name for name in now if name in chosen and name not in _HARMLESS and now[name] != then.get(name)]
    return [name if name == "data" else f"{name} {now[name]}, was {then.get(name)}" for name in names]


def tensors(parameters: Parameters, vectors: Mapping[str, list[Shard]]) -> dict[str, ShardedTensor]:
    """Shards of vectors, by the prefix of their names, as tensors by parameter; views of the vectors."""
    found: dict[str, ShardedTensor] = {}
    for prefix, shards in vectors.items():
        for start, data in shards:
            for name, tensor in flat_shard(data, parameters, start, prefix).items():
                before = found[name].pieces if name in found else ()
                found[name] = ShardedTensor(tensor.shape, tensor.dtype, (*before, *tensor.pieces))
    return found
