"""Quantized: sends every item as one byte."""

import numpy as np

from simdist.arrays import Array, charge, hold, kind_of
from simdist.collectives import all_to_all
from simdist.comm import Communicator
from simdist.errors import require_least
from simdist.parallel.compression.compressor import Compressor

__all__ = ["Quantized"]

_LEVELS = 127
_SCALE_BYTES = 4


class Quantized(Compressor):
    """The sum of items rounded to 8 bits, in blocks with a scale each.

        rank 0    |  chunk 0  |  chunk 1  |        1. each rank rounds its chunks and sends each to its owner,
        rank 1    |  chunk 0  |  chunk 1  |           in one all-to-all
                        |           |              2. the owner adds them up, in the order of ranks,
                     rank 0      rank 1            3. rounds the sum, and all gather all sums

    A ring would have to round after each of p-1 additions; here items are rounded twice. Both errors are kept for the
    next step: each rank's in its residual, and that of each sum by its owner.

    Args:
        like: as of `Compressor`.
        block: the most items that share a scale, at least 1.

    Attributes:
        state: "residual", of the length of the gradient; "sum_residual", of the length of a chunk, made by the first
            `reduce`. With another number of ranks it starts again at zero.

    Cost per rank: 2(p-1) b (m + 4) bytes, where a chunk of ceil(n/p) items makes b = ceil(n/p/block) blocks of
    m = ceil(n/p/b): about 2n(p-1)/p, 1/s of the all-reduce's for items of s bytes.

    Source: Dettmers 2016, arXiv 1511.04561 (8 bits in place of 32); Tang et al. 2019, arXiv 1905.05957
    (the errors of both passes fed back).
    """

    name = "8 bits"
    item_bytes = 1  # packets are bytes

    def __init__(self, like: Array, block: int = 1024) -> None:
        require_least("block", block, 1)
        super().__init__(like)
        self.block = block
        self.state = {"residual": np.zeros_like(like)}

    @property
    def ratio(self) -> float:
        """The bytes of a full block divided by those that are sent for it."""
        return int(self._dtype.itemsize) * self.block / (self.block + _SCALE_BYTES)

    def put_off(self, rank: int) -> Array:
        """See Compressor; with the error of the sums that this rank owns."""
        left = super().put_off(rank)
        if "sum_residual" in self.state:
            own = self.state["sum_residual"].reshape(-1)
            there = left[rank * len(own) : (rank + 1) * len(own)]
            there += own[: len(there)]
        return left

    def take_up(self, left: Array) -> None:
        """See Compressor; the sums that this rank owns start without an error."""
        super().take_up(left)
        self.state.pop("sum_residual", None)

    def _reduce(self, x: Array, comm: Communicator) -> None:
        p, n, residual = comm.size, x.size, self.state["residual"]
        blocks, items = self._layout(n, p)
        packets = np.empty_like(x, shape=(p, blocks, items + _SCALE_BYTES), dtype=np.uint8)
        sums = np.empty_like(packets)
        charge(16 * n, 12 * x.nbytes)
        if kind_of(x) == "phantom":
            self._all_to_all(packets, comm)
            self._all_gather(sums[comm.rank], sums, comm)
            return
        work = np.zeros_like(x, shape=(p, blocks, items))
        flat = work.reshape(-1)
        finite = self._add_to_residual(x)
        flat[:n] = residual if finite else np.nan
        _encode(work, packets)
        received = self._all_to_all(packets, comm)
        own = self._sum(received, x)
        _encode(own, sums[comm.rank])
        self._all_gather(sums[comm.rank], sums, comm)
        rounded = np.empty_like(work)
        _decode(sums, rounded)
        x[...] = rounded.reshape(-1)[:n]
        if np.isfinite(rounded).all():
            np.subtract(own, rounded[comm.rank], out=self.state["sum_residual"])
            _decode(packets, rounded)
            np.subtract(flat[:n], rounded.reshape(-1)[:n], out=residual)
        else:
            x[...] = np.nan

    def _sum(self, received: Array, x: Array) -> Array:
        """This rank's chunk of the sum, plus its error of the last step; the state still holds that error."""
        parts = np.empty_like(x, shape=(*received.shape[:2], received.shape[2] - _SCALE_BYTES))
        _decode(received, parts)
        if self.state.get("sum_residual", parts).shape != parts.shape[1:]:
            self.state["sum_residual"] = np.zeros_like(parts[0])
            hold("buffers", self.state["sum_residual"])
        total = self.state["sum_residual"].copy()
        for part in parts:
            np.add(total, part, out=total)
        return total

    def _layout(self, n: int, p: int) -> tuple[int, int]:
        """The number of blocks in a chunk, and of items in a block."""
        chunk = -(-n // p)
        blocks = -(-chunk // self.block)
        return blocks, -(-chunk // blocks) if blocks else 0

    def _all_to_all(self, packets: Array, comm: Communicator) -> Array:
        received = all_to_all(packets, comm, "pairwise")
        self._count("all_to_all", "pairwise", packets, comm)
        return received


def _encode(x: Array, packets: Array) -> None:
    """Round each block, the last axis of x, to -127 … 127 times a scale, which follows it in the packet.

    The scale of a block with an Inf or NaN is not finite. A block with a scale too small for float32 becomes zeros.
    """
    items = x.shape[-1]
    largest = np.abs(x).max(axis=-1, keepdims=True) if items else np.zeros_like(x, shape=(*x.shape[:-1], 1))
    with np.errstate(over="ignore"):  # a scale too large for float32 counts as infinite
        scales = (largest / _LEVELS).astype(np.float32)
    usable = np.isfinite(scales) & (scales >= np.finfo(np.float32).tiny)
    codes = x / np.where(usable, scales, np.float32(1))
    np.rint(np.where(usable, codes, x.dtype.type(0)), out=codes)
    packets[..., :items].view(np.int8)[...] = codes
    packets[..., items:] = scales.view(np.uint8)


def _decode(packets: Array, out: Array) -> None:
    """The numbers in the packets; nan where the scale is not finite."""
    items = out.shape[-1]
    scales = packets[..., items:].copy().view(np.float32)
    out[...] = packets[..., :items].view(np.int8)
    np.multiply(out, np.where(np.isfinite(scales), scales, np.float32(np.nan)), out=out)
