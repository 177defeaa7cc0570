"""Progress: what a run prints while it runs."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from tqdm import tqdm

from simdist.training.trainer import Line

__all__ = ["Progress", "table"]

_LOSSES = ("train", "valid.")


class Progress:
    """The log's lines on standard output, and beneath them a bar where standard error is a terminal.

    Args:
        log: called with what is shown.
        num_losses: how many it shows: of training, and of validation.
    """

    def __init__(
        self, steps: int, done: int = 0, log: Callable[[str], None] = lambda text: None, *, num_losses: int = 2
    ) -> None:
        self._log = log
        self._num_losses = num_losses
        # A bar in a file, or in what mpirun passes on, would be one long line.
        self._bar: Any = tqdm(total=steps, initial=done, unit="step", leave=False) if sys.stderr.isatty() else None
        self._headed = False

    def step(self, line: Line | None) -> None:
        """A step is done; where it ended an interval, its line."""
        if line is not None:
            if not self._headed:
                self.say(_head(self._num_losses))
                self._headed = True
            self.say(_text(line, self._num_losses))
        if self._bar is not None:
            self._bar.update()

    def say(self, text: str) -> None:
        """Show a text, above the bar if there is one."""
        self._log(text)
        if self._bar is not None:
            self._bar.write(text)
        else:
            print(text, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def table(lines: Iterable[Line], head: bool = True, num_losses: int = 2) -> str:
    """Several lines as `Progress` shows them, below the header if `head`."""
    return "\n".join([*([_head(num_losses)] if head else []), *(_text(line, num_losses) for line in lines)])


def _head(num_losses: int) -> str:
    losses = "".join(f"  {name:>7}" for name in _LOSSES[:num_losses])
    return f"{'step':>7}{losses}  {'tokens/s':>11}  {'in comm.':>8}  {'sent a step':>13}"


def _text(line: Line, num_losses: int) -> str:
    losses = "".join(f"  {_loss(loss)}" for loss in (line.train_loss, line.validation_loss)[:num_losses])
    return (
        f"{line.step:>7}{losses}  {line.tokens_per_s:>11,.0f}  "
        f"{line.communication_share:>8.0%}  {line.sent_bytes:>11,} B"
    )


def _loss(loss: float) -> str:
    """In seven characters, even if it has diverged."""
    return f"{loss:7.4f}" if loss < 100 else f"{loss:7.1e}"
