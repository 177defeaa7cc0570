"""Config: all that a training run hangs on, from a TOML file, the command line or a call."""

import json
import math
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from simdist.collectives import algorithms
from simdist.data import PYTHON
from simdist.errors import ArgumentError, DataError, unknown_name
from simdist.nn.shape import RECOMPUTATIONS
from simdist.training.models import models

__all__ = ["Config", "Option", "options", "read_toml"]

_LOGITS = ("tied", "untied")
_KINDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True)
class Option:
    """What a field of `Config` takes, for its check and for the command line's help.

    Args:
        group: what part of the run it belongs to.
        help: what it means.
        least, below: numbers must be at least `least` and less than `below`.
        alias: another name on the command line.
        metavar: what stands for the value in the help.
    """

    group: str
    help: str
    least: float = 0
    below: float = math.inf
    alias: str = ""
    metavar: str = ""


def _option(group: str, default: Any, help: str, **limits: Any) -> Any:
    return field(default=default, metadata={"option": Option(group, help, **limits)})


def _all_reduces() -> list[str]:
    return ["auto", *algorithms("all_reduce")]


@dataclass(frozen=True)
class Config:
    """One training run. Two runs of equal configs on any number of ranks train alike.

    Raises:
        ArgumentError: a value lies outside its limits.
        UnknownNameError: there is no such model, algorithm, dtype, recomputation or way to logits.
    """

    model: str = _option("model", "mlp", f"what to train: {', '.join(models())}")
    context_bytes: int = _option("model", 16, "how many bytes it sees", least=1, alias="context")
    dtype: str = _option("model", "float32", "of weights and gradients: float32, float64")
    embedding_width: int = _option("the mlp", 32, "numbers that stand for a byte", least=1)
    hidden_width: int = _option("the mlp", 256, "numbers in a hidden layer", least=1)
    hidden_layers: int = _option("the mlp", 2, "how many hidden layers")
    layers: int = _option("the gpt", 4, "how many blocks of attention and perceptron")
    width: int = _option("the gpt", 256, "numbers that stand for a byte; a multiple of the heads", least=1)
    heads: int = _option("the gpt", 4, "heads of attention in each block", least=1)
    dropout: float = _option("the gpt", 0.0, "the share of activations dropped in training", below=1)
    logits: str = _option("the gpt", "tied", f"from the embedding's table or their own: {', '.join(_LOGITS)}")
    recompute: str = _option("the gpt", "none", f"activations made again in backward: {', '.join(RECOMPUTATIONS)}")
    data: str = _option(
        "text", PYTHON, f'a file; "{PYTHON}" is Python\'s own documentation and sources', metavar="FILE"
    )
    validation_share: float = _option("text", 0.1, "how much of it is kept to judge by", below=1)
    validation_windows: int = _option("text", 2048, "windows that a validation loss is taken over", least=1)
    steps: int = _option("training", 600, "how many batches to train on", least=1)
    global_batch_size: int = _option("training", 512, "windows a step, of all ranks together", least=1, alias="batch")
    learning_rate: float = _option("training", 0.3, "the highest, after the warm-up", alias="lr")
    warmup_steps: int = _option("training", 20, "steps in which the learning rate climbs")
    momentum: float = _option("training", 0.9, "how much of the velocity stays from step to step", below=1)
    seed: int = _option("training", 0, "of the first weights, the batches and the split", below=2**63)
    algorithm: str = _option("training", "auto", f"of the all-reduce: {', '.join(_all_reduces())}")
    interval: int = _option("log", 50, "steps from one line to the next", least=1)
    trace_steps: int = _option("log", 20, "how many of the last steps the trace keeps")

    def __post_init__(self) -> None:
        for name, option in options():
            value = getattr(self, name)
            if isinstance(value, str):
                continue
            if not (option.least <= value < option.below):
                below = f" and less than {option.below:g}" if option.below < math.inf else ""
                raise ArgumentError(f"{name} is {value}; needs at least {option.least:g}{below}")
        for kind, name, known in (
            ("model", self.model, models()),
            ("dtype", self.dtype, ["float32", "float64"]),
            ("all_reduce algorithm", self.algorithm, _all_reduces()),
            ("logits", self.logits, _LOGITS),
            ("recomputation", self.recompute, RECOMPUTATIONS),
        ):
            if name not in known:
                raise unknown_name(kind, name, known)

    def toml(self) -> str:
        """The config as TOML, which `read_toml` reads back."""
        # JSON's strings, numbers and booleans are TOML's; only DEL may stand in JSON unescaped.
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in asdict(self).items())
        return "".join(lines).replace("\x7f", "\\u007f")


def options() -> Iterable[tuple[str, Option]]:
    """The name of each field of a config and what it takes."""
    return ((f.name, f.metadata["option"]) for f in fields(Config))


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, one key a field of `Config`; those it does not name are left out.

    Raises:
        DataError: the file cannot be read.
        UnknownNameError: a key is no field; the message names the nearest one.
        ArgumentError: the file is not TOML, or a value is of the wrong type.
    """
    path = Path(path)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read the config file {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ArgumentError(f"the config file {path} is not TOML: {error}") from error
    types = {f.name: f.type for f in fields(Config)}
    for key, value in settings.items():
        if key not in types:
            raise unknown_name(f"key in {path}:", key, types)
        wanted = types[key]
        if wanted is float and type(value) is int:
            settings[key] = float(value)
        elif type(value) is not wanted:
            raise ArgumentError(f"{key} in {path} is {value!r}; needs {_KINDS[wanted]}")
    return settings
