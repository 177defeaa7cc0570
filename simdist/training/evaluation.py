"""Evaluation of a model, on text that it was not trained on."""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

from simdist.arrays import Array, partition
from simdist.comm import Communicator
from simdist.data import Split
from simdist.parallel.total import total
from simdist.training.config import Config
from simdist.training.sampling import Writer, sample

__all__ = ["Evaluator"]

_LEAST_BYTES = 512  # predicted at a time, so that each NumPy call has enough work
_PROMPTS = 3


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model on the validation text, or lets it continue that text; the ranks share the work.

    Args:
        validation: the text.
        comm: all its ranks must call.
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
