"""Arrays of all kinds, the operations on them, and their costs."""

from typing import Any, TypeAlias

from simdist.arrays.fused import copied
from simdist.arrays.kind import empty, kind_of, moved, on_host
from simdist.arrays.ledger import CATEGORIES, Ledger, Moment, hold, inheriting, recorded
from simdist.arrays.meter import Chargeable, Meter, charge, clear, in_one_pass, metered, unmetered
from simdist.arrays.partition import Chunks, Partition, consecutive, partition, slices
from simdist.arrays.phantom import Phantom, phantom
from simdist.arrays.reduction import Reduction, reduction, reductions

__all__ = [
    "CATEGORIES",
    "Array",
    "Chargeable",
    "Chunks",
    "Ledger",
    "Meter",
    "Moment",
    "Partition",
    "Phantom",
    "Reduction",
    "charge",
    "clear",
    "consecutive",
    "copied",
    "empty",
    "hold",
    "in_one_pass",
    "inheriting",
    "kind_of",
    "metered",
    "moved",
    "on_host",
    "partition",
    "phantom",
    "recorded",
    "reduction",
    "reductions",
    "slices",
    "unmetered",
]

Array: TypeAlias = Any
"""An array of any of the three kinds: anything with a shape and a dtype that implements NumPy's protocols."""
