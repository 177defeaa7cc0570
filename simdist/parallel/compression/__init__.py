"""Gradient compression: sums over ranks with fewer bytes sent, and error feedback for the rest."""

from simdist.parallel.compression.compressor import Compressor, Uncompressed
from simdist.parallel.compression.power_sgd import PowerSGD
from simdist.parallel.compression.quantized import Quantized
from simdist.parallel.compression.registry import compression_defaults, compressions, compressor, named
from simdist.parallel.compression.top_k import TopK

__all__ = [
    "Compressor",
    "PowerSGD",
    "Quantized",
    "TopK",
    "Uncompressed",
    "compression_defaults",
    "compressions",
    "compressor",
    "named",
]
