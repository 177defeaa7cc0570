"""Evaluation of a model: its loss on text that it was not trained on, and how it continues that."""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Protocol

import numpy as np
import numpy.typing as npt

from simdist.arrays import Array, on_host, partition
from simdist.collectives import broadcast
from simdist.comm import Communicator
from simdist.data import Split
from simdist.parallel.total import total
from simdist.training.config import Config

__all__ = ["Evaluator", "Writer", "sample"]

_LEAST_BYTES = 512  # predicted at a time, so that each NumPy call has enough work
_PROMPTS = 3
_BYTES = 256


class Writer(Protocol):
    """What can continue a text: a `Method`, for example."""

    @property
    def comm(self) -> Communicator:
        """The ranks that it is on."""

    def logits(self, tokens: Array) -> Array:
        """What may come next after each row of tokens: see `Model.logits`."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model on the validation text, or lets it continue that text; the ranks share the work.

    Args:
        validation: the text.
        comm: the ranks that share the work; all of them must call.
        config: determines how much of the text to use, and how much at a time.
        targets_per_window: of the model.
    """

    validation: Split
    comm: Communicator
    config: Config
    targets_per_window: int

    def loss(self, of: Callable[[Array], float]) -> float:
        """The mean loss over the validation windows, in nats a byte; nan if there are none.

        Args:
            of: the loss summed over some windows, perhaps none; called equally often on every rank.
        """
        if not self.config.validation_windows:
            return nan
        numbers = self.validation.evenly(self.config.validation_windows)
        with self.comm.span("validation"):
            own = sum(of(self.validation.windows(portion)) for portion in self._portions(numbers))
            return total(own, self.comm) / (len(numbers) * self.targets_per_window)

    def samples(self, writer: Writer) -> list[tuple[bytes, bytes]]:
        """A few windows of the validation text, and what the model writes after each."""
        config = self.config
        prompts = self.validation.windows(self.validation.evenly(_PROMPTS))[:, 1:]
        with self.comm.span("samples"):
            written = sample(writer, prompts, config.sample_bytes, config.temperature, config.seed)
        return [(prompt.tobytes(), text.tobytes()) for prompt, text in zip(prompts, written, strict=True)]

    def _portions(self, numbers: Array) -> list[Array]:
        """This rank's part of these windows, in portions: equally many on every rank, some perhaps empty.

        As many windows at a time as in a step, so that their activations take no more memory than a step's; where
        steps are very small, more.
        """
        config, p = self.config, self.comm.size
        least = _LEAST_BYTES // self.targets_per_window
        at_once = max(config.global_batch_size // p // config.micro_batches, least, 1)
        own = numbers[partition(len(numbers), p)[self.comm.rank]]
        return [own[run] for run in partition(len(own), -(-len(numbers) // (p * at_once)))]


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
