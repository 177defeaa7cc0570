"""Optimizer: a rule that updates weights by their gradient."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np

from simdist.arrays import Array, kind_of
from simdist.arrays.blocks import BLOCK_BYTES, blocks
from simdist.errors import ArrayError, require_least, require_whole, wrong_return
from simdist.optim.spans import Spans

__all__ = ["Optimizer"]


class Optimizer(ABC):
    """An update rule on one flat vector, or on a shard of one: both give the same bits.

        whole    |------------------------------------------|
        shard               a |=============| b               Rule(weights[a:b], start=a, …)

    A rule works in place, block by block, with one or two blocks of working space. One of your own has `_update`:

        class SignSGD(Optimizer):
            def _update(self, weights, gradient, rate, scale):
                for block in self._blocks:
                    g = self._read(gradient, block, scale)  # times scale, in the dtype of the weights
                    weights[block] -= rate * np.sign(g)
                charge(2 * weights.size, 2 * weights.nbytes + gradient.nbytes)  # what it costs: operations, bytes

    Args:
        like: a vector of the length and dtype of the weights to update.
        decay: where in the whole vector weight decay applies; everywhere if None.
        start: where in the whole vector `like` begins.
        weight_decay: at least 0; each rule applies it in its own way.

    Attributes:
        state: name -> flat vector of the rule's state. Each may be replaced by another array of its
            shape and dtype, such as one on disk.
        num_steps: the number of steps so far; a part of the state.
        alignment: a shard that begins and ends at multiples of this gives the same bits as the whole.

    Raises:
        ArrayError: like is not a flat vector of floats.
        ArgumentError: start or weight_decay is negative.
    """

    alignment = 1

    def __init__(
        self, like: Array, decay: Iterable[slice] | None = None, start: int = 0, weight_decay: float = 0.0
    ) -> None:
        if getattr(like, "ndim", None) != 1 or like.dtype.kind != "f":
            what = f"of shape {like.shape} and dtype {like.dtype}" if hasattr(like, "dtype") else f"{like!r:.60}"
            raise ArrayError(f"weights {what}; needs one flat vector of floats")
        require_whole("start", start, 0)
        require_least("weight_decay", weight_decay, 0)
        self.state: dict[str, Array] = {}
        self.num_steps = 0
        self._watched = False
        self.start = start
        self.weight_decay = weight_decay
        self._shape: tuple[int, ...] = like.shape
        self._decay = None if decay is None else Spans(decay).cut(start, start + len(like))
        self._blocks = blocks(len(like), like.itemsize, like=like)
        self._empty = np.empty_like(like, shape=(0,))  # to make others like the weights, without keeping them

    def step(self, weights: Array, gradient: Array, learning_rate: float, gradient_scale: float = 1.0) -> None:
        """Change the weights, in place, by one step; the gradient stays as it is.

        Args:
            weights: shape and dtype of `like`.
            gradient: the same shape; of another dtype it is converted block by block.
            gradient_scale: a factor of the gradient, applied as it is read: to clip it or to undo a loss
                scale without an extra pass over memory.

        Raises:
            ArrayError: a vector's shape, or the weights' dtype, is not that of `like`.
            ArgumentError: `_update` returns something, instead of changing the weights.

        Warns:
            RuntimeWarning: the first step in which SGD would have changed weights has left them as they were.
        """
        dtype = self._empty.dtype
        if weights.shape != self._shape or gradient.shape != self._shape or weights.dtype != dtype:
            raise ArrayError(
                f"weights of shape {weights.shape} and dtype {weights.dtype} and a gradient of {gradient.shape}; "
                f"this {type(self).__name__} needs {self._shape} and {dtype}"
            )
        self.num_steps += 1
        before = None if self._watched else self._to_watch(weights, gradient, learning_rate * gradient_scale)
        update: Callable[[Array, Array, float, float], object] = self._update
        returned = update(weights, gradient, learning_rate, gradient_scale)
        if returned is not None:
            needs = "None, and the new weights in their place"
            raise wrong_return(f"_update of {type(self).__name__}", returned, needs)
        if before:
            self._warn_if_unchanged(weights, *before, learning_rate)

    def _to_watch(self, weights: Array, gradient: Array, rate: float) -> tuple[slice, Array] | None:
        """A place where SGD would change weights, and a copy of these; None if there is none, or not on the host."""
        if kind_of(gradient) != "numpy":
            return None
        step = BLOCK_BYTES // self._empty.itemsize
        for start in range(0, len(gradient), step):
            place = slice(start, start + step)
            if (weights[place] - gradient[place] * rate != weights[place]).any():
                return place, weights[place].copy()
        return None

    def _warn_if_unchanged(self, weights: Array, place: slice, before: Array, rate: float) -> None:
        """Warn if the weights of a place are as they were before a step; once, since later steps are no different.

        It is not an error: there may be rules that only collect gradients in the first step.
        """
        self._watched = True
        if (weights[place] == before).all():
            words = (
                f"{type(self).__name__} has left weights as they were, which SGD would have changed at this rate, "
                f"{rate:g}; `weights = …` in its _update makes another array: needs `weights[...] = …`"
            )
            warnings.warn(words, RuntimeWarning, stacklevel=3)

    @abstractmethod
    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        """Make step number num_steps, in place, and charge the meter for it; returns nothing."""

    # -- checkpoints ----------------------------------------------------------------------------------

    def vectors(self) -> dict[str, Array]:
        """The state as vectors with one item per weight, which can be joined and split into other shards."""
        return self.state

    def restore(self, vectors: Mapping[str, Array], num_steps: int) -> None:
        """Restore the state from `vectors` of this rule, or of one for another shard, after this many steps.

        Raises:
            ArrayError: a vector is missing, unknown or of another length; then nothing is changed.
        """
        self._check_vectors(vectors, self.state)
        for name, vector in vectors.items():
            self.state[name][...] = vector
        self.num_steps = num_steps

    def _check_vectors(self, vectors: Mapping[str, Array], names: Iterable[str]) -> None:
        if set(vectors) != set(names):
            raise ArrayError(f"{type(self).__name__} keeps {sorted(names)}; was given {sorted(vectors)}")
        for name, vector in vectors.items():
            if vector.shape != self._shape:
                raise ArrayError(f"{name} has shape {vector.shape}; this {type(self).__name__} needs {self._shape}")

    # -- for the rules --------------------------------------------------------------------------------

    @cached_property
    def _spare(self) -> list[Array]:
        """Two blocks of working space. On a device a block is the whole vector, and a rule with a kernel makes none."""
        return [np.empty_like(self._empty, shape=(self._blocks[0].stop if self._blocks else 0,)) for _ in range(2)]

    def _decayed(self, block: slice) -> list[slice]:
        """The slices of `block` where weight decay applies, counted from its start."""
        return [slice(0, block.stop - block.start)] if self._decay is None else self._decay.within(block)

    def _penalize(self, x: Array, w: Array, block: slice, spare: Array) -> None:
        """Add weight_decay · w to x, in place, where weights decay; `spare` is working space of a block."""
        if self.weight_decay:
            for part in self._decayed(block):
                np.multiply(w[part], self.weight_decay, out=spare[part])
                np.add(x[part], spare[part], out=x[part])

    def _read(self, gradient: Array, block: slice, scale: float, copy: bool = False) -> Array:
        """A block of the gradient, scaled, in the dtype of the weights; a view if nothing changes and not `copy`."""
        g, spare = gradient[block], self._spare[1][: block.stop - block.start]
        if g.dtype != spare.dtype or (copy and scale == 1):
            np.copyto(spare, g)
            g = spare
        if scale != 1:
            g = np.multiply(g, scale, out=spare)
        return g
