"""Text as bytes, and batches of it that every rank works out for itself."""

from simdist.data.batches import Batches
from simdist.data.corpus import PYTHON, Corpus, Split, load

__all__ = ["PYTHON", "Batches", "Corpus", "Split", "load"]
