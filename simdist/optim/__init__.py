"""Update rules on flat vectors, and learning rates over time."""

from simdist.optim.adam import Adam
from simdist.optim.adamw import AdamW
from simdist.optim.adamw8bit import AdamW8bit
from simdist.optim.batch_size import (
    BatchTrade,
    batch_trade,
    critical_tokens,
    noise_scale,
    scaled_learning_rate,
    sgd_noise,
)
from simdist.optim.lamb import LAMB
from simdist.optim.lars import LARS
from simdist.optim.matrices import Matrices, Matrix
from simdist.optim.muon import Muon, muon_overhead
from simdist.optim.norm import Combine, largest, norms
from simdist.optim.optimizer import Optimizer
from simdist.optim.schedule import Schedule
from simdist.optim.sgd import SGD
from simdist.optim.spans import Spans

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Adam",
    "AdamW",
    "AdamW8bit",
    "BatchTrade",
    "Combine",
    "Matrices",
    "Matrix",
    "Muon",
    "Optimizer",
    "Schedule",
    "Spans",
    "batch_trade",
    "critical_tokens",
    "largest",
    "muon_overhead",
    "noise_scale",
    "norms",
    "scaled_learning_rate",
    "sgd_noise",
]
