"""Update rules on flat vectors, and learning rates over time."""

from simdist.optim.schedule import warmup_cosine
from simdist.optim.sgd import SGD

__all__ = ["SGD", "warmup_cosine"]
