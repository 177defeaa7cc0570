"""Fork: layers side by side, whose outputs stay side by side."""

import numpy as np

from simdist.arrays import Array, charge
from simdist.nn.layers.side_by_side import SideBySide

__all__ = ["Fork"]


class Fork(SideBySide):
    """y = [ layer1(x) | layer2(x) | … ], the features of all outputs one after the other."""

    def _together(self, outputs: list[Array]) -> tuple[Array, list[int]]:
        """Also the widths of the outputs."""
        widths = [own.shape[-1] for own in outputs]
        y = np.empty_like(outputs[0], shape=(*outputs[0].shape[:-1], sum(widths)))
        for own, to in zip(outputs, _columns(widths), strict=True):
            y[..., to] = own
        charge(0, 2 * y.nbytes)
        return y, widths

    def _apart(self, dy: Array, how: list[int]) -> list[Array]:
        """Contiguous, as products of matrices need them."""
        charge(0, 2 * dy.nbytes)
        return [dy[..., columns].copy() for columns in _columns(how)]


def _columns(widths: list[int]) -> list[slice]:
    ends = np.cumsum(widths).tolist()
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
