"""Anatomy: what each layer of a model takes of the ranks that share it, as one micro-batch without numbers shows."""

from collections.abc import Sequence
from typing import NamedTuple

from simdist.cluster import Cluster
from simdist.comm import Communicator, Mesh
from simdist.comm.device import use_device
from simdist.comm.virtual.world import run_virtual
from simdist.parallel.parts import MeshParts
from simdist.parallel.pipeline import Footprint, footprints
from simdist.parallel.precision import precision
from simdist.training.config import Config
from simdist.training.methods import CUTTING, attention
from simdist.training.models import sample

__all__ = ["Anatomy", "Weight", "anatomy"]


class Weight(NamedTuple):
    """A parameter, as far as a rank has it: its name, and how many numbers it is there."""

    name: str
    size: int


class Anatomy(NamedTuple):
    """A model, layer by layer, as the first of the ranks has it that share its layers.

    Attributes:
        layers: what a micro-batch takes on each.
        weights: those that each uses; two layers may use one.
        sums: axes, and the names of the weights of whose gradients the ranks along them find a part each.
    """

    layers: list[Footprint]
    weights: list[tuple[Weight, ...]]
    sums: list[tuple[tuple[str, ...], frozenset[str]]]

    def of(self, layers: Sequence[int]) -> dict[str, int]:
        """The sizes of all weights that these layers use, each once, by name."""
        return {weight.name: weight.size for layer in layers for weight in self.weights[layer]}


def anatomy(config: Config, cluster: Cluster, num_windows: int) -> Anatomy:
    """That of the model that a config asks for, on the ranks that tp, sp and ep put next to each other.

    Its layers go forward and backward on as many virtual ranks of the cluster, as they do in training; of those that
    are all alike one does so for all. Experts go by numbers, which are not there, and count as full.

    Args:
        num_windows: of a micro-batch.
    """
    axes = {axis: getattr(config, axis) or 1 for axis in CUTTING}
    dtype = precision(config.precision).dtype

    def program(comm: Communicator) -> Anatomy:
        use_device(comm, "phantom")
        mesh, parts = Mesh(comm, **axes), None
        if comm.size > 1 or config.experts:
            parts = MeshParts(mesh, sequence_parallel=bool(config.sequence_parallel), attention=attention(config))
        model, like = sample(config, parts)
        layers = model.layers.layers
        each = [slice(k, k + 1) for k in range(len(layers))]
        took = footprints(model, each, num_windows, config.context_bytes + 1, dtype, comm.clock)
        blocks = len(like) - len(layers) + 1
        weights = [
            _renamed([Weight(p.name, p.size) for p in layers[k].parameters], place - 1) for place, k in enumerate(like)
        ]
        spread = parts.spread() if parts else None
        sums = [(_along(mesh, group), _of_all(names, blocks)) for group, names in (spread.sums if spread else ())]
        return Anatomy([took[k] for k in like], weights, sums)

    ranks = axes["tp"] * axes["sp"] * axes["ep"]
    found: list[Anatomy] = run_virtual(program, ranks, cluster, record=False)[0]
    return found[0]


def _along(mesh: Mesh, group: Communicator) -> tuple[str, ...]:
    """The axes that a group is made of."""
    return tuple(axis for axis in CUTTING if set(getattr(mesh, axis).ranks) <= set(group.ranks))


_SAMPLE = "block0."


def _renamed(weights: Sequence[Weight], block: int) -> tuple[Weight, ...]:
    """Those of a block that the sample's stands for."""
    return tuple(weight._replace(name=_name(weight.name, block)) for weight in weights)


def _of_all(names: frozenset[str], blocks: int) -> frozenset[str]:
    return frozenset(_name(name, block) for name in names for block in range(blocks))


def _name(name: str, block: int) -> str:
    return f"block{block}.{name.removeprefix(_SAMPLE)}" if name.startswith(_SAMPLE) else name
