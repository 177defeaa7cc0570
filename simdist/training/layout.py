"""Layout: which part of the model, and of each batch, each rank of a run has."""

from math import prod

from simdist.comm import Communicator, Mesh
from simdist.comm.mesh import full_sizes
from simdist.parallel import Learner
from simdist.parallel.parts import MeshParts
from simdist.parallel.zero.sharing import check_shards
from simdist.training.config import Config
from simdist.training.methods import CUTTING, PIPELINE, attention, distribute, recipe
from simdist.training.models import build
from simdist.training.pipelines import pipeline

__all__ = ["Layout", "mesh_parts", "mesh_sizes"]


def mesh_sizes(config: Config, ranks: int) -> dict[str, int] | None:
    """The axes of the mesh that this many ranks form; None if each of them has a whole replica of the model.

    Raises:
        ArgumentError: the axes do not multiply to the number of ranks, or the replicas are no multiple of shards.
    """
    axes = {axis: getattr(config, axis) or 1 for axis in ("pp", *CUTTING)}
    share = prod(axes.values())
    dp = config.dp or max(ranks // share, 1)
    check_shards(dp, config.shards or 0)
    if not config.dp and share == 1 and not config.experts and config.method != PIPELINE:
        return None
    return full_sizes({"dp": dp, **axes}, ranks)


def mesh_parts(config: Config, mesh: Mesh) -> MeshParts | None:
    """The pieces of a model that the mesh splits, or of one with experts, which record their loads only on a mesh;
    None for other models.
    """
    if not config.experts and all(mesh.sizes[axis] == 1 for axis in CUTTING):
        return None
    return MeshParts(
        mesh,
        sequence_parallel=config.sequence_parallel,
        tp_overlap=config.tp_overlap,
        attention=attention(config),
        overlap_degree=config.overlap_degree,
    )


class Layout:
    """The ranks of a run as a config arranges them: replicas of the model, and the ranks that share each.

    Args:
        comm: all ranks of the run; all must call.

    Attributes:
        data: the ranks that have different windows of each batch: one of each group that shares windows.
        parts: as of `mesh_parts`; None where each rank has a whole replica.

    Raises:
        ArgumentError: the axes do not multiply to the number of ranks.
    """

    def __init__(self, comm: Communicator, config: Config) -> None:
        self._config = config
        sizes = mesh_sizes(config, comm.size)
        self._mesh = Mesh(comm, **sizes) if sizes else None
        self._copies = self._mesh.dp if self._mesh else comm
        self.parts = mesh_parts(config, self._mesh) if self._mesh else None
        self.data = self.parts.data if self.parts else self._copies

    def method(self) -> Learner:
        """This rank's part of the model, trained by the method that the config asks for; all ranks must call."""
        model = build(self._config, self.parts)  # with all layers, before a pipeline splits them
        spread = self.parts.spread() if self.parts else None  # as the layers now built are split
        if self._mesh and self._config.method == PIPELINE:
            return pipeline(model, self._mesh, recipe(self._config), self._config, spread)
        return distribute(model, self._copies, self._config, spread)
