"""Splits: which client holds which samples, for clients with non-IID data.

    labels        0 0 0 0 0 0 1 1 1 1 1 1 2 2 2 2 2 2

    even          each client has some of each label, at random
    by label      |  a  |  b  |  c  |  a  |  b  |  c  |       sorted by label, cut in pieces, assigned at random
    Dirichlet     the clients' shares of each label are drawn from Dir(α): α → ∞ is even, α → 0 one label to one client

Every sample belongs to one client. A split depends only on its arguments, so every rank finds the same.
"""

import numpy as np
import numpy.typing as npt

from simdist.arrays import Array, partition
from simdist.errors import ArgumentError, require_least

__all__ = ["by_label", "dirichlet", "even"]

Indices = npt.NDArray[np.int64]


def even(num_samples: int, clients: int, seed: int) -> list[Indices]:
    """The indices of each client's samples, assigned at random; numbers of samples differ by at most one.

    Raises:
        ArgumentError: clients is below 1, or a number negative.
    """
    _check(num_samples, clients, seed)
    order = np.random.default_rng(seed).permutation(num_samples)
    return [np.sort(order[part]) for part in partition(num_samples, clients)]


def by_label(labels: Array, clients: int, seed: int, pieces: int = 2) -> list[Indices]:
    """The indices of each client's samples, such that most clients have at most `pieces` labels.

    Args:
        labels: shape (n,), of any integer dtype.
        clients: how many clients.
        seed: at least 0.
        pieces: the number of pieces of the sorted samples per client.

    Raises:
        ArgumentError: clients or pieces is below 1, the seed negative, or there are fewer samples than pieces in total.

    Source: McMahan et al. 2017, arXiv 1602.05629, section 3 (the pathological non-IID partition).
    """
    _check(len(labels), clients, seed)
    if pieces < 1 or clients * pieces > len(labels):
        raise ArgumentError(
            f"{clients} clients with {pieces} pieces of {len(labels)} samples; needs 1 sample per piece"
        )
    in_order = np.argsort(labels, kind="stable")
    dealt = np.random.default_rng(seed).permutation(clients * pieces)
    cut = partition(len(labels), clients * pieces)
    return [
        np.sort(np.concatenate([in_order[cut[int(piece)]] for piece in dealt[k * pieces : (k + 1) * pieces]]))
        for k in range(clients)
    ]


def dirichlet(labels: Array, clients: int, alpha: float, seed: int) -> list[Indices]:
    """The indices of each client's samples, each label divided by Dir(α, …, α); a client may get no samples.

    Args:
        labels: shape (n,), of any integer dtype.
        clients: how many clients.
        alpha: above 0; the smaller it is, the more the clients differ.
        seed: at least 0.

    Raises:
        ArgumentError: clients is below 1, the seed negative, or alpha not above 0.

    Source: Yurochkin et al. 2019, arXiv 1905.12022 (shares of each label among the clients).
    """
    _check(len(labels), clients, seed)
    if not 0 < alpha < np.inf:
        raise ArgumentError(f"alpha is {alpha}; needs more than 0, and less than infinity")
    generator = np.random.default_rng(seed)
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        samples = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(clients, alpha))
        ends = np.rint(np.cumsum(shares[:-1]) * len(samples)).astype(np.int64)
        for part, mine in zip(parts, np.split(samples, ends), strict=True):
            part.append(mine)
    return [np.sort(np.concatenate(part)) if part else np.empty(0, np.int64) for part in parts]


def _check(num_samples: int, clients: int, seed: int) -> None:
    if clients < 1 or num_samples < 0:
        raise ArgumentError(f"{num_samples} samples for {clients} clients; needs at least 0 and 1")
    require_least("seed", seed, 0)
