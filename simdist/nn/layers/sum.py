"""Sum: layers side by side, whose outputs are added."""

from functools import reduce

from simdist.arrays import Array
from simdist.nn import functional as f
from simdist.nn.layers.side_by_side import SideBySide

__all__ = ["Sum"]


class Sum(SideBySide):
    """y = layer1(x) + layer2(x) + …; no layer may return x or dy itself."""

    def _together(self, outputs: list[Array]) -> tuple[Array, None]:
        return reduce(f.add, outputs), None

    def _apart(self, dy: Array, how: None) -> list[Array]:
        return [dy] * len(self.layers)
