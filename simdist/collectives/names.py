"""Names: what other libraries and papers call the algorithms."""

__all__ = ["OTHER_NAMES"]

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
