"""Sampling: text that a model writes."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from simdist.arrays import Array, on_host
from simdist.collectives import broadcast
from simdist.comm import Communicator

__all__ = ["Writer", "sample"]

_BYTES = 256


class Writer(Protocol):
    """What can continue a text: a `Method`, for example."""

    @property
    def comm(self) -> Communicator:
        """The ranks that it is on."""

    def logits(self, tokens: Array) -> Array:
        """What may come next after each row of tokens: see `Model.logits`."""


def sample(writer: Writer, prompts: Array, num_bytes: int, temperature: float, seed: int) -> Array:
    """What the model writes after each prompt, one byte at a time, each predicted from those before it.

    Rank 0 draws, so that all ranks continue alike; but all must call, as each may have a part of the model.

    Args:
        prompts: shape (n, length), uint8; the model's context is `length`.
        num_bytes: how many to write.
        temperature: logits are divided by it, so a lower one is less random; 0 takes the likeliest byte.
        seed: of the draws.

    Returns:
        shape (n, num_bytes), uint8, on every rank.

    Cost: a forward pass of all prompts and a broadcast of n bytes, for each byte.
    """
    n, length = prompts.shape
    text = np.concatenate([prompts, np.zeros((n, num_bytes), np.uint8)], axis=1)
    noise = np.random.Generator(np.random.Philox(key=[seed, 2]))
    for end in range(length, length + num_bytes):
        logits = on_host(writer.logits(text[:, end - length : end]))[:, :_BYTES]  # tokens beyond the bytes are no text
        drawn = _draw(logits.astype(np.float64), temperature, noise)
        broadcast(drawn, writer.comm)
        text[:, end] = drawn
    return text[:, length:]


def _draw(logits: npt.NDArray[np.float64], temperature: float, noise: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One of the classes for each row of logits."""
    if temperature == 0:
        return np.asarray(logits.argmax(axis=1), np.uint8)
    with np.errstate(over="ignore"):  # far below the largest logit the probability is 0
        p = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
    reached = np.cumsum(p, axis=1) / p.sum(axis=1, keepdims=True)
    found = (reached < noise.random((len(p), 1))).sum(axis=1)
    return np.asarray(np.minimum(found, p.shape[1] - 1), np.uint8)
