"""Methods that train one model on many ranks."""

from simdist.parallel.centralized import Centralized, MapReduce
from simdist.parallel.compressed import Compressed
from simdist.parallel.compression import compressions
from simdist.parallel.data_parallel import DataParallel
from simdist.parallel.drift import check_replicas
from simdist.parallel.method import Learner, Method
from simdist.parallel.precision import Precision
from simdist.parallel.recipe import Recipe, optimizer, optimizers
from simdist.parallel.zero import FSDP, Offload, ZeRO

__all__ = [
    "FSDP",
    "Centralized",
    "Compressed",
    "DataParallel",
    "Learner",
    "MapReduce",
    "Method",
    "Offload",
    "Precision",
    "Recipe",
    "ZeRO",
    "check_replicas",
    "compressions",
    "optimizer",
    "optimizers",
]
