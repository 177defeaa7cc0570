"""File: a user's own cluster, described in TOML."""

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from re import fullmatch
from typing import Any, TypeVar

from simdist import toml
from simdist.cluster.cluster import Cluster
from simdist.cluster.device import Device
from simdist.cluster.host import Host
from simdist.cluster.link import Link
from simdist.cluster.presets import preset
from simdist.cluster.route import Torus
from simdist.errors import ArgumentError

__all__ = ["as_toml", "find_cluster", "read_cluster"]

T = TypeVar("T", Cluster, Device, Host, Link)

_PARTS: dict[str, type] = {"device": Device, "inside": Link, "between": Link, "host": Host}
_PLAIN = (str, int, float, bool)


def find_cluster(source: Cluster | str) -> Cluster:
    """The cluster given, or the preset of this name or, if it ends in .toml, the cluster described in that file.

    Raises:
        UnknownNameError: there is no such preset.
        ArgumentError: it is neither a cluster nor a name; or as of `read_cluster`, as DataError is.
    """
    if isinstance(source, Cluster):
        return source
    if not isinstance(source, str):
        raise ArgumentError(f"cluster is {source!r}; needs a Cluster, or a name such as 'h100'")
    if source.endswith(".toml"):
        return read_cluster(source)
    if source.endswith((".json", ".yaml", ".yml")):
        raise ArgumentError(f"cluster is {source!r}; a cluster's file is TOML, and its name ends in .toml")
    return preset(source)


def read_cluster(path: str | Path) -> Cluster:
    """The cluster that a TOML file describes: keys are the arguments of `Cluster`, tables those of its parts.

        like = "a100"                       # a preset, for everything not given here
        devices_per_node = 4                # also nics_per_node, eager_bytes, jitter, seed, one_memory
        slow = { 3 = 2.0 }                  # rank 3 takes twice as long to compute
        torus = [8, 8]                      # of hosts, one device each, whose messages share wires: see `Torus`

        [device]                            # see `Device`
        flops_efficiency = 0.85             # the share of the maker's peak rate that programs reach
        memory_efficiency = 0.5

        [between]                           # and [inside], see `Link`; [host], see `Host`
        latency_s = 8e-6
        bytes_per_s = 20e9                  # of one card; of 40e9 a network oversubscribed 2:1 leaves each a half

    If no name is given, it is the file's.

    Raises:
        DataError: the file cannot be read.
        UnknownNameError: a key is no argument, or there is no such preset; the message names the nearest one.
        ArgumentError: the file is not TOML, a value is of the wrong type or outside its limits, or a required
            value is missing.
    """
    path = Path(path)
    kinds = {f.name: f.type for f in fields(Cluster) if f.type in _PLAIN}
    kinds |= {"like": str, "slow": dict, "torus": list, **dict.fromkeys(_PARTS, dict)}
    told = toml.check_kinds(toml.read(path, "cluster"), kinds, str(path))
    base = preset(told.pop("like")) if "like" in told else None
    told.setdefault("name", path.stem)
    for key, field, made in (("slow", "slow", _slow), ("torus", "route", _torus)):
        if key in told:
            told[field] = made(told.pop(key), path)
    for name in (part for part in _PARTS if part in told):
        kind, where = _PARTS[name], f"[{name}] in {path}"
        own = toml.check_kinds(told[name], {f.name: f.type for f in fields(kind)}, where)
        if kind is Device and base is None:
            own.setdefault("name", told["name"])
        told[name] = _made(kind, getattr(base, name, None), own, where)
    return _made(Cluster, base, told, str(path))


def _made(kind: type[T], base: T | None, told: dict[str, Any], where: str) -> T:
    """An object of this kind with these values; the others are those of the base."""
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in told]
    if base is None and missing:
        raise ArgumentError(f'{where} needs {" and ".join(missing)}, or else a preset to start from: like = "…"')
    try:
        return kind(**told) if base is None else replace(base, **told)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from error


def _torus(sides: list[Any], path: Path) -> Torus:
    try:
        return Torus(tuple(sides))
    except ArgumentError as error:
        raise ArgumentError(f"torus in {path} is {sides}: {error}") from error


def _slow(told: dict[str, Any], path: Path) -> dict[int, float]:
    """Factors by rank; TOML's keys are strings."""
    if not all(fullmatch("0|[1-9][0-9]{0,8}", rank) for rank in told):
        raise ArgumentError(f"slow in {path} is {told}; needs a factor by rank, such as {{ 2 = 4.0 }}")
    factors = toml.check_kinds(told, dict.fromkeys(told, float), f"slow in {path}")
    return {int(rank): factor for rank, factor in factors.items()}


def as_toml(cluster: Cluster) -> str:
    """The file that `read_cluster` reads this cluster from, except `tuned`, and a route that is a program's own."""
    lines = _lines(cluster)
    if cluster.slow:
        lines.append(f"slow = {{ {', '.join(f'{rank} = {float(x)!r}' for rank, x in cluster.slow.items())} }}")
    if isinstance(cluster.route, Torus):
        lines.append(f"torus = {[int(side) for side in cluster.route.sides]}")
    elif cluster.route is not None:
        lines.append("# its route, a function of a program, is not stored")
    for name in _PARTS:
        lines += ["", f"[{name}]", *_lines(getattr(cluster, name))]
    return "\n".join(lines) + "\n"


def _lines(of: Cluster | Device | Host | Link) -> list[str]:
    """The values that are not tables."""
    return [f"{f.name} = {_value(f.type(getattr(of, f.name)))}" for f in fields(of) if f.type in _PLAIN]


def _value(x: str | int | float | bool) -> str:
    """TOML writes values as JSON does, except infinity, and DEL, which JSON leaves unescaped."""
    return repr(x) if isinstance(x, float) else json.dumps(x, ensure_ascii=False).replace("\x7f", "\\u007f")
