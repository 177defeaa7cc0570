"""Methods, by their names in a config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from simdist.errors import ArgumentError, wrong_return
from simdist.nn import Shape
from simdist.parallel import Centralized, Compressed, DataParallel, MapReduce, Method, Offload, Recipe, ZeRO
from simdist.parallel.parts import check_cut
from simdist.parallel.precision import precision
from simdist.registry import Registry
from simdist.training import pipelines
from simdist.training.asynchronous import methods as asynchronous
from simdist.training.models import shape

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from simdist.comm import Communicator
    from simdist.nn import Model
    from simdist.parallel.spread import Spread
    from simdist.training.config import Config

    Make: TypeAlias = Callable[[Model, Communicator, Config, Spread | None], Method]
    Own = TypeVar("Own", bound=Callable[[Model, Communicator, Config], Method])
    OwnWay = TypeVar("OwnWay", bound=asynchronous.Way)

__all__ = [
    "CUTTING",
    "CUT_METHODS",
    "OFFLOADS",
    "PIPELINE",
    "attention",
    "check",
    "distribute",
    "methods",
    "named",
    "named_asynchronous",
    "recipe",
    "whole",
]

OFFLOADS = ("none", "optimizer", "gradients", "parameters")
"""What a rank may keep outside its device; each includes those before it."""


def _compressed(model: Model, comm: Communicator, config: Config, spread: Spread | None) -> Method:
    given = {"share": config.compress_share, "block": config.compress_block, "rank": config.compress_rank}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Compressed(model, comm, recipe(config), config.seed, config.compress, **options)


def _zero(model: Model, comm: Communicator, config: Config, spread: Spread | None) -> Method:
    return ZeRO(
        model,
        comm,
        recipe(config),
        config.seed,
        config.zero,
        bucket_bytes=config.bucket_bytes or 1,
        algorithm=config.algorithm,
        offload=_offload(config),
        shards=config.shards or 0,
        spread=spread,
    )


def _offload(config: Config) -> Offload | None:
    if config.offload in (None, "none"):
        return None
    return Offload(OFFLOADS[1 : OFFLOADS.index(config.offload) + 1], config.offload_to)


PIPELINE = "pipeline"
"""The method that splits a model along pp. It takes a mesh, not only the ranks of dp."""

_OWN: dict[str, Make] = {
    "ddp": lambda m, comm, c, s: DataParallel(m, comm, recipe(c), c.seed, c.algorithm, c.bucket_bytes, s),
    "dp": lambda m, comm, c, s: DataParallel(m, comm, recipe(c), c.seed, c.algorithm, spread=s),
    "zero": _zero,
    "fsdp": _zero,
    "compressed": _compressed,
    "server": lambda m, comm, c, s: Centralized(m, comm, recipe(c), c.seed),
    "map-reduce": lambda m, comm, c, s: MapReduce(m, comm, recipe(c), c.seed),
}
_METHODS = Registry("method", {name: name for name in (PIPELINE, *asynchronous.ASYNCHRONOUS)}, _OWN)


def named(name: str) -> Callable[[Own], Own]:
    """Register a function that makes a method, under a name for `simdist train --method`.

        @named("majority-vote")
        def majority_vote(model, comm, config):
            return MajorityVote(model, comm, recipe(config), config.seed)

    The function takes a model that is not yet bound to memory, the ranks that share each batch, and the config of the
    run, from which `recipe` makes the update rule. Settings for other methods only, such as bucket_bytes, are refused
    with it; each rank has a whole replica of the model, and --check-every compares the replicas. A name of your own may
    be registered again.

    Raises:
        ArgumentError: there is no name, or it is one of simdist's own; or the function takes other arguments.
    """

    def known(make: Own) -> Make:
        asynchronous.OWN.pop(name, None)
        return lambda model, comm, config, spread: make(model, comm, config)

    return _METHODS.registering(name, known, "model", "comm", "config")


def named_asynchronous(name: str) -> Callable[[OwnWay], OwnWay]:
    """Register a function that trains a worker without a common step, under a name for `simdist train --method`.

        @named_asynchronous("one-peer")
        def one_peer(worker, config, asked):
            d_psgd(worker, one_peer_exponential(worker.comm.size), config.steps, asked)

    All ranks call it, each with a `simdist.asynchronous.Worker`, whose weights are the same on all at first. It makes
    the steps worker.done to config.steps - 1, each by one worker.find_gradient and one worker.descend, and averages
    worker.weights as it likes. When `asked()` is true on a rank, for a checkpoint or by a signal, all end soon, with no
    message under way. For the rest of the run it is called again, with the weights and the optimizer of each worker;
    all else that it keeps is lost. The result is the mean of all ranks' weights. Settings for other methods only, such
    as local_steps, are refused with it. A name of your own may be registered again.

    Raises:
        ArgumentError: there is no name, or it is one of simdist's own; or the function takes other arguments.
    """
    _METHODS.check(name)

    def known(way: OwnWay) -> OwnWay:
        _METHODS.pop(name, None)
        return way

    return asynchronous.OWN.registering(name, known, "worker", "config", "asked")


CUTTING = ("tp", "sp", "ep")
"""The axes of a mesh that split a model, besides pp."""

CUT_METHODS = ("ddp", "dp", "zero", "fsdp", PIPELINE)
"""The methods that also take a model split along other axes. The costs of their steps can be predicted."""

_LESS = ("zero", "fsdp", "server", "map-reduce")  # where not every rank has all weights
_STAGES = {"ddp": (0,), "zero": (1, 2), "fsdp": (3,)}


def methods() -> list[str]:
    """The names of all methods."""
    return [*_METHODS, PIPELINE, *asynchronous.asynchronous_methods()]


def whole() -> list[str]:
    """The methods in which every rank has a whole replica of its part of the model, to compare with others."""
    return [name for name in [*_METHODS, PIPELINE] if name not in _LESS]


def recipe(config: Config) -> Recipe:
    """The update rule of a config; what its optimizer does not use keeps its default."""
    given: dict[str, Any] = {
        "momentum": config.momentum,
        "weight_decay": config.weight_decay,
        "betas": None if config.beta1 is None else (config.beta1, config.beta2),
        "max_norm": config.clip_norm or None,
    }
    return Recipe(
        config.optimizer,
        precision=precision(config.precision),
        **{name: value for name, value in given.items() if value is not None},
    )


def check(config: Config) -> None:
    """Raise ArgumentError if a method's settings are incompatible."""
    method = config.method
    if method in asynchronous.asynchronous_methods():
        asynchronous.check(config)
    if method == PIPELINE:
        pipelines.check(config)
    if method in _STAGES and config.zero not in _STAGES[method]:
        own = next(name for name, stages in _STAGES.items() if config.zero in stages)
        raise ArgumentError(f"zero is {config.zero}, and method {method}; zero {config.zero} is method {own}")
    if method in ("zero", "fsdp") and config.algorithm not in ("auto", "ring"):
        raise ArgumentError(f"algorithm is {config.algorithm}, and method {method}; needs auto or ring")
    if config.zero and config.check_every:
        raise ArgumentError(
            f"check_every is {config.check_every}, and zero {config.zero}; needs whole copies, and zero 0"
        )
    if config.shards and not config.zero:
        raise ArgumentError(f"shards is {config.shards}, and zero 0; needs zero 1 to 3, with which ranks shard a model")
    if method == "compressed" and precision(config.precision).dtype.itemsize < 4:
        raise ArgumentError(
            f"precision is {config.precision}, and compress {config.compress}; needs float32 or float64"
        )
    offload = _offload(config)
    if offload:
        offload.check(config.zero)
    if config.device == "phantom":
        _check_phantom(config)
    _check_axes(config)


def _check_phantom(config: Config) -> None:
    """Raise ArgumentError if something depends on data, which phantoms lack."""
    if config.method not in CUT_METHODS:
        raise ArgumentError(f"device phantom, and method {config.method}; needs {', '.join(CUT_METHODS)}")
    for name in ("checkpoint_every", "check_every", "validation_windows", "sample_bytes"):
        if getattr(config, name):
            raise ArgumentError(f"device phantom, and {name} {getattr(config, name)}; there are no numbers for that")


def _check_axes(config: Config) -> None:
    """Raise ArgumentError if the model cannot be split along the config's axes."""
    size = shape(config)
    if size is None:
        return
    if not config.experts:
        _check_idle(config)
    if config.sequence_parallel and config.tp == 1:
        raise ArgumentError("sequence_parallel is on, and tp 1; it is for tp of 2 and more")
    if config.tp_overlap and not config.sequence_parallel:
        raise ArgumentError("tp_overlap is on, and sequence_parallel off; it is for tokens that are split over tp")
    if config.overlap_degree > 1 and config.ep == 1:
        raise ArgumentError(f"overlap_degree is {config.overlap_degree}, and ep 1; it is for ep of 2 and more")
    ways = [way for way in ("ulysses", "ring_attention") if getattr(config, way)]
    if len(ways) == 2:
        raise ArgumentError("ulysses and ring_attention are on; sp takes one of them")
    if ways and config.sp == 1:
        raise ArgumentError(f"{ways[0]} is on, and sp 1; it is for sp of 2 and more")
    sizes = {axis: getattr(config, axis) for axis in CUTTING}
    cut = " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)
    if cut and config.method not in CUT_METHODS:
        raise ArgumentError(f"{cut}, and method {config.method}; needs {', '.join(CUT_METHODS)}")
    if cut and recipe(config).whole_model:
        raise ArgumentError(f"{cut}, and optimizer {config.optimizer}, which needs the whole model on each rank")
    if config.tp > 1 and recipe(config).whole_matrices:
        raise ArgumentError(f"tp {config.tp}, and optimizer {config.optimizer}, which needs whole matrices")
    check_cut(size, sizes, sequence_parallel=config.sequence_parallel, attention=attention(config))


def _check_idle(config: Config) -> None:
    """Raise ArgumentError if settings of experts are given without experts."""
    idle = {"top_k": Shape.top_k, "capacity_factor": Shape.capacity_factor, "balance": Shape.alpha, "group": 0, "ep": 1}
    for name, default in idle.items():
        if getattr(config, name) != default:
            raise ArgumentError(f"{name} is {getattr(config, name)}, and experts 0; it is for experts of 1 and more")


def attention(config: Config) -> str:
    """The kind of attention for windows split along sp: see `MeshParts`."""
    return "ulysses" if config.ulysses else "ring"


def distribute(model: Model, comm: Communicator, config: Config, spread: Spread | None = None) -> Method:
    """A model, trained by the ranks of `comm` with the method of a config.

    Args:
        spread: how other axes split the model, if they do.

    Raises:
        ArgumentError: the method is asynchronous, which has its own loop; or its function returns something else.
    """
    if config.method not in _METHODS:
        raise ArgumentError(f"method {config.method} has no common step; see simdist.training.asynchronous")
    made = _METHODS[config.method](model, comm, config, spread)
    if not isinstance(made, Method):
        raise wrong_return(f"what makes {config.method}", made, "a Method")
    return made
