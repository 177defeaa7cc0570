"""Stages: the times of a pipeline's actions, and of what ZeRO sends beside them."""

from collections import Counter
from collections.abc import Iterator, Sequence

from simdist.parallel.pipeline import Times
from simdist.parallel.pipeline.action import Action, Forward
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import uses
from simdist.planning.job import Job, Piece
from simdist.planning.overlap import Layer, Streams, Travel

__all__ = ["Beside", "num_passes", "over_copies_s", "stage_times", "travel"]


def stage_times(job: Job) -> Times:
    """The times of the stages of a job's pipeline, without messages."""
    forward, inputs, weights, whole = ([stage.seconds[letter] for stage in job.stages] for letter in "FIWB")
    return Times(forward, inputs, weights, backward=whole)


def num_passes(job: Job, rank: int) -> int:
    """The micro-batches that pass through a stage of a pipeline rank: where its stages differ, the fewest."""
    if not job.pipelined:
        return job.config.micro_batches
    parts = (part for action in job.schedule.rows[rank] for part in action.parts)
    counts = Counter(part.chunk for part in parts if isinstance(part, Forward))
    return min((counts[chunk] for chunk in range(len(job.schedule.placement[rank]))), default=0)


def travel(job: Job, pieces: Sequence[Piece]) -> Travel:
    """The communication of these pieces between the ranks of dp."""
    zero, sizes = job.zero_stage, [piece.room * job.itemsize for piece in pieces]
    return Travel(
        [job.holders.seconds("reduce_scatter", size) + (_adding_s(job, size) if zero > 1 else 0.0) for size in sizes],
        Slots.shared(pieces).of if zero > 1 else [],
        [job.holders.seconds("all_gather", size) for size in sizes] if zero == 3 else [],
        [over_copies_s(job, size) for size in sizes],
    )


def _adding_s(job: Job, num_bytes: int) -> float:
    """For a reduced piece: the time to accumulate the own chunk, and to clear the buffer for the next piece."""
    return job.memory_s(3 * num_bytes / len(job.holders.ranks) + num_bytes)


def over_copies_s(job: Job, num_bytes: int) -> float:
    """For a piece that the holders have reduced: the time to all-reduce each chunk over the copies."""
    return job.copies.seconds("all_reduce", num_bytes // len(job.holders.ranks))


class Beside:
    """The ranks of a pipeline with ZeRO from stage 2 on, each with a second stream: on it each layer's gradients are
    reduced after each backward, and in stage 3 its weights gathered before each pass. It leaves out that messages
    between stages and within layers use the same links.

    Attributes:
        streams: of each rank.
    """

    def __init__(self, job: Job) -> None:
        self._parts = [
            [_layers(job, job.bounds[s], job.pieces(part)) for s in own]
            for part, own in zip(job.parts, job.schedule.placement, strict=True)
        ]
        self.streams = [Streams(travel(job, job.pieces(part))) for part in job.parts]

    def end_s(self, rank: int, action: Action, start_s: float) -> float:
        """When an action ends that begins then, on a rank that has performed all actions before it."""
        streams = self.streams[rank]
        streams.now_s = start_s
        for part in action.parts:
            layers = self._parts[rank][part.chunk][part.letter]
            if part.letter == "F":
                streams.forward(layers)
            else:
                streams.backward(layers, halves="IW" if part.letter == "B" else part.letter)
        return streams.now_s


def _layers(job: Job, bound: slice, pieces: Sequence[Piece]) -> dict[str, list[Layer]]:
    """The layers of a stage that have weights, with their times in an action, by its letter. One without weights counts
    with that before it, or with the first.
    """
    numbers = range(bound.start, bound.stop)
    with_weights = [layer for layer in numbers if job.anatomy.weights[layer]]
    names = ([weight.name for weight in job.anatomy.weights[layer]] for layer in with_weights)
    used = [[i for i, piece in enumerate(pieces) if any(name in piece.ends for name in own)] for own in names] or [[]]
    first, last = uses(used)
    starts = [bound.start, *with_weights[1:], bound.stop]

    def layers(letter: str) -> Iterator[Layer]:
        for k, own in enumerate(used):
            seconds = sum(layer.seconds[letter] for layer in job.anatomy.layers[starts[k] : starts[k + 1]])
            begins, ends = ([i for i in own if edge[i] == k] for edge in (first, last))
            yield Layer(seconds, seconds, tuple(begins), tuple(ends))

    return {letter: list(layers(letter)) for letter in "FBIW"}
