"""Pipelines of a config: the schedule, the costs that balance stages, and incompatible settings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from simdist.errors import ArgumentError
from simdist.parallel import Recipe
from simdist.parallel.pipeline import (
    LayerCost,
    PipeDream,
    Pipeline,
    Schedule,
    Times,
    load,
    modelled_costs,
    schedule,
    schedules,
    split,
    stage_times,
)
from simdist.parallel.pipeline.schedules import FILES, maker, options
from simdist.parallel.precision import precision
from simdist.training.models import num_layers, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simdist.cluster import Cluster
    from simdist.comm import Mesh
    from simdist.nn import Model
    from simdist.parallel.spread import Spread
    from simdist.training.config import Config

__all__ = ["check", "chunked", "costs", "is_updating", "over_links", "pipeline", "schedule_of"]


def chunked() -> list[str]:
    """The schedules in which a rank may have any number of stages."""
    return [name for name in schedules() if "chunks" in options(name)]


def is_updating(name: str | None) -> bool:
    """Whether this schedule updates weights while micro-batches are in flight: stages never wait for each other's
    updates.
    """
    if not name:
        return False
    if name.endswith(FILES):
        return not load(name).weights.flushes
    try:
        return not _schedule(name, 2, 2, 2 if "chunks" in options(name) else None).weights.flushes
    except ArgumentError:  # there is none of this name, or none of this size
        return False


def schedule_of(config: Config) -> Schedule:
    """The schedule that a config asks for; where it depends on times, for those that its stages should take."""
    if config.schedule.endswith(FILES):  # not cached, as the file may change
        return schedule(config.schedule, stages=config.pp, micro_batches=config.micro_batches)
    times = _times(config) if "times" in options(config.schedule) else None
    return _schedule(config.schedule, config.pp, config.micro_batches, config.chunks, times)


def _schedule(name: str, stages: int, micro_batches: int, chunks: int | None, times: Times | None = None) -> Schedule:
    others = {"chunks": chunks, "times": times or (Times() if "times" in options(name) else None)}
    given = tuple((option, value) for option, value in others.items() if value is not None)
    return _made(maker(name), name, stages, micro_batches, given)


@cache  # a config is made anew in many places, and a search takes seconds
def _made(
    by: Callable[..., Schedule], name: str, stages: int, micro_batches: int, given: tuple[tuple[str, Any], ...]
) -> Schedule:
    """The schedule of this name, kept by its maker too: a notebook's cell may register the name anew."""
    return schedule(name, stages=stages, micro_batches=micro_batches, **dict(given))


def costs(config: Config) -> list[LayerCost]:
    """The cost of each layer, in operations on a window, by which stages are balanced."""
    model, like = sample(config)
    found = modelled_costs(model, 1, config.context_bytes + 1)
    return [found[layer] for layer in like]


def over_links(
    times: Times, cluster: Cluster, ranks: Sequence[int], num_bytes: float, at_once: int = 1, in_turn: int = 1
) -> Times:
    """The same times, with those of messages: both ways between neighbours in a line, and between its two ends.

    A rank's messages pass one after the other through its device or its network card; long ones wait until
    their receiver expects them.

    Args:
        ranks: the global rank of each in the line.
        at_once: how many ranks send each message together, by one card: it arrives when all have sent.
        in_turn: how many lines have messages that follow each other through one card.
    """
    far, hops, ports = cluster.between.bytes_per_s, dict[tuple[int, int], float](), dict[tuple[int, int], Any]()
    for rank, other in pairwise([*range(len(ranks)), 0]):
        near = cluster.node_of(ranks[rank]) == cluster.node_of(ranks[other])
        link = cluster.inside if near else replace(cluster.between, bytes_per_s=far / at_once)
        port = ("device", num_bytes / link.bytes_per_s) if near else ("card", in_turn * num_bytes / far)
        for pair in (rank, other), (other, rank):
            hops[pair], ports[pair] = link.seconds(num_bytes), port
    return replace(times, communication=hops, ports=ports, rendezvous=num_bytes > cluster.eager_bytes)


def _times(config: Config) -> Times:
    """TF, TB and TW of stages balanced by these costs."""
    layers = costs(config)
    return stage_times(layers, split([layer.total for layer in layers], _num_stages(config)))


def _num_stages(config: Config) -> int:
    """The number of the schedule's stages, which does not depend on the batch."""
    if config.schedule.endswith(FILES):
        return schedule_of(config).num_stages
    # A search by times needs this number; that for a single micro-batch has it too.
    micro_batches = 1 if "times" in options(config.schedule) else config.micro_batches
    return _schedule(config.schedule, config.pp, micro_batches, config.chunks).num_stages


def pipeline(
    model: Model, mesh: Mesh, recipe: Recipe, config: Config, spread: Spread | None = None
) -> Pipeline | PipeDream:
    """A model in the pipeline that a config asks for; the arguments are those of `Pipeline`."""
    layers = [layer.total for layer in costs(config)]
    made = schedule_of(config)
    given = (model, mesh, recipe, config.seed, made)
    if not made.weights.flushes:
        return PipeDream(*given, costs=layers)
    return Pipeline(*given, costs=layers, zero_stage=config.zero, shards=config.shards or 0, spread=spread)


def check(config: Config) -> None:
    """Raise ArgumentError if a pipeline's settings are incompatible."""
    if config.pp > 1 and Recipe(config.optimizer).whole_model:
        raise ArgumentError(
            f"pp {config.pp}, and optimizer {config.optimizer}, which needs the whole model on each rank"
        )
    if is_updating(config.schedule):
        _check_updating(config)
    layers = num_layers(config)
    if config.pp > layers:
        raise ArgumentError(f"pp is {config.pp}; this {config.model} has {layers} layers that can be parted")
    stages = _num_stages(config)
    if stages > layers:
        raise ArgumentError(
            f"schedule {config.schedule} on pp {config.pp} makes {stages} stages; "
            f"this {config.model} has {layers} layers that can be parted"
        )
    schedule_of(config)


def _check_updating(config: Config) -> None:
    """Refuse what has no meaning where each stage updates at its own time."""
    wrong = {
        f"zero {config.zero}": config.zero,
        f"clip_norm {config.clip_norm}": config.clip_norm,
        f"precision {config.precision}": precision(config.precision).scaled,
        f"logits {config.logits}": config.logits == "tied",
        **{f"{axis} {getattr(config, axis)}": (getattr(config, axis) or 1) > 1 for axis in ("tp", "sp", "ep")},
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise ArgumentError(
                f"{what}, and schedule {config.schedule}, whose stages update each at its own time; "
                "that goes with a schedule that updates after all micro-batches, such as 1f1b"
            )
