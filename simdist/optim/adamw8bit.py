"""AdamW8bit: AdamW whose moments take a byte each."""

from collections.abc import Iterable, Mapping

import numpy as np

from simdist.arrays import Array, charge, kind_of
from simdist.errors import require_whole
from simdist.optim.adamw import AdamW
from simdist.optim.dynamic_code import DynamicCode, dynamic_code

__all__ = ["AdamW8bit"]

_ROWS_BYTES = 1 << 16  # of one array at a time, so that all arrays of a step fit into a core's cache


class AdamW8bit(AdamW):
    """AdamW that keeps m and v as one byte per item, with one scale per block, the largest absolute value.

        whole     |------ block ------|------ block ------|------ block ------|---
        codes     c c c c c c c c c c c c c …                    uint8, by DynamicCode
        scales    s                   s                   s      float32

    A step decodes a block, updates it as AdamW does, changes the weights, and encodes the block again: an outlier
    costs precision only in its own block. No v is decoded as 0 unless its whole block is 0, because a step divides by
    its root. Blocks are counted from the start of the whole vector, so a shard gives the same bits as the whole if it
    begins and ends at multiples of `alignment`; otherwise a block that is cut has a scale for each part.

    Args:
        like, betas, epsilon, weight_decay, decay, start: as in `AdamW`.
        block: weights per block, at least 1.

    Attributes:
        state: "m" and "v", uint8, one item per weight; "m_scale" and "v_scale", float32, one per block.

    Cost per step and weight: 13 operations, 6 more to decode and to encode; weights, and m and v of a byte each, are
    read and written, the gradient is read. State: 2 bytes per weight and 8 per block, against AdamW's 8 bytes per
    weight in float32.

    Source: Dettmers et al. 2022, arXiv 2110.02861, sections 1 and 2 (blocks of 2048).
    """

    def __init__(
        self,
        like: Array,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        decay: Iterable[slice] | None = None,
        start: int = 0,
        block: int = 2048,
    ) -> None:
        require_whole("block", block, 1)
        self.alignment = block
        self._codes: dict[str, DynamicCode] = {"m": dynamic_code(signed=True), "v": dynamic_code(signed=False)}
        super().__init__(like, betas=betas, epsilon=epsilon, weight_decay=weight_decay, decay=decay, start=start)
        self._rows = max(1, _ROWS_BYTES // (like.itemsize * block))

    def _zeros(self, like: Array) -> dict[str, Array]:
        """Codes of zeros, and scales of 0."""
        block, start, zeros = self.alignment, self.start, dict[str, Array]()
        num_blocks = -(-(start + len(like)) // block) - start // block if len(like) else 0
        for name, code in self._codes.items():
            zeros[name] = np.empty_like(like, dtype=np.uint8)
            zeros[name][...] = int(np.searchsorted(code.values, 0))
            zeros[f"{name}_scale"] = np.zeros_like(like, shape=(num_blocks,), dtype=np.float32)
        return zeros

    def _update(self, weights: Array, gradient: Array, rate: float, scale: float) -> None:
        charge(19 * weights.size, 2 * weights.nbytes + gradient.nbytes + 4 * weights.size)
        for items, blocks in self._groups():
            w, spare = weights[items], np.empty_like(weights, shape=(items.stop - items.start,))
            m, v = self._decode("m", items, blocks), self._decode("v", items, blocks)
            g = np.multiply(gradient[items], scale, dtype=weights.dtype)
            self._move(w, m, v, g, spare, rate, items)
            self._encode("m", m, items, blocks)
            self._encode("v", v, items, blocks)

    def vectors(self) -> dict[str, Array]:
        """m and v decoded, in float32; encoded again in the same blocks they give the same bits."""
        decoded = {name: np.empty_like(self.state[name], dtype=np.float32) for name in self._codes}
        for items, blocks in self._groups():
            for name, whole in decoded.items():
                whole[items] = self._decode(name, items, blocks)
        return decoded

    def restore(self, vectors: Mapping[str, Array], num_steps: int) -> None:
        """As in `Optimizer`: from m and v as numbers, also those of another rule such as AdamW."""
        self._check_vectors(vectors, self._codes)
        for items, blocks in self._groups():
            for name, whole in vectors.items():
                self._encode(name, whole[items], items, blocks)
        self.num_steps = num_steps

    def _groups(self) -> Iterable[tuple[slice, slice]]:
        """The shard in groups of whole blocks, as slices of its items and of its blocks; none for a phantom.

        If the shard begins or ends inside a block, that part of the block is a group.
        """
        if kind_of(self.state["m"]) == "phantom":
            return
        size, block, at, number = self._shape[0], self.alignment, 0, 0
        while at < size:
            left = -(self.start + at) % block  # items of a block that began before the shard
            if left or size - at < block:
                rows, items = 1, min(left or block, size - at)
            else:
                rows = min(self._rows, (size - at) // block)
                items = rows * block
            yield slice(at, at + items), slice(number, number + rows)
            at, number = at + items, number + rows

    def _decode(self, name: str, items: slice, blocks: slice) -> Array:
        """Decode a group."""
        scales = self.state[f"{name}_scale"][blocks, None]
        x = np.empty_like(scales, shape=(len(scales), (items.stop - items.start) // len(scales)))
        self._codes[name].decode(self.state[name][items].reshape(x.shape), out=x)
        np.multiply(x, scales, out=x)
        flat: Array = x.reshape(-1)
        return flat

    def _encode(self, name: str, numbers: Array, items: slice, blocks: slice) -> None:
        """Encode a group into the state."""
        scales = self.state[f"{name}_scale"][blocks, None]
        x = numbers.astype(np.float32).reshape(len(scales), -1)
        np.abs(x).max(axis=1, keepdims=True, out=scales)
        np.divide(x, np.where(scales == 0, np.float32(1), scales), out=x)
        self._codes[name].encode(x.reshape(-1), out=self.state[name][items])
