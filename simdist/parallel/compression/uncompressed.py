"""Uncompressed: the all-reduce itself, to compare with."""

from simdist.arrays import Array
from simdist.comm import Communicator
from simdist.parallel.compression.compressor import Compressor

__all__ = ["Uncompressed"]


class Uncompressed(Compressor):
    """The exact sum, with the same interface and the same counts."""

    name = "all-reduce"

    def _reduce(self, x: Array, comm: Communicator) -> None:
        self._all_reduce(x, comm)
