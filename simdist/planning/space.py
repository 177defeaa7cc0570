"""Space: all ways to train a model on a number of ranks that the given settings leave open."""

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import product
from math import prod
from typing import Any

from simdist.cluster import Cluster
from simdist.errors import ArgumentError, require_kind, require_whole
from simdist.nn.shape import RECOMPUTATIONS
from simdist.parallel.even import divisors
from simdist.planning.group import misfit
from simdist.planning.scope import MOST_MICRO_BATCHES, check_known, too_long
from simdist.training.config import Config, options, typed
from simdist.training.methods import CUTTING, PIPELINE
from simdist.training.models import sized
from simdist.training.option import check_names
from simdist.training.pipelines import chunked, schedule_of
from simdist.training.settings import spelled
from simdist.words import counted

__all__ = ["LONG", "SCHEDULES", "ways"]

SCHEDULES = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v")
"""The pipeline schedules to try if none is given."""

LONG = 16384
"""The shortest window, in tokens, for which sp is tried, unless its attention is given."""

_Alike = dict[tuple[tuple[str, Any], ...], Config]
"""Configs by all settings but the number of micro-batches."""

_ATTENTION = {"ulysses", "ring_attention"}
_MOST_REASONS = 3
_IDLE = (("offload", "none"), ("shards", 0))  # allowed for any way, but settings of some methods only


def ways(given: Mapping[str, Any], ranks: int, cluster: Cluster) -> Iterator[list[Config]]:
    """Every possible way, as its configs from the one that recomputes nothing to the one that recomputes all.

        setting, fixed if given             values tried otherwise
        dp, tp, pp                          all whose product is the number of ranks, tp (with sp and ep) within a node
        ep                                  with experts: all that divide their number
        sp                                  windows of LONG tokens and more, or if its attention is given
        ulysses, ring_attention             with sp, each
        zero, schedule                      0 to 3 without a pipeline; 0 and 1, which send less, and SCHEDULES with one
        chunks                              2, and more that leave each stage as many blocks
        shards                              all of dp, and the number that fit in a node
        micro_batches                       1, 2, 4, …, or each of 1, 2, 4, … windows; within the limits of `scope`
        sequence_parallel                   on and off
        recompute                           none, then selective, then full

    Args:
        given: settings of a `Config`; all others have their defaults.

    Raises:
        ArgumentError: nothing is possible, with the commonest reasons; or a given feature is not predicted.
        UnknownNameError: there is no such setting.
    """
    given = _checked(given, ranks)
    fixed = {name: value for name, value in given.items() if (name, value) not in _IDLE} | {"device": "phantom"}
    reasons: Counter[str] = Counter()
    misfits: Counter[str] = Counter()  # the reason only if no mesh fits the ranks
    found = False
    alike: _Alike = {}
    for settings in _settings(given, _meshes(given, ranks, cluster, misfits), cluster, reasons):
        try:
            config = _config(fixed, settings, alike)
        except ArgumentError as error:  # incompatible axes, more stages than layers, …
            reasons[str(error)] += 1
            continue
        found = True
        yield [_with(config, "recompute", how) for how in _recomputations(given)] or [config]
    if not found:
        commonest = [reason for reason, _ in (reasons or misfits).most_common(_MOST_REASONS)]
        why = "; ".join(commonest) or "no mesh has the axes that are given"
        raise ArgumentError(f"no way to train on {ranks} ranks: {why}")


def _checked(given: Mapping[str, Any], ranks: int) -> Mapping[str, Any]:
    """The given settings, with the sizes of a model that has a name; raises if one is none, or outside its limits."""
    require_whole("ranks", ranks, 1)
    require_kind("given", given, Mapping, '{"model": "gpt2-xl"}')
    check_names(Config, given)
    model = dict(options())["model"].default
    whole = {"model": model} | {name: value for name, value in given.items() if value is not None}
    check_known(found := typed(sized(spelled(whole))))
    for name, what in options():
        if name in found:
            what.check(name, found[name])
    return found


def _settings(
    given: Mapping[str, Any], meshes: Iterable[dict[str, int]], cluster: Cluster, reasons: Counter[str]
) -> Iterator[dict[str, Any]]:
    """All combinations, possible or not; adds to `reasons` why others are left out."""
    default = Config(model=given["model"])
    batch, context = (given.get(name) or getattr(default, name) for name in ("global_batch_size", "context_bytes"))
    for mesh in meshes:
        copies = mesh["dp"] * mesh["ep"]
        windows, uneven = divmod(batch, copies)
        if uneven:
            reasons[f"{counted(batch, 'window')} cannot be shared evenly by {copies} ranks"] += 1
            continue
        if mesh["dp"] % (given.get("shards") or 1):
            reasons[f"dp {mesh['dp']} is not a multiple of shards {given['shards']}"] += 1
            continue
        axes = {axis: size for axis, size in mesh.items() if size > 1 or axis == "dp"}
        sharded = [{}, {"sequence_parallel": True}] if mesh["tp"] > 1 and "sequence_parallel" not in given else [{}]
        attending = [{}, {"ulysses": True}] if mesh["sp"] > 1 and not given.keys() & _ATTENTION else [{}]
        for micro_batches in _micro_batches(given, windows, context, reasons):
            for method in _methods(given, mesh["pp"]):
                shards = _shards(given, mesh, cluster) if {**given, **method}.get("zero") else [{}]
                chunks = _chunks({**given, **method}, mesh["pp"])
                for parts in product(sharded, attending, shards, chunks):
                    yield {**axes, "micro_batches": micro_batches, **method, **ChainMap(*parts)}


def _meshes(given: Mapping[str, Any], ranks: int, cluster: Cluster, misfits: Counter[str]) -> Iterator[dict[str, int]]:
    """The sizes of all axes. Ranks that share layers divide a node evenly, or fill several nodes."""
    most = cluster.devices_per_node
    near = [n for n in divisors(ranks) if n <= most]
    experts = [n for n in near if (given.get("experts") or 1) % n == 0]
    long = near if given.get("context_bytes", 0) >= LONG or any(map(given.get, _ATTENTION)) else [1]
    for tp, sp, ep in product(_open(given, "tp", near), _open(given, "sp", long), _open(given, "ep", experts)):
        inside = tp * sp * ep
        if inside > most and inside > prod(given.get(axis) or 1 for axis in CUTTING):
            continue
        if why := misfit(inside, ranks, cluster):
            misfits[why] += 1
            continue
        for pp in _open(given, "pp", divisors(ranks)):
            if pp == 1 and "schedule" in given:
                misfits[f"schedule is {given['schedule']}, and pp 1; a schedule is for pp of at least 2"] += 1
                continue
            for dp in [given["dp"]] if given.get("dp") else [ranks // (inside * pp) or 1]:
                if inside * pp * dp == ranks:
                    yield {"pp": pp, "dp": dp, "ep": ep, "sp": sp, "tp": tp}
                else:
                    misfits[f"dp {dp} x pp {pp} x {inside} that share layers are {dp * pp * inside} ranks"] += 1


def _micro_batches(given: Mapping[str, Any], windows: int, context: int, reasons: Counter[str]) -> Sequence[int]:
    """The numbers to try: powers of two, and those for which each has a power of two of windows."""
    powers = [1 << k for k in range(windows.bit_length())]
    even = {n for power in powers if windows % power == 0 for n in (power, windows // power)}
    counts = sorted((n for n in even if n <= MOST_MICRO_BATCHES), reverse=True)
    if "micro_batches" in given:
        counts = [given["micro_batches"]]
        if windows % counts[0]:
            reasons[f"{windows} windows of a rank do not split evenly into {counts[0]} micro-batches"] += 1
            return []
    found = [n for n in counts if not too_long(windows // n, context)]
    if not found:
        reasons[too_long(windows // counts[0], context)] += 1
    return found


def _methods(given: Mapping[str, Any], pp: int) -> Iterator[dict[str, Any]]:
    """The ZeRO stages and pipeline schedules to try; absent settings keep their defaults."""
    stages = {None: (0, 1) if pp > 1 else (0, 1, 2, 3), PIPELINE: (0, 1), "zero": (1, 2), "fsdp": (3,)}
    choices = (0,) if "zero" in given else stages.get(given.get("method"), (0,))
    zeros: list[dict[str, Any]] = [{"zero": zero} if zero else {} for zero in choices]
    for schedule in _open(given, "schedule", SCHEDULES) if pp > 1 else ():
        yield from ({**zero, "schedule": schedule} for zero in zeros)
    if pp == 1:
        yield from zeros


def _chunks(given: Mapping[str, Any], pp: int) -> list[dict[str, int]]:
    """The numbers to try, if the schedule takes any: the default, and others that divide the blocks of a rank."""
    if given.get("schedule") not in chunked() or "chunks" in given:
        return [{}]
    own, uneven = divmod(given.get("layers") or 1, pp)
    return [{}, *({"chunks": n} for n in range(3, own + 1) if not (uneven or own % n))]


def _shards(given: Mapping[str, Any], mesh: Mapping[str, int], cluster: Cluster) -> list[dict[str, int]]:
    """The numbers of ZeRO shards to try: all of dp, and if dp spans nodes, its ranks in a node."""
    in_node = cluster.devices_per_node // prod(mesh[axis] for axis in CUTTING)
    if "shards" in given or in_node < 2 or in_node >= mesh["dp"] or mesh["dp"] % in_node:
        return [{}]
    return [{}, {"shards": in_node}]


def _recomputations(given: Mapping[str, Any]) -> list[str]:
    """From none to full, where the setting is open."""
    if "recompute" in given or given.get("model") != "gpt":
        return []
    flash = given.get("flash_attention")  # selective recomputation would save nothing then
    return [how for how in RECOMPUTATIONS if not (flash and how == "selective")]


def _config(fixed: Mapping[str, Any], settings: Mapping[str, Any], alike: _Alike) -> Config:
    """The config of these settings: checked and added to `alike`, unless one there differs only in the number of
    micro-batches. Then that one with this number, on which nothing but a schedule depends.

    Raises:
        ArgumentError: the settings are incompatible, or the schedule is not for this number.
    """
    others = tuple(sorted(each for each in settings.items() if each[0] != "micro_batches"))
    if others not in alike:
        alike[others] = Config(**{**fixed, **settings})
        return alike[others]
    config = _with(alike[others], "micro_batches", settings["micro_batches"])
    if config.schedule:
        schedule_of(config)
    return config


def _with(config: Config, name: str, value: Any) -> Config:
    """The same config with another value of a setting on which no other depends: it is not checked anew."""
    made = copy(config)
    object.__setattr__(made, name, value)
    return made


def _open(given: Mapping[str, Any], name: str, choices: Sequence[Any]) -> Sequence[Any]:
    """The value given, or else the choices."""
    return [given[name]] if name in given else choices
