"""Text: the training and validation text of a run."""

from dataclasses import replace
from hashlib import sha256

from simdist.comm import Communicator
from simdist.data import Split, load
from simdist.training.checkpoint.together import together
from simdist.training.config import Config

__all__ = ["Text", "split"]


def split(config: Config) -> tuple[str, Split, Split]:
    """The SHA-256 of the text that a config names, and its training and validation parts.

    Raises:
        DataError: it cannot be read or is too short.
    """
    corpus = load(config.data)
    return corpus.digest, *corpus.split(config.context_bytes + 1, config.validation_share, config.seed)


class Text:
    """The text that a config names, read and split. It never changes, so virtual ranks may share one.

    Attributes:
        digest: its SHA-256, by which ranks check that they read the same.
        train, validation: its two parts.
        unigram_entropy, bigram_entropy: of the validation text, in nats a byte: baselines for the loss.

    Raises:
        DataError: it cannot be read or is too short.
    """

    def __init__(self, config: Config) -> None:
        self.digest, self.train, self.validation = split(config)
        self.unigram_entropy = self.validation.unigram_entropy()
        self.bigram_entropy = self.validation.bigram_entropy()

    @classmethod
    def of_all(cls, comm: Communicator, config: Config, known: "Text | None" = None) -> "Text":
        """The text on every rank; all must call.

        Args:
            known: the text, if this rank has read it already.

        Raises:
            DataError: on all ranks, if any of them cannot read it.
            CollectiveMismatch: on all ranks, if they have different texts or configs.
        """
        found = [known] if known else []

        def read() -> None:
            if not found:
                found.append(cls(config))

        together(comm, read)
        # The file's name may differ between nodes, its contents must not.
        settings = sha256(replace(config, data="").toml().encode()).hexdigest()
        comm.agree(f"train on text {found[0].digest[:12]} by config {settings[:12]}")
        return found[0]
