"""Text as bytes, and batches of it that every rank computes independently."""

from simdist.data.batches import ORDERS, Batches, Part
from simdist.data.corpus import PYTHON, Corpus, Split, load
from simdist.data.prefetch import Prefetcher

__all__ = ["ORDERS", "PYTHON", "Batches", "Corpus", "Part", "Prefetcher", "Split", "load"]
