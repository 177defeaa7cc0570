"""Settings: reads those of a config from a TOML file, and merges two sets of them."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from simdist import toml
from simdist.errors import ArgumentError
from simdist.training.config import IMPLYING_METHOD, Config, options
from simdist.training.methods import PIPELINE
from simdist.training.models import SIZES, kind
from simdist.training.option import ELSEWHERE, Per

__all__ = ["merged", "read_toml", "spelled"]


def spelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with each name as simdist spells it: see `Option.named`."""
    known = dict(options())
    return {name: known[name].named(value) if name in known else value for name, value in given.items()}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of base, overridden by those of `over`.

    Settings that depend on a changed one, as the learning rate depends on the optimizer, become their defaults
    unless `over` gives them too; so does the method if `over` has a setting that implies one. Between two GPTs only
    the sizes do.
    """
    base, over = spelled(base), spelled(over)
    settings: dict[str, Any] = {}
    changed = {name for name in over if name in base and base[name] != over[name]}
    implied = any(name in over and over[name] != base.get(name) for name in IMPLYING_METHOD)
    if implied and base.get("method", PIPELINE) != PIPELINE:  # a pipeline has such settings itself
        changed.add("method")
    resized = "model" in changed and kind(base["model"]) == kind(over["model"])
    for name, what in options():
        depends = isinstance(what.default, Per) and what.default.setting in changed
        if name in over:
            settings[name] = over[name]
        elif name in changed or (depends and (name in SIZES or not resized)):
            changed.add(name)
        elif name in base:
            settings[name] = base[name]
    return settings


def read_toml(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file. A key is a field of `Config` or its alias.

    Raises:
        DataError: the file cannot be read.
        UnknownNameError: a key is no field; the message names the nearest one.
        ArgumentError: the file is not TOML, a value is of the wrong type, a setting has two, or a key is for the
            command line only.
    """
    path, told = Path(path), dict[str, Any]()
    names = {what.alias.replace("-", "_"): name for name, what in options() if what.alias}
    for key, value in toml.read(path, "config").items():
        if key in ELSEWHERE:
            raise ArgumentError(f"{key} in {path} is no setting of a run: it goes on the command line, --{key}")
        plain = key.replace("-", "_")
        name = names.get(plain, plain)
        if name in told:
            raise ArgumentError(f"{name} is in {path} by two names")
        told[name] = value
    return toml.check_kinds(told, {f.name: f.type for f in fields(Config)}, str(path))
