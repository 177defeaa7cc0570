"""Placement: which rank has which stages of the model.

    linear(4)            looped(4, 2)          v_shape(4)           bidirectional(4)

    rank  0  1  2  3     rank  0  1  2  3      rank  0  1  2  3     rank  0  1  2  3
          0  1  2  3           0  1  2  3            0  1  2  3           0  1  2  3     first half of the batch ->
                               4  5  6  7            7  6  5  4           3  2  1  0     <- second half

A rank's chunks are its stages in ascending order. Under `bidirectional` every stage is on two ranks, each with half of
the micro-batches, or on more ranks, each with a smaller part; their gradients are summed. `crossed` is the same for V.
"""

from typing import TypeAlias

from simdist.errors import ArgumentError

__all__ = ["Placement", "bidirectional", "crossed", "linear", "looped", "stage_of", "v_shape"]

Placement: TypeAlias = tuple[tuple[int, ...], ...]
"""For each rank its stages, ascending."""


def linear(ranks: int) -> Placement:
    """Stage s on rank s."""
    return tuple((r,) for r in range(ranks))


def looped(ranks: int, chunks: int) -> Placement:
    """Round after round: stage s on rank s mod p."""
    return tuple(tuple(range(r, ranks * chunks, ranks)) for r in range(ranks))


def v_shape(ranks: int, waves: int = 1) -> Placement:
    """Down the ranks and up again, so that a rank has an early stage and a late one; the loss is on rank 0.

    Args:
        waves: how often, with two stages of a rank each.
    """
    turn = 2 * ranks
    return tuple(tuple(turn * wave + s for wave in range(waves) for s in (r, turn - 1 - r)) for r in range(ranks))


def crossed(ranks: int) -> Placement:
    """A V and its mirror image: two copies of the model, which begin on the first rank and on the last.

    Raises:
        ArgumentError: the number of ranks is odd.
    """
    _check_even(ranks)
    down = v_shape(ranks)
    return tuple(tuple(sorted(down[r] + down[ranks - 1 - r])) for r in range(ranks))


def bidirectional(ranks: int, pipelines: int = 2) -> Placement:
    """Copies of the model, by turns down the ranks and up.

    Raises:
        ArgumentError: the number of ranks is odd, or that of pipelines no even divisor of it: a rank would have a stage
            twice.
    """
    _check_even(ranks)
    if pipelines % 2 or ranks % pipelines:
        raise ArgumentError(
            f"{pipelines} pipelines in both directions on {ranks} stages: needs an even divisor of these"
        )
    return tuple(tuple(sorted(stage_of(r, ranks, q, pipelines) for q in range(pipelines))) for r in range(ranks))


def _check_even(ranks: int) -> None:
    if ranks % 2:
        raise ArgumentError(f"pipelines in both directions on {ranks} stages: needs an even number of stages")


def stage_of(rank: int, ranks: int, pipeline: int, pipelines: int) -> int:
    """The stage that a rank has of one of the pipelines under `bidirectional`.

    Pipelines 0, 2, … go down, 1, 3, … up. Those of one direction begin evenly spaced, and go round the ranks.
    """
    turn, up = divmod(pipeline, 2)
    place = ranks - 1 - rank if up else rank
    return (place - turn * (2 * ranks // pipelines)) % ranks
