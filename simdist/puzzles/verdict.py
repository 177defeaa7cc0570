"""Verdict: the findings about an answer, each beside what was expected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Finding", "Verdict", "at_most"]


class Finding(NamedTuple):
    """One thing that was checked.

    Attributes:
        good: whether it is right.
        what: was checked, such as "bytes that a rank sends, on 8 ranks".
        found, expected: in words.
        why: a possible cause; may be empty.
    """

    good: bool
    what: str
    found: str
    expected: str
    why: str = ""

    def __str__(self) -> str:
        head = f"  {'good ' if self.good else 'WRONG'}  {self.what}: {self.found}".replace("\n", "\n         ")
        if self.good:
            return f"{head} ({self.expected})" if self.expected else head
        more = [f"expected: {self.expected}" if self.expected else "", *self.why.splitlines()]
        return "\n".join([head, *(f"         {line}" for line in more if line)])


@dataclass(frozen=True)
class Verdict:
    """All findings about an answer.

    Attributes:
        title: of the puzzle.
        findings: in the order of the checks; a failure that prevents further checks is the last.
    """

    title: str
    findings: Sequence[Finding]

    @property
    def solved(self) -> bool:
        """Whether all findings are good."""
        return all(finding.good for finding in self.findings)

    def __bool__(self) -> bool:
        return self.solved

    def __repr__(self) -> str:
        return "\n".join([f"{self.title}: {'solved' if self.solved else 'not yet'}", *map(str, self.findings)])


def at_most(what: str, found: float, limit: float, unit: str = "", why: str = "") -> Finding:
    """A finding that is good up to a limit, with a tolerance for rounding."""
    return Finding(found <= limit * (1 + 1e-9), what, _told(found, unit), f"at most {_told(limit, unit)}", why)


def _told(value: float, unit: str) -> str:
    text = f"{value:,.4g}" if value != int(value) else f"{int(value):,}"
    return f"{text} {unit}".strip()
