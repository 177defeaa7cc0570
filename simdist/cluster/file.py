"""File: a cluster of one's own, described in TOML."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Any

from simdist import toml
from simdist.cluster.cluster import Cluster
from simdist.cluster.device import Device
from simdist.cluster.host import Host
from simdist.cluster.link import Link
from simdist.cluster.presets import preset
from simdist.errors import ArgumentError

__all__ = ["find_cluster", "read_cluster"]

_PARTS: dict[str, type] = {"device": Device, "inside": Link, "between": Link, "host": Host}
_PLAIN = (str, int, float, bool)


def find_cluster(source: str) -> Cluster:
    """The preset of this name; or the cluster in a file, where it ends in .toml.

    Raises:
        UnknownNameError: there is no such preset.
        DataError, ArgumentError: as of `read_cluster`.
    """
    return read_cluster(source) if source.endswith(".toml") else preset(source)


def read_cluster(path: str | Path) -> Cluster:
    """The cluster that a TOML file describes: keys are the arguments of `Cluster`, tables those of its parts.

        like = "a100"                       # a preset, of which all is that is not said here
        devices_per_node = 4
        slow = { 3 = 2.0 }                  # rank 3 takes twice as long to compute

        [device]
        flops_efficiency = 0.85             # the maker's rates are peaks, of which programs reach so much
        memory_efficiency = 0.5

        [between]                           # [inside] and [host] are of this kind, too
        latency_s = 8e-6
        bytes_per_s = 20e9

    Its name, where it has none of its own, is the file's.

    Raises:
        DataError: the file cannot be read.
        UnknownNameError: a key is no argument, or there is no such preset; the message names the nearest one.
        ArgumentError: the file is not TOML, a value is of the wrong kind or outside its limits, or something is not
            given that nothing else gives.
    """
    path = Path(path)
    kinds = {field.name: field.type for field in fields(Cluster) if field.type in _PLAIN}
    told = toml.check_kinds(
        toml.read(path, "cluster"), {"like": str, "slow": dict, **kinds, **dict.fromkeys(_PARTS, dict)}, str(path)
    )
    like = told.pop("like", None)
    base = None if like is None else preset(like)
    told.setdefault("name", path.stem)
    if "slow" in told:
        told["slow"] = _slow(told["slow"], path)
    for name, kind in _PARTS.items():
        if name in told:
            own = toml.check_kinds(told[name], {f.name: f.type for f in fields(kind)}, f"[{name}] in {path}")
            told[name] = _part(kind, getattr(base, name, None), own, f"[{name}] in {path}")
    cluster: Cluster = _part(Cluster, base, told, str(path))
    return cluster


def _part(kind: type, base: Any, told: Mapping[str, Any], where: str) -> Any:
    """Something of this kind: as it is told, and else as the base is."""
    if base is not None:
        return replace(base, **told)
    if kind is Device:
        told = {"name": "device", **told}
    missing = [field.name for field in fields(kind) if _needed(field) and field.name not in told]
    if missing:
        raise ArgumentError(f'{where} needs {" and ".join(missing)}, or else a cluster that it is like = "…"')
    return kind(**told)


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _slow(told: Mapping[str, Any], path: Path) -> dict[int, float]:
    """Factors by rank; TOML's keys are words."""
    if not all(rank.isdecimal() for rank in told):
        raise ArgumentError(f"slow in {path} is {told}; needs a factor by rank, such as {{ 2 = 4.0 }}")
    factors = toml.check_kinds(told, dict.fromkeys(told, float), f"slow in {path}")
    return {int(rank): factor for rank, factor in factors.items()}
