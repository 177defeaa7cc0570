"""Least squares as ranks share it: rank i's loss is ½‖A_i x - b_i‖² / m, and all together have one known minimum."""

import numpy as np

__all__ = ["DIM", "LeastSquares"]

DIM = 7


class LeastSquares:
    """Rows of one system, dealt out to ranks, each of which pulls elsewhere.

    Args:
        ranks: how many.
        rows: m, of each rank.
        noise: of each step's gradient, drawn by (rank, step); 0 for exact ones.
    """

    def __init__(self, ranks, rows=12, noise=0.0):
        rng = np.random.default_rng([7, ranks])
        self.a = rng.normal(size=(ranks, rows, DIM))
        self.b = self.a @ np.arange(1.0, DIM + 1) + rng.normal(size=(ranks, rows))
        self.noise = noise

    def of(self, rank):
        """gradient(weights, step) -> (loss, gradient) of one rank."""
        a, b = self.a[rank], self.b[rank]

        def gradient(x, step):
            rest = a @ x - b
            found = a.T @ rest / len(b)
            if self.noise:
                found = found + self.noise * np.random.default_rng([rank, step]).normal(size=DIM)
            return 0.5 * float(rest @ rest) / len(b), found

        return gradient

    def start(self, rank):
        """Where a rank may begin: each elsewhere."""
        return np.random.default_rng([3, rank]).normal(size=DIM)

    def minimum(self):
        """Of the sum of all ranks' losses, by NumPy's solver."""
        a, b = self.a.reshape(-1, DIM), self.b.reshape(-1)
        return np.linalg.lstsq(a, b, rcond=None)[0]

    def excess(self, x):
        """How far the loss of all at x is above the least, as a share of how far it is at 0."""

        def loss(x):
            return sum(self.of(rank)(x, 0)[0] for rank in range(len(self.a)))

        least = loss(self.minimum())
        return (loss(x) - least) / (loss(np.zeros(DIM)) - least)
