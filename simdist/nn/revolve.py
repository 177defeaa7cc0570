"""Revolve: how often forward is computed again, if only some of the inputs of a row of layers can be kept.

    l  layers      c  checkpoints: inputs kept at a time, with the first      r  forwards of a layer, at most

    C(c + r, c) layers, for c = 3          r = 1   2   3   4   5
                                       l = 4  10  20  35  56

A checkpoint that backward has passed is free, and is kept again further ahead. Layers here take equally long.

Source: Griewank, Walther 2000, ACM Transactions on Mathematical Software 26(1), 19-45, "Algorithm 799: Revolve".
"""

from bisect import bisect_left
from math import comb

from simdist.errors import as_declared, require_least

__all__ = ["revolve_forwards", "revolve_layers"]


@as_declared
def revolve_layers(checkpoints: int, forwards: int) -> int:
    """C(c + r, c): the most layers for which c checkpoints suffice, if none is computed more than r times.

    Its backward then computes a layer once more, and keeps what it needs of it.

        revolve_layers(8, 3)                            # 165, with 8 inputs kept

    Args:
        checkpoints, forwards: c and r.

    Raises:
        ArgumentError: checkpoints is less than 1.
    """
    require_least("checkpoints", checkpoints, 1)
    return comb(checkpoints + forwards, checkpoints)


@as_declared
def revolve_forwards(layers: int, checkpoints: int) -> int:
    """r l - C(c + r, r - 1): the least forwards of layers before the l of backward; r is the least that suffices for l.

    With c = l these are l - 1, which full recomputation from each layer's input takes: all but the last one twice.
    Chen et al. keep √l inputs, and within one of √l runs of layers all activations, for l - √l forwards.

        revolve_forwards(96, 10)                        # 210: with backward's 96, each layer 3.2 times

    Args:
        layers, checkpoints: l and c.

    Raises:
        ArgumentError: layers or checkpoints is less than 1.

    Source: the same; √l, Chen, Xu, Zhang, Guestrin 2016, arXiv 1604.06174, section 4.1.
    """
    require_least("layers", layers, 1)
    require_least("checkpoints", checkpoints, 1)
    most = 1
    while revolve_layers(checkpoints, most) < layers:
        most *= 2
    r = bisect_left(range(most + 1), layers, key=lambda r: revolve_layers(checkpoints, r))
    return r * layers - comb(checkpoints + r, checkpoints + 1)
