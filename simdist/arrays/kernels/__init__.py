"""Kernels for the device; each has a counterpart that computes the same with NumPy: see `simdist.arrays.fused`."""
