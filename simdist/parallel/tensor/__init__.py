"""Tensor parallelism: layers whose weights are split over ranks."""

from simdist.parallel.tensor.embedding import VocabularyParallelEmbedding, VocabularyParallelTiedLinear
from simdist.parallel.tensor.experts import ColumnParallelExperts, RowParallelExperts
from simdist.parallel.tensor.formulas import cube_elements, grid_elements, mlp_elements, product_lower_bound
from simdist.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear
from simdist.parallel.tensor.loss import VocabularyParallelCrossEntropy
from simdist.parallel.tensor.overlapped import OVERLAPPED, Overlapped
from simdist.parallel.tensor.region import Entrance, Region, Replicated, Sharded

__all__ = [
    "OVERLAPPED",
    "ColumnParallelExperts",
    "ColumnParallelLinear",
    "Entrance",
    "Overlapped",
    "Region",
    "Replicated",
    "RowParallelExperts",
    "RowParallelLinear",
    "Sharded",
    "VocabularyParallelCrossEntropy",
    "VocabularyParallelEmbedding",
    "VocabularyParallelTiedLinear",
    "cube_elements",
    "grid_elements",
    "mlp_elements",
    "product_lower_bound",
]
