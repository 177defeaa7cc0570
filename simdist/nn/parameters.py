"""Parameters: every weight of a model as a view into one flat vector, and every gradient into another."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from simdist.arrays import Array, kind_of, moved
from simdist.errors import ArgumentError, ArrayError, require_whole

__all__ = ["Parameter", "Parameters", "Place"]


@dataclass(frozen=True)
class Place:
    """The place of a parameter in the whole model's parameter that it is a part of.

    Attributes:
        shape: of the parameter of the whole model.
        index: whole[index] is this part; () if it is the whole.
    """

    shape: tuple[int, ...]
    index: tuple[slice, ...] = ()


class Parameter:
    """A named trainable tensor. It owns no memory: `Parameters.bind` gives it two views.

    Args:
        name: unique in its model.
        shape: weights are (in_features, out_features).
        mean, std: of the normal distribution that its first values are drawn from.
        place: its place in the whole model's parameter, if this rank has only a part of it.

    Attributes:
        data, gradient: the views, each of the parameter's shape.
        bound: both, as they were given last; () before.
    """

    __slots__ = ("bound", "data", "gradient", "mean", "name", "place", "shape", "size", "std")

    data: Array
    gradient: Array

    def __init__(
        self, name: str, shape: tuple[int, ...], mean: float = 0.0, std: float = 0.0, place: Place | None = None
    ) -> None:
        for size in shape:
            require_whole(f"a size of {name}", size, 0)
        self.name = name
        self.shape = shape
        self.size = math.prod(shape)
        self.mean = mean
        self.std = std
        self.place = place or Place(shape)
        self.bound: tuple[Array, Array] | tuple[()] = ()

    def __repr__(self) -> str:
        return f"<parameter {self.name} of shape {self.shape}>"

    def draw(self, seed: int) -> Array:
        """Its initial values, float64. They depend only on the seed and the name.

        So they are the same on any number of ranks, however the model is split. If the parameter itself is split, a
        rank draws the whole and returns its part.

        Args:
            seed: from 0 to 2**64 - 1; each gives other values.

        Raises:
            ArgumentError: the seed is outside these limits.
        """
        if not isinstance(seed, Integral) or not 0 <= seed < 1 << 64:
            raise ArgumentError(f"seed is {seed!r:.60}; needs a whole number of at least 0 and less than 2**64")
        word = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "little")
        if word >= 1 << 63:  # NumPy's key was once a list, which rounded it: seeds keep the values that they gave then
            word = int(float(word))
        noise = np.random.Generator(np.random.Philox(key=np.array([seed, word], np.uint64)))  # a list would round seeds
        return (self.mean + self.std * noise.standard_normal(self.place.shape))[self.place.index]


class Parameters:
    """Lays out parameters one after the other in a flat vector, in the order in which forward uses them.

        flat     |--- embedding.table ---|---- hidden0.w ----|- hidden0.b -|---- …
        spans    0                       8192                …

    So a bucket of gradients, a shard or the whole model is one slice, and can be sent as one message.

    Attributes:
        spans: name -> the parameter's slice of the flat vector.
        size: the length of the flat vector.
        data, gradient: the flat vectors last bound.

    Raises:
        ArgumentError: two parameters have the same name.
    """

    data: Array
    gradient: Array

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        self._parameters = list(parameters)
        self.spans: dict[str, slice] = {}
        self.size = 0
        for parameter in self._parameters:
            if parameter.name in self.spans:
                raise ArgumentError(f"two parameters are named {parameter.name!r}; names must be unique in a model")
            self.spans[parameter.name] = slice(self.size, self.size + parameter.size)
            self.size += parameter.size

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    @property
    def kind(self) -> str:
        """The kind of the bound arrays; NumPy's if none are bound."""
        holder = self._parameters[0] if self._parameters else self  # a stage of a pipeline may have none
        return kind_of(getattr(holder, "data", None))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the bound memory, whether that is one vector or not."""
        dtype: np.dtype = self._parameters[0].data.dtype
        return dtype

    def bind(self, data: Array, gradient: Array) -> None:
        """Make every parameter a view of these two flat vectors.

        Args:
            data, gradient: shape (size,), one dtype, contiguous; owned by the caller, which may bind others later.

        Raises:
            ArrayError: a vector has another shape, dtype or layout.
        """
        for name, flat in (("data", data), ("gradient", gradient)):
            if flat.shape != (self.size,) or flat.dtype != data.dtype:
                raise ArrayError(
                    f"{name} has shape {flat.shape} and dtype {flat.dtype}; "
                    f"these parameters need shape ({self.size},) and dtype {data.dtype}"
                )
            if not flat.flags.c_contiguous:  # parts of it would be copies
                raise ArrayError(f"{name} is not contiguous; parameters need a vector of which they can be views")
        self.data, self.gradient = data, gradient
        for parameter in self._parameters:
            span = self.spans[parameter.name]
            parameter.data = data[span].reshape(parameter.shape)
            parameter.gradient = gradient[span].reshape(parameter.shape)
            parameter.bound = parameter.data, parameter.gradient

    def check_views(self) -> None:
        """Make sure that the parameters still have the views that a `bind` gave them, if one did.

        Raises:
            ArrayError: one has another array, whose values would not be reduced, updated or saved.
        """
        for parameter in self._parameters:
            views = parameter.bound
            if views and (parameter.data is not views[0] or parameter.gradient is not views[1]):
                name = "gradient" if parameter.data is views[0] else "data"
                raise ArrayError(
                    f"{name} of {parameter.name} is another array than before; needs the same with new values, "
                    f"as by {name}[...] = …"
                )

    def initialize(self, seed: int) -> None:
        """Fill the bound data with the initial values, rounded to its dtype; a phantom stays empty."""
        if kind_of(self.data) == "phantom":
            return
        for parameter in self._parameters:
            parameter.data[...] = moved(parameter.draw(seed), parameter.data)
