"""Gate: the experts of each token, their weights, and how even the load is.

T  tokens       E  experts      k  choices of a token      g  group: tokens whose load is balanced together
z  logits       p = softmax(z)                              w  weights of the choices

             e0   e1   e2   e3          chosen     w, k = 1      w, k = 2
token 0   p  .1   .6   .1   .2           1  3         .6         .75  .25
token 1   p  .4   .3   .2   .1           0  1         .4         .57  .43
"""

import numpy as np

from simdist.arrays import Array, charge, moved
from simdist.errors import ArrayError, require_whole, typed

__all__ = ["balance", "gate", "gate_backward", "z_loss"]


def gate(z: Array, top_k: int) -> tuple[Array, Array, Array]:
    """The probabilities of the experts, the best experts of each token, and their weights.

    With one choice the weight is its probability, so that the gate learns from the expert's output; with several the
    weights are their probabilities, scaled to add up to 1. Of equal logits the first expert wins.

    Args:
        z: shape (T, E), float32 at least.
        top_k: k, from 1 to E.

    Returns:
        p, of z's shape; the experts chosen, best first, integers of shape (T, k); w, of shape (T, k).

    Source: Fedus, Zoph, Shazeer 2021, arXiv 2101.03961, equation 2 (one choice) and section 2.4 (float32);
    Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1 (two).
    """
    _require_table("z", z)
    require_whole("top_k", top_k, 1)
    p = z - z.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    chosen = np.argsort(-z, axis=1, kind="stable")[:, :top_k].copy()  # a view would keep all E in memory
    w = p[_rows(p), chosen]
    if top_k > 1:
        w /= w.sum(axis=1, keepdims=True)
    charge(6 * z.size, 2 * z.nbytes)
    return p, chosen, w


def gate_backward(p: Array, chosen: Array, w: Array, dw: Array, dp: Array | None = None) -> Array:
    """Returns dz.

    Args:
        p, chosen, w: from `gate`.
        dw: the derivatives by w.
        dp: further derivatives by p, such as those of `balance`.
    """
    if chosen.shape[1] > 1:  # w = q / Σ q
        top = p[_rows(p), chosen].sum(axis=1, keepdims=True)
        dw = (dw - (w * dw).sum(axis=1, keepdims=True)) / top
    g = np.zeros_like(p)
    g[_rows(p), chosen] = dw
    if dp is not None:
        g += dp
    g -= (p * g).sum(axis=1, keepdims=True)
    g *= p
    charge(6 * p.size, 4 * p.nbytes)
    return g


def balance(p: Array, chosen: Array, group: Array, groups: int) -> tuple[float, Array]:
    """How uneven the load is: E Σ f P of each group, times its tokens, summed over the groups.

        f      the share of the group's tokens whose first choice an expert is
        P      its mean probability in the group
        E Σ f P    1 where both are uniform; E where all tokens go to one expert with probability 1

    f has no derivative, but P has: experts that many tokens choose become less likely. Megatron-LM counts all choices
    of a token, not only the first.

    Args:
        p, chosen: from `gate`.
        group: the number of each token's group, integers of shape (T,).
        groups: their number.

    Returns:
        the sum, to which each token adds 1 where all is even; and its derivatives by p, of p's shape.

    Source: Fedus, Zoph, Shazeer 2021, arXiv 2101.03961, equations 4 to 6, where E is N, without the factor alpha;
    groups, Lepikhin et al. 2020, arXiv 2006.16668, section 2.2 (with the mean over the experts instead of E Σ).
    """
    _require_table("p", p)
    require_whole("groups", groups, min(len(p), 1))  # a rank may have no tokens
    experts = p.shape[1]
    counts = np.bincount(group * experts + chosen[:, 0], minlength=groups * experts).reshape(groups, experts)
    tokens = counts.sum(axis=1)
    dp = np.empty_like(p)
    dp[...] = counts[group]
    dp *= experts / tokens[group][:, None]
    charge(4 * p.size, 3 * p.nbytes)
    return float((p * dp).sum(dtype=np.float64)), dp


def z_loss(z: Array) -> tuple[float, Array]:
    """Σ (log Σ exp z)²: a penalty on large logits, the router z-loss, summed over the tokens.

    The paper adds a thousandth of its mean to the loss, to keep training stable; `Experts` does without.

    Args:
        z: as for `gate`.

    Returns:
        the sum, (ln E)² a token where all logits are zero; and its derivatives by z, of z's shape.

    Source: Zoph et al. 2022, ST-MoE, arXiv 2202.08906, equation 5.
    """
    _require_table("z", z)
    most = z.max(axis=1, keepdims=True)
    dz = np.exp(z - most)
    sums = dz.sum(axis=1, keepdims=True)
    logs = np.log(sums) + most
    dz *= 2 * logs / sums
    charge(5 * z.size, 2 * z.nbytes)
    return float((logs * logs).sum(dtype=np.float64)), dz


def _require_table(name: str, x: Array) -> None:
    """Raise ArrayError unless it is of shape (T, E), with at least one expert."""
    shape = getattr(x, "shape", None)
    if shape is None or len(shape) != 2 or not shape[1]:
        raise ArrayError(f"{name} is {typed(x)} of shape {shape}; needs an array of shape (tokens, experts)")


def _rows(p: Array) -> Array:
    """Row indices, shape (T, 1), to select columns of each row."""
    return moved(np.arange(len(p)), p)[:, None]
