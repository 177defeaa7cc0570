"""Names: what other libraries and papers call the algorithms."""

__all__ = ["OTHER_NAMES"]

OTHER_NAMES = {
    "all_reduce": {
        "double_binary_tree": "double_tree",  # NCCL
        "halving_doubling": "rabenseifner",  # Gloo
        "reduce_scatter_all_gather": "rabenseifner",  # MPICH
        "2d_torus": "torus",  # arXiv 1811.05233
    },
    "broadcast": {"scatter_ring_all_gather": "scatter_all_gather"},  # MPICH
}
"""By collective, other names of algorithms, and the names in simdist."""
