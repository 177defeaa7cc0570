"""What an array is, what is done with arrays, and what that costs."""

from typing import Any, TypeAlias

from simdist.arrays.kind import empty, kind_of
from simdist.arrays.meter import Chargeable, Meter, charge, metered
from simdist.arrays.partition import Chunks, Partition, partition
from simdist.arrays.phantom import Phantom, phantom
from simdist.arrays.reduction import Reduction, reduction, reductions

__all__ = [
    "Array",
    "Chargeable",
    "Chunks",
    "Meter",
    "Partition",
    "Phantom",
    "Reduction",
    "charge",
    "empty",
    "kind_of",
    "metered",
    "partition",
    "phantom",
    "reduction",
    "reductions",
]

Array: TypeAlias = Any
"""An array of any of the three kinds: whatever has a shape and a dtype and obeys NumPy's protocols."""
