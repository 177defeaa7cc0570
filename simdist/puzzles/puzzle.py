"""Puzzle: a task, hints on demand, and a judge."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from simdist.errors import ArgumentError
from simdist.puzzles.trial import Failed
from simdist.puzzles.verdict import Finding, Verdict

__all__ = ["Judge", "Puzzle", "judges", "puzzle", "puzzles"]

Judge = Callable[[Any], Iterator[Finding]]
"""Given an answer, yields one finding after another; an exception in the answer ends it (see `trial`)."""


@dataclass(frozen=True)
class Puzzle:
    """One puzzle.

    Attributes:
        number, title: identify it.
        task: what to write, as Markdown; its code is a starting point to copy.
        hints: each says more than the previous one.
    """

    number: int
    title: str
    task: str
    hints: tuple[str, ...]
    _judge: Judge

    def check(self, answer: Callable[..., Any]) -> Verdict:
        """Judge the function that the task describes, usually in less than two seconds. The verdict includes any
        exception that it raises.
        """
        findings = []
        try:
            if not callable(answer):
                raise Failed("the answer", repr(answer), "a function")
            for finding in self._judge(answer):
                findings.append(finding)
        except Failed as failed:
            findings.append(failed.finding)
        except (TypeError, ValueError, ArithmeticError) as error:  # the judge cannot interpret the result
            why = f"{type(error).__name__}: {error}"
            findings.append(Finding(False, "what your function returns", "not usable", "what the task describes", why))
        return Verdict(f"Puzzle {self.number}, {self.title}", tuple(findings))

    def hint(self, number: int = 1) -> None:
        """Print a hint: the first, or another.

        Raises:
            ArgumentError: there is no such hint.
        """
        if not isinstance(number, Integral) or not 1 <= number <= len(self.hints):
            raise ArgumentError(f"puzzle {self.number} has hints 1 to {len(self.hints)}, not {number!r:.60}")
        rest = f" (hint({number + 1}) says more)" if number < len(self.hints) else ""
        print(f"Hint {number} of {len(self.hints)}: {self.hints[number - 1]}{rest}")

    def __repr__(self) -> str:
        check = f"puzzle({self.number}).check(your_function)"
        return f"Puzzle {self.number}: {self.title}\n\n{self.task}\n\n{check}, and .hint() for a hint"

    def _repr_markdown_(self) -> str:
        check = f"`puzzle({self.number}).check(your_function)`"
        return f"**Puzzle {self.number}: {self.title}**\n\n{self.task}\n\n{check}, and `.hint()` for a hint"


_PUZZLES: dict[int, Puzzle] = {}


def judges(number: int, title: str, task: str, *hints: str) -> Callable[[Judge], Judge]:
    """Register the decorated judge with its task and hints.

    A program's own puzzle may be registered again, as by a notebook's cell that is run twice.

    Args:
        number: of the puzzle; others, and simdist's own, are taken.
        title, task, hints: see Puzzle.

    Raises:
        ArgumentError: from the decorator, if another module has a puzzle of this number.
    """

    def register(judge: Judge) -> Judge:
        taken = _PUZZLES.get(number)
        if taken is not None and taken._judge.__module__ != judge.__module__:
            whose = taken._judge.__module__
            raise ArgumentError(f"puzzle {number} is {taken.title!r}, of {whose}; needs another number")
        _PUZZLES[number] = Puzzle(number, title, task.strip(), hints, judge)
        return judge

    return register


def puzzle(number: int) -> Puzzle:
    """The puzzle of this number, from 1.

    Raises:
        ArgumentError: there is no such puzzle.
    """
    if not isinstance(number, Integral) or number not in _PUZZLES:
        raise ArgumentError(f"there is no puzzle {number!r:.60}; puzzles() lists them")
    return _PUZZLES[number]


def puzzles() -> None:
    """Print the list of puzzles."""
    for number, each in sorted(_PUZZLES.items()):
        print(f"{number:3}  {each.title}")
    print("puzzle(1) shows a task, and puzzle(1).check(your_function) judges an answer; in a script, print them")
