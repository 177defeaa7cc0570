"""Text: schedules as text, and the grid that shows where one is wrong.

    # zb-h1: 3 ranks, 3 micro-batches, flush
    F0 F1 F2 I0 W0 I1 W1 I2 W2
    F0 F1 I0 F2 I1 W0 I2 W1 W2
    F0 I0 F1 I1 F2 I2 W0 W1 W2

Each row is a rank, each word an action: F, B, I or W and the micro-batch. Unless each rank r has stage r alone, the
stage comes first, 2F0, and a line lists the stages of each rank: # stages 0 5 | 1 4 | 2 3. Two actions at once are
joined by &. A rank that does nothing has a dash. Lines that begin with # are optional; any others are comments.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from simdist.errors import DataError, ScheduleError
from simdist.file import read_file
from simdist.parallel.pipeline.action import Action, Backward, BackwardInput, BackwardWeight, Forward, Part, pair
from simdist.parallel.pipeline.schedule import Schedule
from simdist.parallel.pipeline.weights import Weights

__all__ = ["LETTERS", "grid", "is_action", "load", "parse", "read", "to_text"]

LETTERS: dict[str, type[Part]] = {"F": Forward, "B": Backward, "I": BackwardInput, "W": BackwardWeight}

_WORD = re.compile(r"(\d*)([FBIW])(\d+)")
_STAGES = re.compile(r"# stages ([\d |]+)")
_HEAD = re.compile(r"# (.*): (\d+) ranks?, (\d+) micro-batch(?:es)?, ([a-z0-9 ]+?)(?: every (\d+))?")
_MEANT = re.compile(r"#.*: *\d+ ranks?\b.*|# *stages?\b.*\d.*\|.*", re.IGNORECASE)
"""A line that is meant as one of these two, and not as a comment."""


def is_action(word: str) -> bool:
    """Whether a word, such as the name of a span, is an action."""
    return all(_WORD.fullmatch(part) for part in word.split("&"))


def to_text(schedule: Schedule) -> str:
    """The schedule as text: a line about it, then its rows. `parse` is the inverse."""
    m, p, weights = schedule.num_micro_batches, schedule.num_ranks, schedule.weights
    count = f"{p} rank{'s' if p != 1 else ''}, {m} micro-batch{'es' if m != 1 else ''}"
    every = f" every {weights.group}" if weights.group else ""
    lines = [f"# {schedule.name}: {count}, {weights.policy}{every}"]
    if not schedule.is_linear:
        lines.append(f"# stages {' | '.join(' '.join(map(str, stages)) for stages in schedule.placement)}")
    return "\n".join(lines + [row or "-" for row in str(schedule).split("\n")]) + "\n"


def parse(text: str, name: str = "schedule") -> Schedule:
    """The schedule that a text describes. Use `validate` to check it.

    Args:
        text: as written by `to_text`, or rows alone.
        name: of the schedule, if the text has none.

    Raises:
        ScheduleError: a word is no action, rows are missing, or the lines that begin with # do not match them, or are
            not as above.
        ArgumentError: there is no such policy of weights, or its group is wrong.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    rows = [line.split() for line in lines if not line.startswith("#")]
    if not rows:
        raise ScheduleError("a schedule's text needs a row for each rank, such as F0 B0; this one has none")
    words = [[_read(word, rank) for word in row if word != "-"] for rank, row in enumerate(rows)]
    placement = tuple(
        tuple(sorted({stage for word in row for _, stage, _ in word})) or (r,) for r, row in enumerate(words)
    )
    for line in lines:
        if _MEANT.fullmatch(line) and not (_HEAD.fullmatch(line) or _STAGES.fullmatch(line)):
            raise ScheduleError(
                f"{line!r} is no line about a schedule: needs '# mine: 2 ranks, 4 micro-batches, flush' "
                "or, for the stages of each rank, '# stages 0 3 | 1 2'"
            )
        if told := _STAGES.fullmatch(line):
            placement = tuple(tuple(map(int, stages.split())) for stages in told[1].split("|"))
    if len(placement) != len(rows):
        raise ScheduleError(f"{len(rows)} rows, but the line # stages is for {len(placement)} ranks")
    actions = [[_action(word, rank, placement[rank]) for word in row] for rank, row in enumerate(words)]
    for line in lines:
        if head := _HEAD.fullmatch(line):
            name, ranks, micro_batches, policy, group = head.groups()
            if int(ranks) != len(rows):
                raise ScheduleError(f"{len(rows)} rows, but the first line is for {ranks} ranks")
            return Schedule(name, actions, placement, int(micro_batches), Weights(policy, int(group or 0)))
    return Schedule(name, actions, placement)


def load(path: str | Path) -> Schedule:
    """The schedule in a file, as `parse` reads it; named after the file, because its rows may not be a paper's.

    Raises:
        DataError: the file cannot be read, or is no text.
        ScheduleError, ArgumentError: as of `parse`.
    """
    try:
        return replace(parse(read(path)), name=Path(path).name)
    except ScheduleError as error:
        raise ScheduleError(f"{path}: {error}") from error


def read(path: str | Path) -> str:
    """The text of a schedule's file.

    Raises:
        DataError: the file cannot be read, or is no text.
    """
    try:
        return read_file(path, "the schedule").decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text: {error}") from error


def _read(word: str, rank: int) -> list[tuple[str, int, int]]:
    """The letter, stage and micro-batch of each part of a word."""
    parts = [_WORD.fullmatch(part) for part in word.split("&")]
    known = [(part[2], int(part[1] or rank), int(part[3])) for part in parts if part]
    letters = "".join(letter for letter, _, _ in known)
    if len(known) < len(parts) or letters not in (*LETTERS, "FB", "FI"):
        raise ScheduleError(
            f"{word!r} in the row of rank {rank} is no action: needs F, B, I or W and a micro-batch, such as F0; "
            "where ranks have several stages, 2F0; for a forward and a backward at once, F1&B0"
        )
    return known


def _action(word: list[tuple[str, int, int]], rank: int, stages: tuple[int, ...]) -> Action:
    for letter, stage, micro_batch in word:
        if stage not in stages:
            raise ScheduleError(f"{stage}{letter}{micro_batch} in the row of rank {rank}, which has stages {stages}")
    (action,) = pair([LETTERS[letter](micro_batch, stages.index(stage)) for letter, stage, micro_batch in word])
    return action


def grid(schedule: Schedule, marks: Collection[tuple[int, int]]) -> str:
    """The rows near some places, with >marks< around these.

    Args:
        marks: (rank, place in its row); a place one past the end marks a missing action.
    """
    top = max(0, min(rank for rank, _ in marks) - 3)
    shown = range(top, min(schedule.num_ranks, top + 16))
    start = max(0, min(place for _, place in marks) - 12)
    lines = []
    for rank in shown:
        row = schedule.rows[rank]
        words = [schedule.label(rank, action) for action in row[start : start + 40]]
        if (rank, start + len(words)) in marks:
            words.append("")
        words = [f">{word}<" if (rank, start + i) in marks else word for i, word in enumerate(words)]
        cut = " …" if start + 40 < len(row) else ""
        lines.append(f"  rank {rank:{len(str(shown[-1]))}}  {'… ' if start else ''}{' '.join(words)}{cut}")
    return "\n".join(lines)
