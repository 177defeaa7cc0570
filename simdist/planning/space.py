"""Space: the ways to train a model on so many ranks, as far as their settings were left open."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from simdist.cluster import Cluster
from simdist.errors import ArgumentError
from simdist.nn.shape import RECOMPUTATIONS
from simdist.training.config import Config
from simdist.training.pipelines import UPDATING

__all__ = ["SCHEDULES", "ways"]

SCHEDULES = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v")
"""The schedules that a pipeline is tried with, where none is asked for."""


def ways(given: Mapping[str, Any], ranks: int, cluster: Cluster) -> Iterator[list[Config]]:
    """Every way that is possible: its configs from the one that recomputes nothing to the one that recomputes all.

        given is fixed                      left open means tried
        dp, tp, pp                          all that multiply to the ranks, tp within a node
        zero, schedule                      0 to 3 without a pipeline; 0 and 1, and SCHEDULES with one
        micro_batches                       micro-batches of 1, 2, 4, … windows
        sequence_parallel, recompute        both; none, then selective, then full

    Args:
        given: settings of a `Config`, "model" among them; all others have their defaults.

    Raises:
        ArgumentError: nothing is possible; for the reason that the last way was refused for.
    """
    _check(given)
    refused: ArgumentError | None = None
    found = False
    for settings in _settings(given, ranks, cluster):
        try:
            way = [Config(**{**given, **settings, **again, "device": "phantom"}) for again in _recomputations(given)]
        except ArgumentError as error:  # two axes that do not go together, more stages than layers, …
            refused = error
            continue
        found = True
        yield way
    if not found:
        why = refused or "what is given leaves no mesh whose copies of the model share the batch evenly"
        raise ArgumentError(f"no way to train on {ranks} ranks: {why}") from refused


def _check(given: Mapping[str, Any]) -> None:
    """Raise ArgumentError if something is asked for of which nothing is predicted."""
    for name, known in (("offload", ("none",)), ("device", ("phantom",))):
        if given.get(name, known[0]) not in known:
            raise ArgumentError(f"{name} is {given[name]}; plans are of {name} {known[0]}")
    if given.get("schedule") in UPDATING:
        raise ArgumentError(f"schedule is {given['schedule']}; plans are of those that update after all micro-batches")


def _settings(given: Mapping[str, Any], ranks: int, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """All combinations, possible or not."""
    batch = given.get("global_batch_size") or Config(model=given["model"]).global_batch_size
    for mesh in _meshes(given, ranks, cluster):
        windows, uneven = divmod(batch, mesh["dp"] * (given.get("ep") or 1))
        if uneven or not windows:
            continue
        axes = {axis: size for axis, size in mesh.items() if size > 1 or axis == "dp"}
        sharded = [{}, {"sequence_parallel": True}] if mesh["tp"] > 1 and "sequence_parallel" not in given else [{}]
        for micro_batches in _micro_batches(given, windows):
            for method in _methods(given, mesh["pp"]):
                for way in sharded:
                    yield {**axes, "micro_batches": micro_batches, **method, **way}


def _meshes(given: Mapping[str, Any], ranks: int, cluster: Cluster) -> Iterator[dict[str, int]]:
    """The sizes of pp, dp and tp."""
    rest, uneven = divmod(ranks, prod(given.get(axis) or 1 for axis in ("sp", "ep")))
    if uneven:
        return
    divisors = [n for n in range(1, rest + 1) if rest % n == 0]
    for tp in _open(given, "tp", [n for n in divisors if n <= cluster.devices_per_node]):
        for pp in _open(given, "pp", divisors):
            dp = rest // (tp * pp)
            if tp * pp * dp == rest and given.get("dp") in (None, 0, dp):
                yield {"pp": pp, "dp": dp, "tp": tp}


def _micro_batches(given: Mapping[str, Any], windows: int) -> Sequence[int]:
    """How many: each of 1, 2, 4, … windows."""
    sizes = [1 << k for k in range(windows.bit_length())]
    return _open(given, "micro_batches", [windows // size for size in sizes if windows % size == 0])


def _methods(given: Mapping[str, Any], pp: int) -> Iterator[dict[str, Any]]:
    """What the ranks of dp share, and in which order those of pp work; what is not said is as it is by default."""
    choices = [0] if "zero" in given or "method" in given else [0, 1] if pp > 1 else [0, 1, 2, 3]
    stages: list[dict[str, Any]] = [{"zero": zero} if zero else {} for zero in choices]
    for schedule in _open(given, "schedule", SCHEDULES) if pp > 1 else ():
        yield from ({**zero, "schedule": schedule} for zero in stages)
    if pp == 1 and "schedule" not in given:
        yield from stages


def _recomputations(given: Mapping[str, Any]) -> list[dict[str, str]]:
    """From none on, where there is anything to choose."""
    if "recompute" in given or given.get("model") != "gpt":
        return [{}]
    return [{"recompute": each} for each in RECOMPUTATIONS]


def _open(given: Mapping[str, Any], name: str, choices: Sequence[Any]) -> Sequence[Any]:
    """The choices, or what is given."""
    return [given[name]] if name in given else choices
