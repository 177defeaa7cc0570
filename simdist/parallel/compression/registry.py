"""Registry: every compression by name."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simdist.arrays import Array
from simdist.errors import require_known, wrong_return
from simdist.nn import Parameters
from simdist.parallel.compression.compressor import Compressor, Uncompressed
from simdist.parallel.compression.power_sgd import PowerSGD
from simdist.parallel.compression.quantized import Quantized
from simdist.parallel.compression.top_k import TopK
from simdist.registry import Registry

__all__ = ["Make", "compression_defaults", "compressions", "compressor", "named"]

Make = Callable[..., Compressor]

_SETTINGS = ("share", "block", "rank")


class _Known(NamedTuple):
    """A compression with a name."""

    make: Make
    defaults: Mapping[str, float]


_COMPRESSIONS = Registry[_Known]("compression")


def named(name: str, **defaults: float) -> Callable[[Make], Make]:
    """Register the function below, which makes a compressor, for `Compressed(…, name)` and `simdist train --compress`.

        @named("random-k", share=0.1)
        def random_k(like, parameters, share):
            return RandomK(like, share)

    The function takes a vector like the whole gradient, shape (n,), float32 or float64; the model's parameters, whose
    spans are the places of the matrices in it; and its settings. A name of your own may be registered again.

    Args:
        defaults: its settings: share, of the items to send; block, the items that are coded together; rank, of
            matrices. A training run that gives another one (--compress-share, …) is refused.

    Raises:
        UnknownNameError: a setting has another name.
        ArgumentError: there is no name, or it is one of simdist's own; or the function takes other arguments.
    """
    register = _COMPRESSIONS.registering(name, lambda make: _Known(make, defaults), "like", "parameters", **defaults)
    for setting in defaults:
        require_known(f"setting of compression {name}", setting, _SETTINGS)
    return register


def compressions() -> list[str]:
    """The names of all compressions; "none" is the all-reduce, with the same counts."""
    return list(_COMPRESSIONS)


def compression_defaults(setting: str) -> dict[str, float]:
    """The default of "share", "block" or "rank", by the name of each compression that has it."""
    return {name: known.defaults[setting] for name, known in _COMPRESSIONS.items() if setting in known.defaults}


def compressor(name: str, like: Array, parameters: Parameters, **settings: Any) -> Compressor:
    """The compressor of this name, for a gradient like this one.

    Raises:
        UnknownNameError: there is no such compression, or it has no such setting; the message lists the known ones.
        ArgumentError: the registered function returns something else.
    """
    known = _COMPRESSIONS.find(name)
    for setting in settings:
        require_known(f"setting of compression {name}", setting, known.defaults)
    made = known.make(like, parameters, **{**known.defaults, **settings})
    if not isinstance(made, Compressor):
        raise wrong_return(f"what makes {name}", made, "a Compressor")
    return made


# -- the compressions ---------------------------------------------------------------------------------

named("none")(lambda like, parameters: Uncompressed(like))
named("top-k", share=0.01)(lambda like, parameters, share: TopK(like, share))
named("8-bit", block=1024)(lambda like, parameters, block: Quantized(like, block))


@named("power-sgd", rank=2)
def _power_sgd(like: Array, parameters: Parameters, rank: int) -> Compressor:
    matrices = [(parameters.spans[p.name], p.shape) for p in parameters if len(p.shape) > 1]
    return PowerSGD(like, matrices, rank)


_COMPRESSIONS.close()
