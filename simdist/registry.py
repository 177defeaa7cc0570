"""Registry: all things of one kind by name, simdist's own and those that programs register."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from simdist.errors import ArgumentError, require_known, require_name, require_takes
from simdist.words import meant

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(dict[str, T]):
    """All things of one kind by name.

    What a program has registered it may register again, as a cell of a notebook does that is run twice: from then on
    the name stands for the new one. A name of simdist's own is refused in any spelling: others are built of what it
    stands for, and reports, predictions and papers' formulas would go on to mean that.

    Args:
        kind: what messages call one of them.
        others: further names that are taken, and the names that they stand for.
        known: simdist's own, if they do not register themselves one by one, until `close`.

    Attributes:
        version: how often something was registered, for those who remember what they found.
    """

    def __init__(
        self,
        kind: str,
        others: Mapping[str, str] = MappingProxyType({}),
        known: Mapping[str, T] = MappingProxyType({}),
    ) -> None:
        super().__init__(known)
        self.kind = kind
        self.others = dict(others)
        self.version = 0
        self._own = frozenset(known)

    def close(self) -> None:
        """What has been registered so far is simdist's own."""
        self._own = frozenset(self)

    def is_own(self, name: str) -> bool:
        """Whether this is a name of one of simdist's own, in any spelling."""
        return meant(name, self._own, self.others) is not None

    def check(self, name: str) -> None:
        """Raise ArgumentError unless a program may register something under this name."""
        require_name(self.kind, name)
        if self.is_own(name):
            raise ArgumentError(f"{self.kind} {name}: simdist has its own of this name; needs another name")

    def register(self, name: str, known: T) -> None:
        """Let the name stand for this; it may have stood for something else."""
        self[name] = known
        self.version += 1

    def registering(
        self, name: str, known: Callable[[Any], T], /, *places: str, **settings: Any
    ) -> Callable[[Any], Any]:
        """The decorator of functions that a program registers under this name.

        Args:
            known: what the name then stands for, given the function.
            places, settings: the arguments that the function must take: see `require_takes`.

        Raises:
            ArgumentError: as of `check`; and from the decorator, if the function takes other arguments.
        """
        self.check(name)

        def register(function: Any) -> Any:
            require_takes(f"{self.kind} {name}", function, *places, **settings)
            self.register(name, known(function))
            return function

        return register

    def find(self, name: str) -> T:
        """What this name stands for, now.

        Raises:
            UnknownNameError: nothing; the message lists the known names.
        """
        require_known(self.kind, name, self)
        return self[name]
