"""Methods by the names that a config calls them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simdist.errors import ArgumentError
from simdist.parallel import Centralized, Compressed, DataParallel, MapReduce, Method, Offload, Recipe, ZeRO
from simdist.parallel.precision import precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from simdist.comm import Communicator
    from simdist.nn import Model
    from simdist.training.config import Config

__all__ = ["OFFLOADS", "check", "distribute", "methods", "recipe"]

OFFLOADS = ("none", "optimizer", "gradients", "parameters")
"""What may lie outside of a rank's device, each with those before it."""


def _compressed(model: Model, comm: Communicator, config: Config) -> Method:
    given = {"share": config.compress_share, "block": config.compress_block, "rank": config.compress_rank}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Compressed(model, comm, recipe(config), config.seed, config.compress, **options)


def _zero(model: Model, comm: Communicator, config: Config) -> Method:
    return ZeRO(
        model,
        comm,
        recipe(config),
        config.seed,
        config.zero,
        bucket_bytes=config.bucket_bytes or 1,
        algorithm=config.algorithm,
        offload=_offload(config),
    )


def _offload(config: Config) -> Offload | None:
    if config.offload in (None, "none"):
        return None
    return Offload(OFFLOADS[1 : OFFLOADS.index(config.offload) + 1], config.offload_to)


_METHODS: dict[str, Callable[[Model, Communicator, Config], Method]] = {
    "ddp": lambda m, comm, c: DataParallel(m, comm, recipe(c), c.seed, c.algorithm, c.bucket_bytes),
    "dp": lambda m, comm, c: DataParallel(m, comm, recipe(c), c.seed, c.algorithm),
    "zero": _zero,
    "fsdp": _zero,
    "compressed": _compressed,
    "server": lambda m, comm, c: Centralized(m, comm, recipe(c), c.seed),
    "map-reduce": lambda m, comm, c: MapReduce(m, comm, recipe(c), c.seed),
}
_STAGES = {"ddp": (0,), "zero": (1, 2), "fsdp": (3,)}


def methods() -> list[str]:
    """The names of all methods."""
    return list(_METHODS)


def recipe(config: Config) -> Recipe:
    """How weights are to change, by a config; what its optimizer has no use for stays as it is by default."""
    given: dict[str, Any] = {
        "momentum": config.momentum,
        "betas": None if config.beta1 is None else (config.beta1, config.beta2),
        "max_norm": config.clip_norm or None,
    }
    return Recipe(
        config.optimizer,
        weight_decay=config.weight_decay,
        precision=precision(config.precision),
        **{name: value for name, value in given.items() if value is not None},
    )


def check(config: Config) -> None:
    """Raise ArgumentError if a method's settings do not go together."""
    method = config.method
    if method in _STAGES and config.zero not in _STAGES[method]:
        raise ArgumentError(f"zero is {config.zero}, and method {method}; leave the method out, or see that they agree")
    if method in ("zero", "fsdp") and config.algorithm not in ("auto", "ring"):
        raise ArgumentError(f"algorithm is {config.algorithm}, and method {method}; needs auto or ring")
    if method == "compressed" and precision(config.precision).dtype.itemsize < 4:
        raise ArgumentError(
            f"precision is {config.precision}, and compress {config.compress}; needs float32 or float64"
        )
    offload = _offload(config)
    if offload:
        offload.check(config.zero)


def distribute(model: Model, comm: Communicator, config: Config) -> Method:
    """A model, trained by the ranks of `comm` in the way that a config asks for."""
    return _METHODS[config.method](model, comm, config)
