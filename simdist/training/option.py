"""Option: the values that a setting of a training run accepts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar

from simdist.errors import ArgumentError, UnknownNameError, unknown_name
from simdist.words import OTHER_OPTIONS, meant

__all__ = ["ELSEWHERE", "Option", "Per", "check_names", "checking_names", "differing", "option"]

ELSEWHERE = ("ranks", "world", "cluster", "out", "resume", "survive")
"""Options of a run's start, given anew each time: no settings."""

_Settings = TypeVar("_Settings")

_MOST = 2**40
"""The default limit of a number: more than any run needs, and far below what integers and floats hold."""


class Per:
    """A default that depends on another setting. For values of that one not listed here, the setting is unused.

        learning_rate: Per("optimizer", sgd=0.3, adamw=0.001)     0.3, or 0.001, or refused

    Args:
        setting: the name of the other one, which must be declared earlier.
        known: returns the defaults by its values; called at each use, as programs may add values.
        defaults: the same, if they are fixed.
    """

    def __init__(self, setting: str, known: Callable[[], Mapping[str, Any]] | None = None, /, **defaults: Any) -> None:
        self.setting = setting
        self._known = known or (lambda: defaults)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults, by the other setting's values."""
        return self._known()

    def __str__(self) -> str:
        """As in the help: "0.3 for sgd, lars; 0.001 for adamw"."""
        users: dict[Any, list[str]] = {}
        for value, default in self.defaults.items():
            users.setdefault(default, []).append(value)
        return "; ".join(f"{default} for {', '.join(values)}" for default, values in users.items())


@dataclass(frozen=True)
class Option:
    """The values that a field of `Config` accepts, for its check and for the command line's help.

    Args:
        choices: the names that it accepts; any if there are none. A function if programs may add names: it is
            called at each use.
        least, below: a number must be at least `least` and less than `below`.
        above: whether it must be more than `least`.
        alias: another name on the command line.
        files: the suffix of files that are accepted instead of a choice.
        others: further names, and the choices that they stand for.
        metavar: the placeholder for the value in the help.
    """

    group: str
    default: Any
    help: str
    choices: Sequence[str] | Callable[[], Sequence[str]] = ()
    least: float = 0
    below: float = _MOST
    above: bool = False
    alias: str = ""
    files: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    metavar: str = ""

    @property
    def names(self) -> Sequence[str]:
        """The current choices."""
        return self.choices() if callable(self.choices) else self.choices

    def resolve(self, name: str, value: Any, others: Mapping[str, Any]) -> Any:
        """The value of a setting: the given one, a choice in any spelling, or its default for None.

        Args:
            others: the settings declared before it.

        Raises:
            ArgumentError: the value is outside its limits, or the setting is unused with the others.
            UnknownNameError: it is none of the choices.
        """
        default = self.default
        if isinstance(default, Per):
            other, defaults = others[default.setting], default.defaults
            if value is not None and other not in defaults:
                raise ArgumentError(
                    f"{name} is {value}, and {default.setting} {other}; {name} is for {default.setting} "
                    f"{', '.join(defaults)}"
                )
            default = defaults.get(other)
        value = self.named(default if value is None else value)
        if value is not None:
            self.check(name, value)
        return value

    def named(self, value: Any) -> Any:
        """The choice that a name in any spelling stands for; the value itself, where it stands for none."""
        if not isinstance(value, str) or self._is_free(value):
            return value
        return meant(value, self.names, self.others) or value

    def _is_free(self, value: str) -> bool:
        """Whether this text need not be one of the choices."""
        return not self.names or bool(self.files and value.endswith(self.files))

    def check(self, name: str, value: str | float) -> None:
        """Raise ArgumentError unless a value of the right type is within the limits, or UnknownNameError, a choice."""
        if isinstance(value, str):
            if value not in self.names and not self._is_free(value):
                raise unknown_name(name, value, self.names)
        elif not (self.least <= value < self.below) or (self.above and value == self.least):
            needs = f"{'more than' if self.above else 'at least'} {self.least:g}"
            if self.below < _MOST or value >= self.below:
                needs += f" and less than {self.below:,}"
            raise ArgumentError(f"{name} is {value}; needs {needs}")


def option(
    group: str, default: Any, help: str, choices: Sequence[str] | Callable[[], Sequence[str]] = (), **limits: Any
) -> Any:
    """A dataclass field with such an option."""
    return field(default=None, metadata={"option": Option(group, default, help, choices, **limits)})


def differing(settings: Any) -> dict[str, Any]:
    """The settings of a dataclass of options that are not the defaults with those before them."""
    known: dict[str, Any] = {}
    found = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if value != each.metadata["option"].resolve(each.name, None, known):
            found[each.name] = value
        known[each.name] = value
    return found


def check_names(settings: type, given: Iterable[str]) -> None:
    """Raise UnknownNameError for a name that is none of a dataclass of options, with the nearest that is one."""
    options: dict[str, Option] = {f.name: f.metadata["option"] for f in fields(settings)}
    for name in given:
        if name in options:
            continue
        if name in ELSEWHERE:
            raise UnknownNameError(f"{name} is no setting of a run: it is given where one starts, as by --{name}")
        others = {what.alias: known for known, what in options.items() if what.alias}
        others |= {other: others.get(one, one.replace("-", "_")) for other, one in OTHER_OPTIONS.items()}
        near = meant(name, options, others)
        if near in options:
            raise UnknownNameError(f"unknown setting {name!r}: it is called {near}")
        raise unknown_name("setting", name, options)


def checking_names(settings: type[_Settings]) -> type[_Settings]:
    """The same dataclass of options, which refuses unknown names by `check_names`, instead of a TypeError."""
    checking: Any = settings
    create = checking.__init__

    @wraps(create)
    def checked(self: _Settings, *values: Any, **given: Any) -> None:
        check_names(settings, given)
        create(self, *values, **given)

    checking.__init__ = checked
    return settings
