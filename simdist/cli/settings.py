"""Settings: the options of a training run on the command line, one for each field of Config."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from simdist.training import Config
from simdist.training.config import options

__all__ = ["add_options", "as_words", "given_options"]

_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME"}
_MOST_LISTED = 40  # names of an option; of more, the help has some
_SOME = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each field of Config, in its groups."""
    kinds: dict[str, Any] = {f.name: f.type for f in fields(Config)}
    groups: dict[str, Any] = {}
    for name, option in options():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        flags = [f"--{name.replace('_', '-')}"] + ([f"--{option.alias}"] if option.alias else [])
        choices = f": {_listed(option.names)}" if option.names else ""
        help = f"{option.help}{choices} ({option.default})".replace("%", "%%")
        kind = kinds[name]
        takes: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if kind is not bool:
            takes = {"type": kind, "metavar": option.metavar or _METAVARS[kind]}
        groups[option.group].add_argument(*flags, dest=name, help=help, **takes)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST_LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:_SOME])}, … {names[-1]}; {len(names)} in all, which the error for any other name lists"


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The settings given on the command line."""
    return {name: getattr(args, name) for name, _ in options() if getattr(args, name) is not None}


def as_words(given: Mapping[str, Any]) -> list[str]:
    """Settings as command-line arguments."""
    words = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        words.append(f"--{'' if value else 'no-'}{flag}" if isinstance(value, bool) else f"--{flag}={value}")
    return words
