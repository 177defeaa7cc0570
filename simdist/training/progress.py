"""Progress: what a run prints while it runs."""

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tqdm import tqdm

from simdist.training.trainer import Line

__all__ = ["Progress"]


@dataclass(eq=False, repr=False)
class Progress:
    """The log's lines on standard output, and beneath them a bar where standard error is a terminal.

    Args:
        steps, done: of the whole run, and how many of them are over.
        log: called with what is shown.
        num_losses: how many it shows: of training, and of validation.
        bar: whether a terminal gets a bar.
    """

    steps: int
    done: int = 0
    log: Callable[[str], None] = lambda text: None
    _: KW_ONLY
    num_losses: int = 2
    bar: bool = True

    def __post_init__(self) -> None:
        # A bar in a file, or in what mpirun passes on, would be one long line.
        shown = self.bar and sys.stderr.isatty()
        self._bar: Any = tqdm(total=self.steps, initial=self.done, unit="step", leave=False) if shown else None
        self._headed = False

    def step(self, line: Line | None) -> None:
        """A step is done; where it ended an interval, its line."""
        if line is not None:
            if not self._headed:
                losses = "".join(f"  {name:>7}" for name in ("train", "valid.")[: self.num_losses])
                self.say(f"{'step':>7}{losses}  {'tokens/s':>11}  {'in comm.':>8}  {'sent a step':>13}")
                self._headed = True
            found = (line.train_loss, line.validation_loss)[: self.num_losses]  # which may have diverged
            losses = "".join(f"  {loss:7.4f}" if loss < 100 else f"  {loss:7.1e}" for loss in found)
            rate, share, sent = line.tokens_per_s, line.communication_share, line.sent_bytes
            self.say(f"{line.step:>7}{losses}  {rate:>11,.0f}  {share:>8.0%}  {sent:>11,} B")
        if self._bar is not None:
            self._bar.update()

    def say(self, text: str) -> None:
        """Show a text, above the bar if there is one."""
        self.log(text)
        if self._bar is not None:
            self._bar.write(text)
        else:
            print(text, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
