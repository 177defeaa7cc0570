"""Top-k: each rank sends its k largest items, and their indices."""

import math

import numpy as np

from simdist.arrays import Array, charge, kind_of, moved
from simdist.comm import Communicator
from simdist.errors import ArgumentError, ArrayError, require_more
from simdist.optim import largest
from simdist.parallel.compression.compressor import Compressor

__all__ = ["TopK"]

_PLACE_BYTES = 4


class TopK(Compressor):
    """The sum of each rank's largest items; the rest stays in the residual until it has grown.

        residual + x     0.1  -2.0   0.3   0.1  1.5  -0.2         k = 2
        sent                  -2.0 at 1         1.5 at 4
        residual         0.1   0     0.3   0.1  0    -0.2

    The indices differ between ranks, so this is an all-gather: every rank adds up p lists of k items, in the order of
    ranks. With k = n the sum is exact.

    Args:
        like: as of `Compressor`, with fewer than 2**32 items.
        share: k / n, above 0 and at most 1; k is rounded up.

    Attributes:
        num_items: k.
        state: "residual", of the length of the gradient.

    Cost per rank: (p-1) k (s + 4) bytes, s bytes an item, against 2ns(p-1)/p. This is less while k/n is below
    2s / (p (s + 4)).

    Source: Aji and Heafield 2017, arXiv 1704.05021; Stich, Cordonnier, Jaggi 2018, arXiv 1809.07599.
    """

    name = "top-k"
    item_bytes = 1  # packets are bytes

    def __init__(self, like: Array, share: float = 0.01) -> None:
        require_more("share", share, 0)
        if share > 1:
            raise ArgumentError(f"share is {share}; needs more than 0 and at most 1")
        if len(like) >= 1 << 8 * _PLACE_BYTES:
            raise ArrayError(f"a gradient of {len(like)} items; top-k needs fewer than 2**{8 * _PLACE_BYTES}")
        super().__init__(like)
        rounded = math.ceil(share * len(like) - 1e-9)  # for 0.07 of 100 items 7, not 8
        self.num_items = min(len(like), max(1, rounded))
        self.state = {"residual": np.zeros_like(like)}

    @property
    def ratio(self) -> float:
        """The bytes of the gradient divided by those of this rank's list of k items and indices."""
        size = int(self._dtype.itemsize)
        return len(self.state["residual"]) * size / max(1, self.num_items * (size + _PLACE_BYTES))

    def _reduce(self, x: Array, comm: Communicator) -> None:
        k, residual, p = self.num_items, self.state["residual"], comm.size
        values_bytes = k * x.itemsize
        packet_bytes = values_bytes + k * _PLACE_BYTES
        packets = np.empty_like(x, shape=(p, packet_bytes), dtype=np.uint8)
        mine, has_numbers = packets[comm.rank], kind_of(x) != "phantom"
        if has_numbers:
            finite = self._add_to_residual(x)
            places = _largest_places(residual, k)
            values = residual[places]
            if not finite:
                values[...] = np.nan
            mine[:values_bytes] = values.view(np.uint8)
            mine[values_bytes:].view(np.uint32)[...] = places
        charge(4 * x.size, 4 * x.nbytes)
        self._all_gather(mine, packets, comm)
        charge(p * k, x.nbytes + 3 * p * values_bytes)
        if not has_numbers:
            return
        x[...] = 0
        finite = True
        for packet in packets:
            values = packet[:values_bytes].copy().view(x.dtype)  # a packet may begin at any multiple of 4 bytes
            x[packet[values_bytes:].view(np.uint32)] += values  # no index occurs twice in a packet
            finite = finite and math.isfinite(largest(values))
        if finite:
            residual[places] = 0
        else:
            x[...] = np.nan


def _largest_places(x: Array, k: int) -> Array:
    """The indices of the k largest absolute values of x, ascending."""
    if k == len(x):
        return moved(np.arange(k, dtype=np.uint32), x)
    return np.sort(np.argpartition(np.abs(x), len(x) - k)[len(x) - k :]).astype(np.uint32)
