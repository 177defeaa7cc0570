"""Puzzles: write a piece of parallel training, and see at once what it does, and what it should do.

    from simdist.puzzles import puzzle, puzzles

    puzzles()                       # the list
    puzzle(5)                       # the task
    puzzle(5).check(my_function)    # the verdict: result, traffic, time, memory
    puzzle(5).hint()                # a hint; hint(2) says more

There are no answers here. Everything runs on virtual ranks, in this process. `judges` adds a puzzle of your own: those
here show what a judge can check.
"""

# Importing a subject registers its puzzles.
from simdist.puzzles import (  # noqa: F401
    asynchrony,
    exchanging,
    experts,
    gathering,
    memory,
    messages,
    overlap,
    pipelining,
    reducing,
    sequences,
    training,
)
from simdist.puzzles.puzzle import Puzzle, judges, puzzle, puzzles
from simdist.puzzles.verdict import Finding, Verdict

__all__ = ["Finding", "Puzzle", "Verdict", "judges", "puzzle", "puzzles"]
