"""Rows: building blocks for the rows of schedules."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count

from simdist.parallel.pipeline.action import Action, Backward, BackwardInput, BackwardWeight, Forward, Part, pair
from simdist.parallel.pipeline.text import LETTERS

__all__ = ["alternate", "backwards", "forwards", "numbered", "only", "split", "there_and_back"]


def forwards(micro_batches: int) -> list[Action]:
    """The forwards F0, F1, F2 and so on."""
    return [Forward(i) for i in range(micro_batches)]


def backwards(micro_batches: int) -> list[list[Action]]:
    """The backwards [B0], [B1], [B2] and so on, each a list."""
    return [[Backward(i)] for i in range(micro_batches)]


def split(micro_batches: int, lag: int) -> list[list[Action]]:
    """Backwards in halves, each W `lag` micro-batches behind its I: with lag 1, [I0] [I1 W0] … and the last W's."""
    halves: list[list[Action]] = []
    for i in range(micro_batches):
        halves.append([BackwardInput(i)])
        if i >= lag:
            halves[-1].append(BackwardWeight(i - lag))
    halves.append([BackwardWeight(i) for i in range(max(0, micro_batches - lag), micro_batches)])
    return halves


def alternate(warm_up: int, forwards: Sequence[Action], backwards: Sequence[Sequence[Action]]) -> list[Action]:
    """`warm_up` forwards, then a forward and a backward in turn, then the remaining backwards.

    alternate(2, F0 F1 F2 F3, B0 B1 B2 B3)  =  F0 F1 | F2 B0 F3 B1 | B2 B3
    """
    row = list(forwards[:warm_up])
    for i, backward in enumerate(backwards, warm_up):
        row += [*forwards[i : i + 1], *backward]
    return row


def numbered(steps: Iterable[tuple[str, int]], micro_batches: Sequence[Sequence[int]]) -> list[Action]:
    """The row of these steps, in which each action takes the next micro-batch of its chunk.

    numbered([("F0", 2), ("F0&B0", 1), ("I0 W", 2)], [range(3)])  =  F0 F1 F2&B0 I1 W1 I2 W2

    Args:
        steps: words and how often they are repeated; a word is a letter and a chunk, two of them for a pair. W alone is
            of the oldest I that has none yet.
        micro_batches: of each chunk; actions on further ones are left out.
    """
    next_of: dict[tuple[bool, int], count[int]] = defaultdict(count)  # of forwards and of backwards, by chunk
    pending: list[tuple[int, int]] = []
    row: list[Action] = []
    for word in (word for words, times in steps for word in words.split() * times):
        parts: list[Part] = []
        for each in word.split("&"):
            letter, chunk = each[0], each[1:]
            if letter == "W":
                place = next((i, c) for i, c in pending if chunk in ("", str(c)))
                pending.remove(place)
            else:
                place = next(next_of[letter == "F", int(chunk)]), int(chunk)
                if letter == "I":
                    pending.append(place)
            i, c = place
            parts += [LETTERS[letter](own, c) for own in micro_batches[c][i : i + 1]]
        row += pair(parts)
    return row


def there_and_back(
    own: Sequence[int], passes: Iterable[tuple[Iterable[int], int]], num_stages: int, unit: int
) -> list[Action]:
    """A rank's row, as if forwards and backwards took one slot each, and no two of them the same.

        forward in slot 2j + s, backward in slot 2j + 2S - 1 - s, for the j-th micro-batch at stage s of S

    Args:
        own: the rank's stages, by chunk.
        passes: micro-batches, and one of these stages, which they pass through.
        unit: after so many micro-batches the next j is 0 again, 2S slots later.
    """
    slots: dict[int, Action] = {}
    for micro_batches, stage in passes:
        chunk = own.index(stage)
        for number, i in enumerate(micro_batches):
            before, j = divmod(number, unit)
            start = 2 * (before * num_stages + j)
            slots[start + stage] = Forward(i, chunk)
            slots[start + 2 * num_stages - 1 - stage] = Backward(i, chunk)
    return [slots[slot] for slot in sorted(slots)]


def only(micro_batches: int, row: Iterable[Action]) -> list[Action]:
    """The row without the micro-batches from this number on; of a pair, the remaining part.

    A schedule that its paper defines only for certain numbers of micro-batches is made for the next such number, and
    the surplus removed. It stays valid, because no micro-batch needs another.
    """
    parts = ([part for part in action.parts if part.micro_batch < micro_batches] for action in row)
    return [action for own in parts for action in pair(own)]
