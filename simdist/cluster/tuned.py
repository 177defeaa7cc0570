"""Tuned: which algorithm was measured to be the fastest, by collective, number of ranks and bytes."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from simdist.errors import DataError

__all__ = ["Pick", "Tuned"]

_FORMAT = "simdist tuned 1"


class Pick(NamedTuple):
    """The fastest algorithm at one size.

    Attributes:
        num_bytes: the size.
        shared, own: its name, for arrays in memory shared by the ranks of the node, and for others.
    """

    num_bytes: int
    shared: str
    own: str


@dataclass(frozen=True)
class Tuned:
    """The fastest algorithms measured on one machine, on one node.

    Args:
        picks: for (operation, ranks) the picks, by ascending size.
    """

    picks: Mapping[tuple[str, int], tuple[Pick, ...]]

    def pick(self, operation: str, ranks: int, num_bytes: int) -> Pick | None:
        """The fastest at the nearest size, by ratio; None for a number of ranks that was not measured."""
        of = self.picks.get((operation, ranks))
        if not of:
            return None
        return min(of, key=lambda pick: abs(math.log2(max(1, pick.num_bytes)) - math.log2(max(1, num_bytes))))

    # -- the file -------------------------------------------------------------------------------------

    @staticmethod
    def path() -> Path:
        """Where this user's table is kept: in simdist's folder under XDG_CACHE_HOME, or ~/.cache.

        Raises:
            DataError: this user has no home folder, as in some containers.
        """
        cache = os.environ.get("XDG_CACHE_HOME", "")
        try:
            folder = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
        except RuntimeError as error:
            raise DataError("no home for the table of `bench --tune`: set XDG_CACHE_HOME or HOME") from error
        return folder / "simdist" / "tuned.json"

    def as_text(self) -> str:
        """As JSON."""
        rows = [
            {"operation": operation, "ranks": ranks, **pick._asdict()}
            for (operation, ranks), of in sorted(self.picks.items())
            for pick in of
        ]
        return json.dumps({"format": _FORMAT, "picks": rows}, indent=1)

    def save(self, path: Path) -> None:
        """Write it, replacing an existing one.

        Raises:
            DataError: it cannot be written there.
        """
        new = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(self.as_text() + "\n")
            new.replace(path)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise DataError(f"{path} cannot be written: {error}") from error

    @classmethod
    def of_text(cls, text: str, where: str = "the text") -> "Tuned":
        """The table that `as_text` wrote.

        Raises:
            DataError: it is not such a table.
        """
        found: dict[tuple[str, int], list[Pick]] = {}
        try:
            data: dict[str, Any] = json.loads(text)
            if data["format"] != _FORMAT:
                raise ValueError(f"its format is {data['format']!r}")
            for row in data["picks"]:
                pick = Pick(int(row["num_bytes"]), str(row["shared"]), str(row["own"]))
                found.setdefault((str(row["operation"]), int(row["ranks"])), []).append(pick)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DataError(
                f"{where} is no table of `simdist bench --tune` ({error}): measure again, or delete it"
            ) from error
        return cls({key: tuple(sorted(of)) for key, of in found.items()})

    @classmethod
    def load(cls, path: Path) -> "Tuned | None":
        """The table in this file; None where there is none.

        Raises:
            DataError: it is not a table, or cannot be read.
        """
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        return cls.of_text(text, str(path))
