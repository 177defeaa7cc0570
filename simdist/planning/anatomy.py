"""Anatomy: the cost of each layer of a model on the ranks that share it, from one micro-batch of phantoms."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from simdist.cluster import Cluster
from simdist.comm import Communicator, Mesh
from simdist.comm.device import use_device
from simdist.comm.virtual.world import run_virtual
from simdist.nn import Parameter, Parameters
from simdist.parallel.pipeline import Footprint, footprints
from simdist.parallel.precision import precision
from simdist.training.config import Config
from simdist.training.layout import mesh_parts
from simdist.training.methods import CUTTING
from simdist.training.models import sample

__all__ = ["Anatomy", "Weight", "anatomy"]


class Weight(NamedTuple):
    """A rank's part of a parameter: its name, and its shape."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of its items."""
        return prod(self.shape)


class Anatomy(NamedTuple):
    """A model, layer by layer, on the first of the ranks that share its layers.

    Attributes:
        layers: the cost of a micro-batch on each.
        weights: by layer, those that it uses; two layers may use the same one.
        sums: axes, and the names of the weights whose gradients have to be summed over them.
        shared_bytes: of memory that the ranks that share layers communicate by, all through the run.
    """

    layers: list[Footprint]
    weights: list[tuple[Weight, ...]]
    sums: list[tuple[tuple[str, ...], frozenset[str]]]
    shared_bytes: int

    def of(self, layers: Sequence[int]) -> Parameters:
        """All weights that these layers use, each once."""
        shapes = {weight.name: weight.shape for layer in layers for weight in self.weights[layer]}
        return Parameters(Parameter(name, shape) for name, shape in shapes.items())


def anatomy(config: Config, cluster: Cluster, num_windows: int) -> Anatomy:
    """The anatomy of a config's model, on the adjacent ranks of the axes tp, sp and ep.

    Its layers run forward and backward on virtual ranks of the cluster, as in training; of equal blocks, only one runs.
    Experts count as full, because routing would need numbers, which phantoms lack.

    Args:
        num_windows: the windows of a micro-batch.
    """
    axes = {axis: getattr(config, axis) or 1 for axis in CUTTING}
    dtype = precision(config.precision).dtype

    def program(comm: Communicator) -> Anatomy | None:
        use_device(comm, "phantom")
        mesh = Mesh(comm, **axes)
        parts = mesh_parts(config, mesh)
        model, like = sample(config, parts)
        layers = model.layers.layers
        each = [slice(k, k + 1) for k in range(len(layers))]
        took = footprints(model, each, num_windows, config.context_bytes + 1, dtype, comm.clock)
        spread = parts.spread() if parts else None
        if comm.rank:  # the others' are alike
            return None
        weights = [
            tuple(Weight(_renamed(p.name, k, place), p.shape) for p in layers[k].parameters)
            for place, k in enumerate(like)
        ]
        sums = [(_along(mesh, group), _of_all(names, like)) for group, names in (spread.sums if spread else ())]
        return Anatomy([took[k] for k in like], weights, sums, sum(layer.shared_bytes for layer in took))

    ranks = axes["tp"] * axes["sp"] * axes["ep"]
    found: Anatomy = run_virtual(program, ranks, cluster, record=False)[0][0]
    return found


def _along(mesh: Mesh, group: Communicator) -> tuple[str, ...]:
    """The axes that a group extends along."""
    return tuple(axis for axis in CUTTING if set(getattr(mesh, axis).ranks) <= set(group.ranks))


def _of_all(names: frozenset[str], like: Sequence[int]) -> frozenset[str]:
    """The names in the whole model of weights in the sample."""
    return frozenset(
        _renamed(name, k, place)
        for name in names
        for place, k in enumerate(like)
        if name.startswith(_block(k)) or not name.startswith("block")
    )


def _renamed(name: str, k: int, place: int) -> str:
    """The name of a weight in the sample's layer k, if that stands for the layer of the whole at this place."""
    return _block(place) + name.removeprefix(_block(k)) if name.startswith(_block(k)) else name


def _block(layer: int) -> str:
    """What the names in a block begin with; the embedding comes before the first."""
    return f"block{layer - 1}."
