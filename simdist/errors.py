"""Every exception that simdist raises on purpose.

Each names the value, the limit and, where ranks take part, the rank. Each takes a single message, so that
it can be pickled from a rank's process to the one that started it.
"""

from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from math import isnan
from numbers import Integral, Real
from os import sep
from pathlib import Path
from sysconfig import get_paths
from traceback import extract_tb
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "ArgumentError",
    "ArrayError",
    "CheckpointError",
    "CheckpointMismatch",
    "CollectiveMismatch",
    "CorruptCheckpoint",
    "DataError",
    "DeadlineError",
    "DeadlockError",
    "MessageMismatch",
    "PeerLost",
    "RankFailed",
    "ReplicaDrift",
    "ScheduleError",
    "SharedMemoryFull",
    "SimdistError",
    "UnknownNameError",
    "UnmatchedMessage",
    "WorldUnavailable",
    "as_declared",
    "own_line",
    "require_kind",
    "require_known",
    "require_least",
    "require_more",
    "require_name",
    "require_share",
    "require_takes",
    "require_whole",
    "returning",
    "typed",
    "unknown_name",
    "wrong_return",
]

P = ParamSpec("P")
T = TypeVar("T")

_MANY = 30  # names: more are not listed if a near one is found


class SimdistError(Exception):
    """The base class of all errors that simdist raises on purpose."""


class ArgumentError(SimdistError, ValueError):
    """An argument is outside its limits; the message gives both."""


class UnknownNameError(ArgumentError):
    """A name (of an algorithm, an operation, a preset) that does not exist; the message lists those that do."""


class ArrayError(ArgumentError):
    """An array that cannot be used as it is: not contiguous, read-only, of the wrong shape or dtype."""


class ScheduleError(ArgumentError):
    """A pipeline schedule that cannot be executed; the message shows its rows with the fault marked."""


class DataError(SimdistError, OSError):
    """A data file that cannot be read or holds too little."""


class CheckpointError(SimdistError, OSError):
    """A checkpoint cannot be written or read; raised on all ranks alike; earlier checkpoints stay intact."""


class CorruptCheckpoint(CheckpointError):
    """A corrupt checkpoint: truncated, changed, incomplete or forged; nothing was loaded from it."""


class CheckpointMismatch(CheckpointError):
    """A valid checkpoint of something else: other names, shapes or dtypes than asked for; nothing was loaded."""


class CollectiveMismatch(SimdistError):
    """Ranks called different collectives, or the same one with different arguments; raised on all of them."""


class MessageMismatch(SimdistError):
    """A message does not fit the buffer posted for it."""


class DeadlockError(SimdistError):
    """No rank can continue; the message gives the cycle of ranks that wait for each other."""


class DeadlineError(SimdistError, TimeoutError):
    """A wait exceeded its deadline."""


class ReplicaDrift(SimdistError):
    """Replicas of a model that should be equal differ; raised on all ranks, naming those that drifted."""


class RankFailed(SimdistError):
    """A rank ended without a result: it was killed, exited, or raised an error that cannot be pickled."""


class PeerLost(RankFailed):
    """The source or destination of a message has died, and the job may continue without it."""


class SharedMemoryFull(SimdistError, MemoryError):
    """A node's ranks ask for more shared memory than the node has."""


class WorldUnavailable(SimdistError):
    """The MPI world is not available: no MPI is installed, or this is already a rank of an MPI job."""


class UnmatchedMessage(RuntimeWarning):
    """A program has ended although no rank received some message, or waited for some `isend` or `irecv`."""


def require_least(name: str, value: float, least: float) -> None:
    """Raise ArgumentError unless the value of this name is a number of at least `least`; NaN is not."""
    _require_number(name, value)
    if not value >= least:
        raise ArgumentError(f"{name} is {value}; needs at least {least}")


def require_more(name: str, value: float, limit: float) -> None:
    """Raise ArgumentError unless the value of this name is a number above `limit`; NaN is not."""
    _require_number(name, value)
    if not value > limit:
        raise ArgumentError(f"{name} is {value}; needs more than {limit}")


def require_share(name: str, value: float) -> None:
    """Raise ArgumentError unless the value of this name is a number of at least 0 and less than 1."""
    _require_number(name, value)
    if not 0 <= value < 1:
        raise ArgumentError(f"{name} is {value}; needs at least 0 and less than 1")


def require_whole(name: str, value: object, least: int) -> None:
    """Raise ArgumentError unless the value of this name is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ArgumentError(f"{name} is {value!r:.60}; needs a whole number of at least {least}")
    require_least(name, int(value), least)


def _require_number(name: str, value: object) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ArgumentError(f"{name} is {value!r:.60}; needs a number")


def as_declared(formula: Callable[P, T]) -> Callable[P, T]:
    """A decorator of formulas, which then get arguments of the types that they declare.

    For float and int these are Python's own numbers of at least 0, for int whole ones. NumPy's are of fixed size:
    4 * np.int32(2**30) is 0.

    Raises:
        ArgumentError: when called with others, or where the formula divides by 0, exceeds a float or gives nan.
    """
    takes, kinds = signature(formula), formula.__annotations__

    @wraps(formula)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given = takes.bind(*args, **kwargs)
        except TypeError:
            return formula(*args, **kwargs)  # which fails, too, and names the formula
        for name, value in given.arguments.items():
            kind = kinds.get(name)
            if kind in (float, int) or (kind in (float | None, int | None) and value is not None):
                given.arguments[name] = _plain(name, value, kind in (int, int | None))
            elif isinstance(kind, type) and kind is not bool:
                require_kind(name, value, kind)
        try:
            found = formula(*given.args, **given.kwargs)
            if isinstance(found, float) and isnan(found):
                raise ArithmeticError("it is nan")
        except ArithmeticError as error:
            told = ", ".join(f"{name}={value!r:.30}" for name, value in given.arguments.items())
            raise ArgumentError(f"{formula.__name__}({told}) has no finite value: {error}") from error
        return found

    return checked


def _plain(name: str, value: Any, whole: bool) -> float:
    require_least(name, value, 0)
    if whole and value % 1:
        raise ArgumentError(f"{name} is {value}; needs a whole number")
    return int(value) if whole or isinstance(value, Integral) else float(value)


def require_kind(name: str, value: object, kind: type, such_as: str = "") -> None:
    """Raise ArgumentError unless the value of this name is of this class.

    Args:
        such_as: how to get one, for the message.
    """
    if not isinstance(value, kind):
        hint = f", such as {such_as}" if such_as else ""
        raise ArgumentError(f"{name} is {value!r:.60}; needs {_a(kind.__name__)}{hint}")


def require_name(kind: str, name: object) -> None:
    """Raise ArgumentError unless something can be registered under this name: a text; @named alone gives a function."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{kind} {name!r}: needs a name, such as 'mine', before the function")


def require_known(kind: str, name: object, known: Collection[str]) -> None:
    """Raise UnknownNameError unless this name, of a `kind`, is one of those known."""
    if not isinstance(name, str) or name not in known:  # a list could not be looked for
        raise unknown_name(kind, name, known)


def require_takes(what: str, function: Callable[..., Any], *places: str, **settings: Any) -> None:
    """Raise ArgumentError unless a function takes arguments in these places, and these by name.

    Args:
        what: that the function makes.
    """
    if not callable(function):
        raise ArgumentError(f"what makes {what} is {function!r}; needs a function")
    try:
        takes = signature(function)
    except ValueError:  # what is written in C may not say
        return
    try:
        takes.bind_partial(*places, **settings)  # it may take more, which are given with its name
    except TypeError as error:
        called = ", ".join([*places, *(f"{name}=…" for name in settings)])
        raise ArgumentError(f"what makes {what} is called with ({called}); this one cannot be: {error}") from None


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for `name`, an unknown `kind`: it suggests the nearest name or lists all; both if there are few."""
    names = sorted(known)
    folded = {each.casefold(): each for each in names}
    near = [folded[each] for each in get_close_matches(str(name).casefold(), folded, n=1)]
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if near and len(names) > _MANY:
        return UnknownNameError(f"unknown {kind} {name!r}{hint}")
    there = f"There are: {', '.join(names)}" if names else "There are none"
    return UnknownNameError(f"unknown {kind} {name!r}{hint or '.'} {there}")


def typed(value: object) -> str:
    """The type of a value with its article, such as a list or an int; or None."""
    return "None" if value is None else _a(type(value).__name__)


def _a(noun: str) -> str:
    return f"{'an' if noun.lower().startswith(('a', 'e', 'i', 'o', 'nd')) else 'a'} {noun}"


def wrong_return(what: str, returned: object, needs: str) -> ArgumentError:
    """The error for a user's function that returns something else than it should."""
    return ArgumentError(f"{what} returns {typed(returned)}; needs {needs}")


def returning(kind: type[T], what: str, function: Callable[P, T]) -> Callable[P, T]:
    """A user's function that raises ArgumentError where it returns something else than a `kind`; `what` names it."""

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        returned = function(*args, **kwargs)
        if not isinstance(returned, kind):
            raise wrong_return(what, returned, _a(kind.__name__))
        return returned

    return checked


def own_line(error: BaseException) -> str:
    """Where the user's own code, such as an extension, was on the way to an error: "mine.py, line 20"; "" if not."""
    folders = str(Path(__file__).parent), *(get_paths()[of] for of in ("stdlib", "purelib", "platlib"))
    others = (*(f"{folder}{sep}" for folder in folders), "<")
    frames = (frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(others))
    own = [frame for frame in frames if not frame.filename.endswith(".pyx")]  # of compiled packages, without a folder
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""
