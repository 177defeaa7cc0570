"""Stages: the times and the memory of a pipeline's actions, and of what ZeRO sends beside them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import add

from simdist.parallel.pipeline import Times
from simdist.parallel.pipeline.action import Action, Forward, Part
from simdist.parallel.pipeline.footprint import left_bytes, working_bytes
from simdist.parallel.zero.slots import Slots
from simdist.parallel.zero.unit import uses
from simdist.planning.job import Job, Piece
from simdist.planning.overlap import Layer, Streams, Travel

__all__ = [
    "Beside",
    "gather_bytes",
    "num_passes",
    "over_copies_s",
    "reduce_bytes",
    "stage_times",
    "travel",
    "travel_with_bytes",
    "unpiped",
]


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
    reduce_s = [job.holders.seconds("reduce_scatter", size) for size in sizes]
    if zero > 1:  # the own chunk is accumulated, and the buffer cleared for the next piece
        adding_s = (job.memory_s(3 * size / len(job.holders.ranks) + size) for size in sizes)
        reduce_s = list(map(add, reduce_s, adding_s))
    return Travel(
        reduce_s,
        Slots.shared(pieces).of if zero > 1 else [],
        [job.holders.seconds("all_gather", size) for size in sizes] if zero == 3 else [],
        [over_copies_s(job, size) for size in sizes],
    )


def travel_with_bytes(job: Job, pieces: Sequence[Piece]) -> Travel:
    """The same, and what its collectives take."""
    sizes = [piece.room * job.itemsize for piece in pieces]
    return travel(job, pieces)._replace(
        reduce_bytes=[reduce_bytes(job, size) for size in sizes],
        gather_bytes=[gather_bytes(job, size) for size in sizes],
    )


def reduce_bytes(job: Job, num_bytes: int) -> float:
    """What the ranks of dp take to reduce so many bytes of gradients."""
    copied = num_bytes // len(job.holders.ranks)
    return max(
        job.bench.scratch(job.holders, "reduce_scatter", num_bytes).passing,
        job.bench.scratch(job.copies, "all_reduce", copied).passing,
    )


def gather_bytes(job: Job, num_bytes: int) -> float:
    """What the holders take to gather so many bytes of weights."""
    return job.bench.scratch(job.holders, "all_gather", num_bytes).passing


def over_copies_s(job: Job, num_bytes: int) -> float:
    """For a piece that the holders have reduced: the time to all-reduce each chunk over the copies."""
    return job.copies.seconds("all_reduce", num_bytes // len(job.holders.ranks))


class Beside:
    """The ranks of a pipeline with ZeRO from stage 2 on, each with a second stream: on it each layer's gradients are
    reduced after each backward, and in stage 3 its weights gathered before each pass. It leaves out that messages
    between stages and within layers use the same links.

    It is also what `peaks` asks about, as a `Meanwhile`.

    Args:
        of: the communication of a rank's pieces.

    Attributes:
        streams: of each rank.
    """

    def __init__(self, job: Job, of: Callable[[Job, Sequence[Piece]], Travel] = travel) -> None:
        self._stages, self._last = job.schedule.placement, job.schedule.num_stages - 1
        self._parts, self.streams = [], list[Streams]()
        for part, stages in zip(job.parts, self._stages, strict=True):
            pieces = job.pieces(part)
            self._parts.append([layers_of(job, job.bounds[stage], pieces) for stage in stages])
            self.streams.append(Streams(of(job, pieces)))

    def end_s(self, rank: int, action: Action, start_s: float) -> float:
        """When an action ends that begins then, on a rank that has performed all actions before it."""
        self.streams[rank].now_s = start_s
        for part in action.parts:
            self._perform(rank, part)
        return self.streams[rank].now_s

    def around(self, rank: int, part: Part) -> tuple[float, float]:
        """See Meanwhile."""
        streams = self.streams[rank]
        streams.held_bytes = streams.waited_bytes = 0.0
        streams.wait()
        self._perform(rank, part)
        return streams.waited_bytes, streams.held_bytes

    def _perform(self, rank: int, part: Part) -> None:
        streams, layers = self.streams[rank], self._parts[rank][part.chunk][part.letter]
        if part.letter == "F":
            streams.forward(layers, backward_follows=False)
            return
        loss = part.letter != "W" and self._stages[rank][part.chunk] == self._last
        streams.backward(layers, halves="IW" if part.letter == "B" else part.letter, loss=loss)


def unpiped(job: Job) -> tuple[list[Piece], dict[str, list[Layer]]]:
    """On ranks with all layers: what is reduced or gathered during the passes, and `layers_of` the whole model."""
    pieces = [] if job.reduces_late else job.pieces(job.parts[0])
    return pieces, layers_of(job, slice(0, len(job.anatomy.layers)), pieces)


def layers_of(job: Job, bound: slice, pieces: Sequence[Piece]) -> dict[str, list[Layer]]:
    """The layers of a stage, with their times and memory in an action, by its letter."""
    footprints = job.anatomy.layers[bound]
    names = [{weight.name for weight in weights} for weights in job.anatomy.weights[bound]]
    used = [[i for i, piece in enumerate(pieces) if not own.isdisjoint(piece.ends)] for own in names]
    first, last = uses(used)
    whole = set[str]().union(*names)
    parted = tuple(i for i, piece in enumerate(pieces) if not piece.ends.keys() <= whole)
    number = [0, *accumulate(map(bool, used))]  # of layers with weights before each
    held, left = working_bytes(footprints), left_bytes(footprints)

    def layers(letter: str) -> Iterator[Layer]:
        for k, (own, footprint) in enumerate(zip(used, footprints, strict=True)):
            begins, ends = ([i for i in own if edge[i] == number[k]] for edge in (first, last))
            sizes = held[letter][k], footprint.scratch_bytes, left[letter][k] if letter in left else 0.0
            yield Layer(footprint.seconds[letter], begins, ends, 0.0, *sizes, bool(own), parted)

    return {letter: list(layers(letter)) for letter in "FBIW"}
