"""Kernels for the device, each beside a function that says the same in NumPy's words: see `simdist.arrays.fused`."""
