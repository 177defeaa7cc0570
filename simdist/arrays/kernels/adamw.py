"""AdamW: a step in one pass over weights, both moments and the gradient; see `simdist.optim.adamw`."""

import math
from typing import Any

import numpy as np

from simdist.arrays.kernels.source import pointwise, run_pointwise
from simdist.arrays.meter import charge
from simdist.arrays.working import working_dtype

__all__ = ["adamw"]

_SOURCE = pointwise(
    "adamw",
    ["T w", "T m", "T v", "G g"],
    ["T w", "T m", "T v"],
    """
    const A gradient = A(g) * gradient_scale, change = (gradient - m) * fresh1;
    m = m + change;
    v = v * beta2 + gradient * gradient * fresh2;
    if (keep != A(1)) {
        if (at + k >= next) {
            long long high = edges;
            while (past < high) {
                const long long middle = (past + high) / 2;
                if (edge[middle] <= at + k) past = middle + 1; else high = middle;
            }
            next = past < edges ? edge[past] : n;
        }
        if (past & 1) w = w * keep;
    }
    w = w - m / (sqrt(v) + epsilon) * rate;
    """,
    "A gradient_scale, A fresh1, A beta2, A fresh2, A keep, A epsilon, A rate, const long long* edge, long long edges",
    "long long past = 0, next = 0;  // how many of the edges are at or before the item, and the first that is not",
)


def adamw(
    weights: Any,
    m: Any,
    v: Any,
    gradient: Any,
    betas: tuple[float, float],
    epsilon: float,
    num_steps: int,
    rate: float,
    keep: float,
    scale: float,
    edges: Any,
) -> None:
    """One step, in place; the same operations in the same order as on the host, so the same bits in float32.

    Args:
        weights, m, v: of one dtype.
        gradient: of any dtype; it is multiplied by `scale`.
        num_steps: counting this one.
        keep: the factor of weights that decay.
        edges: where stretches of these begin and end, alternating, ascending; int64.
    """
    beta1, beta2 = betas
    root = math.sqrt(1 - beta2**num_steps)
    number = working_dtype(weights.dtype).type
    values = (scale, 1 - beta1, beta2, 1 - beta2, keep, epsilon * root, rate * root / (1 - beta1**num_steps))
    numbers = (*map(number, values), edges, np.int64(len(edges)))
    run_pointwise(_SOURCE, "adamw", (weights, m, v, gradient), *numbers, dtype=weights.dtype, G=gradient.dtype)
    charge(13 * weights.size, 6 * weights.nbytes + gradient.nbytes)
