"""Names: what other libraries and papers call the collectives, and the algorithms."""

from collections.abc import Collection

from simdist.errors import unknown_name
from simdist.trace.kind import COLLECTIVES
from simdist.words import meant

__all__ = ["OTHER_NAMES", "collective"]

_TREES = {"binomial_tree": "binomial"}
_BRUCK = {"brucks": "bruck", "modified_bruck": "bruck"}  # MPICH, Open MPI

OTHER_NAMES = {
    "all_reduce": {
        "double_binary_tree": "double_tree",  # NCCL
        "halving_doubling": "rabenseifner",  # Gloo
        "recursive_halving_doubling": "rabenseifner",
        "reduce_scatter_all_gather": "rabenseifner",  # MPICH
        "2d_torus": "torus",  # arXiv 1811.05233
        "blueconnect": "hierarchical",  # Cho et al. 2019
    },
    "broadcast": {
        "scatter_ring_all_gather": "scatter_all_gather",  # MPICH
        "scatter_all_gather_ring": "scatter_all_gather",  # Open MPI
        "basic_linear": "linear",  # Open MPI
        "van_de_geijn": "scatter_all_gather",
        "pipeline": "chain",  # Open MPI
        **_TREES,
    },
    "all_gather": {"bucket": "ring", **_BRUCK},  # Chan et al. 2007
    "reduce_scatter": {"bucket": "ring"},
    "reduce": _TREES,
    "scatter": _TREES,
    "gather": _TREES,
    "all_to_all": {"scattered": "linear", **_BRUCK},  # MPICH
}
"""By collective, other names of algorithms, and the names in simdist."""


def collective(name: str, known: Collection[str] = COLLECTIVES, kind: str = "collective") -> str:
    """The collective of this name, in any spelling: all_reduce for "AllReduce", broadcast for "MPI_Bcast".

    Raises:
        UnknownNameError: it is none of those known, which are of this kind.
    """
    found = meant(str(name).removeprefix("MPI_"), known, {"bcast": "broadcast"})
    if found is None:
        raise unknown_name(kind, name, known)
    return found
