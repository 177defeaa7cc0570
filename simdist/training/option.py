"""Option: what a setting of a training run takes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simdist.errors import ArgumentError, unknown_name

__all__ = ["Option", "Per", "option"]


class Per:
    """A default that hangs on another setting; with values of that one not named here, the setting has no use.

        learning_rate: Per("optimizer", sgd=0.3, adamw=0.001)     0.3, or 0.001, or refused

    Args:
        setting: the other's name; it comes before.
        defaults: by its values.
    """

    def __init__(self, setting: str, **defaults: Any) -> None:
        self.setting = setting
        self.defaults = defaults

    def __str__(self) -> str:
        """As the help says it: "0.3 for sgd, lars; 0.001 for adamw"."""
        users: dict[Any, list[str]] = {}
        for value, default in self.defaults.items():
            users.setdefault(default, []).append(value)
        return "; ".join(f"{default} for {', '.join(values)}" for default, values in users.items())


@dataclass(frozen=True)
class Option:
    """What a field of `Config` takes, for its check and for the command line's help.

    Args:
        group: what part of the run it belongs to.
        default: its value where none is given.
        help: what it means.
        choices: the names that it may have; any where there are none.
        least, below: numbers must be at least `least` and less than `below`,
        above: and more than `least`.
        alias: another name on the command line.
        metavar: what stands for the value in the help.
    """

    group: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: float = 0
    below: float = math.inf
    above: bool = False
    alias: str = ""
    metavar: str = ""

    def resolve(self, name: str, value: Any, others: Mapping[str, Any]) -> Any:
        """The value that a setting has, where `value` was given, or None for its default.

        Args:
            others: the settings before it.

        Raises:
            ArgumentError: it lies outside of its limits, or has no use beside the others.
            UnknownNameError: it is none of the choices.
        """
        default = self.default
        if isinstance(default, Per):
            other = others[default.setting]
            if value is not None and other not in default.defaults:
                raise ArgumentError(
                    f"{name} is {value}, and {default.setting} {other}; {name} is for {default.setting} "
                    f"{', '.join(default.defaults)}"
                )
            default = default.defaults.get(other)
        value = default if value is None else value
        if value is not None:
            self._check(name, value)
        return value

    def _check(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                raise unknown_name(name, value, self.choices)
        elif not (self.least <= value < self.below) or (self.above and value == self.least):
            needs = f"{'more than' if self.above else 'at least'} {self.least:g}"
            if self.below < math.inf or value == math.inf:
                needs += f" and less than {self.below:g}"
            raise ArgumentError(f"{name} is {value}; needs {needs}")


def option(group: str, default: Any, help: str, choices: Iterable[str] = (), **limits: Any) -> Any:
    """A dataclass's field of such an option."""
    return field(default=None, metadata={"option": Option(group, default, help, tuple(choices), **limits)})
