"""Text: what a run trains on, and what it is judged by."""

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from simdist.comm import Communicator
from simdist.data import load

if TYPE_CHECKING:
    from simdist.training.config import Config

__all__ = ["Text"]


class Text:
    """The text that a config names, read and divided. It only reads, so virtual ranks may share one.

    Attributes:
        digest: its SHA-256, by which ranks can tell that they read the same.
        train, validation: its two parts.
        unigram_entropy, bigram_entropy: of the validation text, in nats a byte: what the loss must get below.

    Raises:
        DataError: it cannot be read or is too short.
    """

    def __init__(self, config: "Config") -> None:
        corpus = load(config.data)
        self.digest = corpus.digest
        self.train, self.validation = corpus.split(config.context_bytes + 1, config.validation_share, config.seed)
        self.unigram_entropy = self.validation.unigram_entropy()
        self.bigram_entropy = self.validation.bigram_entropy()

    def agree(self, comm: Communicator, config: "Config") -> None:
        """Raise CollectiveMismatch on all ranks, if they have different texts or configs."""
        # The file may have another name on another node; what is in it must be the same.
        settings = sha256(replace(config, data="").toml().encode()).hexdigest()
        comm.agree(f"train on text {self.digest[:12]} by config {settings[:12]}")
