"""Puzzles: write it yourself, and be told at once what it does, against what it should.

    from simdist.puzzles import puzzle, puzzles

    puzzles()                       # what there is
    puzzle(5)                       # the task
    puzzle(5).check(my_function)    # the verdict: result, traffic, time, memory
    puzzle(5).hint()                # on demand, and hint(2) for more

No answers are in here. All runs on virtual ranks, in this process.
"""

# Importing a subject registers its puzzles.
from simdist.puzzles import (  # noqa: F401
    asynchrony,
    exchanging,
    gathering,
    memory,
    messages,
    overlap,
    pipelining,
    reducing,
    sequences,
    training,
)
from simdist.puzzles.puzzle import Puzzle, puzzle, puzzles
from simdist.puzzles.verdict import Finding, Verdict

__all__ = ["Finding", "Puzzle", "Verdict", "puzzle", "puzzles"]
