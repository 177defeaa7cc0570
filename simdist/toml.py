"""TOML: reads and checks settings files."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simdist.errors import ArgumentError, require_known
from simdist.file import read_file

__all__ = ["check_kinds", "read"]

_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def read(path: Path, what: str) -> dict[str, Any]:
    """The contents of a file.

    Args:
        what: the kind of file, for error messages.

    Raises:
        DataError: as of `read_file`.
        ArgumentError: it is not TOML.
    """
    text = read_file(path, f"the {what} file")
    try:
        return tomllib.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"the {what} file {path} is not TOML: {error}") from error


def check_kinds(settings: Mapping[str, Any], kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings, checked against the type of each key; an int is accepted as a float.

    Args:
        kinds: int, float, str, bool, list or dict, by key.
        where: where the settings are, for error messages.

    Raises:
        UnknownNameError: a key is not in `kinds`; the message names the nearest one.
        ArgumentError: a value has another type.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        require_known(f"key in {where}:", key, kinds)
        wanted = kinds[key]
        try:
            found[key] = float(value) if wanted is float and type(value) is int else value
        except OverflowError:
            raise ArgumentError(f"{key} in {where} is too large for a float") from None
        if type(found[key]) is not wanted:
            raise ArgumentError(f"{key} in {where} is {value!r}; needs {_KINDS[wanted]}")
    return found
