"""Corpus: a text as bytes, split into a training and a validation part."""

import math
import sysconfig
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simdist.errors import ArgumentError, DataError, require_least, require_whole
from simdist.file import read_file
from simdist.words import counted

__all__ = ["PYTHON", "Corpus", "Split", "load"]

PYTHON = "python"
"""The name of a text that every machine has: Python's own documentation and library sources."""

Bytes = npt.NDArray[np.uint8]

_SOURCE_BYTES = 4 << 20  # of the library's sources; more would only take longer to read
_BLOCK_BYTES = 4096
_FEWEST_BLOCKS = 20


@dataclass(frozen=True)
class Split:
    """Some blocks of a text, and every window of `length` bytes inside one of them.

    Args:
        text: shape (n,), uint8.
        block_bytes: the text is cut into blocks of this many bytes.
        blocks: the indices of this split's blocks, shape (num_blocks,).
        length: of a window. No window crosses into the next block, which may belong to the other split.
    """

    text: Bytes
    block_bytes: int
    blocks: npt.NDArray[np.int64]
    length: int

    def __repr__(self) -> str:
        return f"<split of {counted(self.num_windows, 'window')} of {counted(self.length, 'byte')}>"

    @property
    def num_windows(self) -> int:
        """The number of windows."""
        return self.num_every(1)

    def windows(self, which: npt.NDArray[np.int64]) -> Bytes:
        """The windows of these numbers, 0 <= number < num_windows, as rows: shape (len(which), length)."""
        block, offset = np.divmod(which, self._in_block())
        starts = self.blocks[block] * self.block_bytes + offset
        rows: Bytes = self.text[starts[:, None] + np.arange(self.length)]
        return rows

    def evenly(self, most: int) -> npt.NDArray[np.int64]:
        """The numbers of at most `most` windows, spread evenly over the split: the same at every call."""
        count = min(most, self.num_windows)
        return np.arange(count, dtype=np.int64) * self.num_windows // count

    def num_every(self, stride: int) -> int:
        """The number of windows that begin `stride` bytes apart in each block."""
        return len(self.blocks) * self._in_block(stride)

    def every(self, stride: int, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers of some of these windows, given by their indices from 0 to num_every - 1."""
        block, i = np.divmod(which, self._in_block(stride))
        numbers: npt.NDArray[np.int64] = block * self._in_block() + i * stride
        return numbers

    def _in_block(self, stride: int = 1) -> int:
        """The number of windows that begin `stride` bytes apart in a block."""
        return (self.block_bytes - self.length) // stride + 1

    def unigram_entropy(self) -> float:
        """The unigram entropy, the loss of predicting from the bytes' frequencies alone: Σ f ln 1/f nats per byte.

        A model that has learned anything about the order of bytes must have a lower loss.
        """
        return _entropy(np.bincount(self._rows().ravel(), minlength=256))

    def bigram_entropy(self) -> float:
        """The bigram entropy, the loss of predicting from the previous byte alone, in nats per byte.

        With f(a, b) the frequency of b after a: -Σ f(a, b) ln (f(a, b) / Σ f(a, ·)). A model that has learned
        anything from bytes further back must have a lower loss.
        """
        rows = self._rows()
        pairs = rows[:, :-1].astype(np.int64) * 256 + rows[:, 1:]
        return _entropy(np.bincount(pairs.ravel(), minlength=1 << 16)) - _entropy(np.bincount(rows[:, :-1].ravel()))

    def _rows(self) -> Bytes:
        """The blocks, one per row."""
        whole = self.text[: len(self.text) // self.block_bytes * self.block_bytes]
        rows: Bytes = whole.reshape(-1, self.block_bytes)[self.blocks]
        return rows


def _entropy(counts: npt.NDArray[np.int64]) -> float:
    """The entropy of these counts, in nats."""
    frequencies = counts[counts > 0] / max(1, counts.sum())
    return math.fsum(frequencies * np.log(1 / frequencies))


@dataclass(frozen=True)
class Corpus:
    """A text, shape (n,), uint8, and its name, for reports and errors."""

    text: Bytes
    name: str

    def __repr__(self) -> str:
        return f"<text {self.name!r} of {counted(len(self.text), 'byte')}>"

    @property
    def digest(self) -> str:
        """The text's SHA-256, by which ranks check that they read the same text."""
        return sha256(self.text.data).hexdigest()

    def split(self, length: int, validation_share: float, seed: int) -> tuple[Split, Split]:
        """Training and validation blocks, drawn at random, for windows of `length` bytes.

        Raises:
            DataError: the text is too short for twenty blocks of at least one window each.
            ArgumentError: length is below 1, seed below 0, or the share below 0 or above 1.
        """
        require_whole("length", length, 1)
        require_least("validation_share", validation_share, 0)
        if validation_share > 1:
            raise ArgumentError(f"validation_share is {validation_share}; needs at most 1")
        require_whole("seed", seed, 0)
        least = _FEWEST_BLOCKS * length
        if len(self.text) < least:
            raise DataError(f"{self.name} has {len(self.text)} bytes; windows of {length} bytes need at least {least}")
        num_blocks = max(_FEWEST_BLOCKS, len(self.text) // max(_BLOCK_BYTES, length))
        order = np.random.default_rng(seed).permutation(num_blocks)
        num_held = min(num_blocks - 1, max(1, round(num_blocks * validation_share)))
        block_bytes = len(self.text) // num_blocks
        held, rest = np.sort(order[:num_held]), np.sort(order[num_held:])
        return Split(self.text, block_bytes, rest, length), Split(self.text, block_bytes, held, length)


def load(source: str | Path) -> Corpus:
    """The text of a file or, for "python", Python's own documentation and library sources.

    Raises:
        DataError: it cannot be read, or is not a regular file.
    """
    if str(source) == PYTHON:
        return Corpus(np.frombuffer(_documentation() + _sources(), np.uint8), "Python's documentation and sources")
    return Corpus(np.frombuffer(read_file(source, "the data file"), np.uint8), str(Path(source)))


def _documentation() -> bytes:
    """Every text of `help()`, by topic; empty if the Python distribution lacks the module."""
    try:
        topics: dict[str, Any] = import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError):
        return b""
    return "".join(str(topics[name]) for name in sorted(topics)).encode()


def _sources() -> bytes:
    """The standard library's top-level modules in the order of their names, up to a limit."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if len(text) >= _SOURCE_BYTES:
            break
        try:
            text += path.read_bytes()
        except OSError:
            continue  # the other files are enough
    return bytes(text[:_SOURCE_BYTES])
