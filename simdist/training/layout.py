"""Layout: which rank of a run has which part of the model, and which part of each batch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from simdist.comm import Communicator, Mesh
from simdist.parallel.parts import MeshParts
from simdist.training.methods import CUTTING, attention, distribute
from simdist.training.models import build

if TYPE_CHECKING:
    from simdist.nn import Model
    from simdist.parallel import Method
    from simdist.training.config import Config

__all__ = ["Layout"]


class Layout:
    """The ranks of a run as a config arranges them: copies of the model, and those that share each copy.

    Args:
        comm: all ranks of the run; all must call.

    Attributes:
        data: the ranks that have different windows of each batch: of those that share windows, one.

    Raises:
        ArgumentError: the axes do not multiply to the number of ranks.
    """

    def __init__(self, comm: Communicator, config: Config) -> None:
        self._config = config
        self._copies = self.data = comm
        self._parts: MeshParts | None = None
        axes = {axis: getattr(config, axis) or 1 for axis in CUTTING}
        share = prod(axes.values())
        if config.dp or share > 1:
            mesh = Mesh(comm, dp=config.dp or max(comm.size // share, 1), **axes)
            self._copies = self.data = mesh.dp
            if share > 1:
                parts = MeshParts(mesh, sequence_parallel=bool(config.sequence_parallel), attention=attention(config))
                self._parts, self.data = parts, parts.data

    def model(self) -> Model:
        """This rank's part of the model, not yet bound to memory."""
        return build(self._config, self._parts)

    def method(self, model: Model) -> Method:
        """The way to train it that the config asks for; all ranks must call."""
        spread = self._parts.spread() if self._parts else None
        return distribute(model, self._copies, self._config, spread)
