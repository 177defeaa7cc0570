"""What an array is, what is done with arrays, and what that costs."""

from typing import Any, TypeAlias

from simdist.arrays.meter import Meter, charge, metered
from simdist.arrays.partition import Partition, partition
from simdist.arrays.phantom import Phantom, phantom
from simdist.arrays.reduction import Reduction, reduction, reductions

__all__ = [
    "Array",
    "Meter",
    "Partition",
    "Phantom",
    "Reduction",
    "charge",
    "metered",
    "partition",
    "phantom",
    "reduction",
    "reductions",
]

Array: TypeAlias = Any
"""An array of any of the three kinds: whatever has a shape and a dtype and obeys NumPy's protocols."""
