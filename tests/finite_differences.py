"""Finite differences: derivatives of plain functions, for the tests of backward functions."""

import numpy as np

__all__ = ["near", "slope"]


def slope(value, x, step=1e-6):
    """The gradient of value() by x, which it reads: central differences, one entry at a time."""
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        kept = x[i]
        x[i] = kept + step
        above = value()
        x[i] = kept - step
        gradient[i] = (above - value()) / (2 * step)
        x[i] = kept
    return gradient


def near(found, expected):
    """As equal as they can be."""
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
